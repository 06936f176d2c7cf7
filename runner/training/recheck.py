"""Finds silent corruption: repeats a training step from the same state, and compares all bits.

Processors and memory may compute wrong values without an error (Dixit et al., "Silent Data
Corruptions at Scale", 2021). On sound hardware, deterministic ops give the same bits every time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from runner.core import text

_BITS = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}  # by the size of an element
_SHOWN = 3


class Difference(NamedTuple):
    """A variable that a repeated step has changed differently.

    Attributes:
        name: Its name.
        device: The device that holds it.
        elements: How many of its elements differ.
        size: How many elements it has.
    """

    name: str
    device: str
    elements: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} on {self.device}: {self.elements:,} of {self.size:,} values"


class Recheck:
    """Repeats steps of a trainer.

    Args:
        checkpoint: Holds the variables that a step may change.
        slots: Those of the optimizer, which TensorFlow does not list as a part of a checkpoint.
        strategy: Distributes them.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        slots: Sequence[tf.Variable],
        strategy: tf.distribute.Strategy,
    ) -> None:
        held = tf.train.TrackableView(checkpoint).descendants()
        self._variables = list(_parts([*held, *slots], strategy))

    def run(self, step: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, list[Difference]]:
        """Runs a step twice from the same state.

        Args:
            step: Trains on a batch that is always the same.

        Returns:
            What `step` returned, and the variables that differ. They keep the second values.
        """
        before = self._read()
        result = step()
        first = self._read()
        self._assign(before)
        del before  # else the step copies all variables before it changes them
        step()
        if not self._differs(first):
            return result, []
        counts = self._counts(first).numpy().tolist()
        return result, [
            Difference(each.name.partition(":")[0], _device(each), count, each.shape.num_elements())
            for each, count in zip(self._variables, counts, strict=True)
            if count
        ]

    @tf.function(autograph=False)
    def _read(self) -> list[tf.Tensor]:
        return [variable.read_value() for variable in self._variables]

    @tf.function(autograph=False)
    def _assign(self, values: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)

    @tf.function(autograph=False)
    def _differs(self, first: Sequence[tf.Tensor]) -> tf.Tensor:
        """Whether any bit is another than in `first`."""
        return tf.reduce_any([tf.reduce_any(each) for each in self._compared(first)])

    @tf.function(autograph=False)
    def _counts(self, first: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns how many elements of each variable have other bits than in `first`, int64."""
        return tf.stack([tf.math.count_nonzero(each) for each in self._compared(first)])

    def _compared(self, first: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        pairs = zip(self._variables, first, strict=True)
        return [_bits(variable.read_value()) != _bits(value) for variable, value in pairs]


def describe(differences: Sequence[Difference], step: int) -> str:
    """Describes what differs after a repeated step."""
    shown = text.some([str(each) for each in differences], _SHOWN)
    return f"step {step:,} gave other bits when it was repeated: {shown}"


def _parts(objects: Sequence[Any], strategy: tf.distribute.Strategy) -> Iterator[tf.Variable]:
    """Yields the variables among some objects, on each device."""
    seen = set()
    for each in objects:
        if isinstance(each, tf.Variable) and each.dtype != tf.string:
            for part in strategy.experimental_local_results(each):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield part


def _bits(value: tf.Tensor) -> tf.Tensor:
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint8)
    return tf.bitcast(value, _BITS[value.dtype.size])


def _device(variable: Any) -> str:
    found = tf.DeviceSpec.from_string(variable.device)
    worker = f" of worker {found.task}" if found.job == "worker" else ""
    return f"{found.device_type}:{found.device_index}{worker}"
