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

    def run(self, step: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs a step twice from the same state. In a graph, this is a part of it.

        Args:
            step: Trains on a batch that is always the same.

        Returns:
            What `step` returned, and how many elements of each variable differ, int64. The
            variables keep the second values.
        """
        if not tf.executing_eagerly():  # else the graph would compute common parts only once
            step = tf.function(step, autograph=False, experimental_attributes={"_noinline": True})
        before = self._read()
        result = step()
        first = self._read()
        for variable, value in zip(self._variables, before, strict=True):
            variable.assign(value)
        del before  # else an eager step copies all variables before it changes them
        step()
        pairs = zip(self._read(), first, strict=True)
        differ = [_bits(second) != _bits(value) for second, value in pairs]
        return result, tf.cond(
            tf.reduce_any([tf.reduce_any(each) for each in differ]),
            lambda: tf.stack([tf.math.count_nonzero(each) for each in differ]),
            lambda: tf.zeros(len(differ), tf.int64),
        )

    def differences(self, counts: Sequence[int]) -> list[Difference]:
        """Describes the variables of which some elements differ."""
        return [
            Difference(each.name.partition(":")[0], _device(each), count, each.shape.num_elements())
            for each, count in zip(self._variables, counts, strict=True)
            if count
        ]

    def _read(self) -> list[tf.Tensor]:
        return [variable.read_value() for variable in self._variables]


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
