"""A PyDataset of Keras 3 or a Sequence of tf_keras, whose batches are found by their numbers."""

import contextlib
import copy
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from runner.core import console
from runner.data import order, pipeline
from runner.errors import ConfigError
from runner.models import elements

_KINDS = ("PyDataset", "Sequence")
_LIBRARIES = ("keras", "tf_keras")
_HOOKS = ("on_epoch_begin", "on_epoch_end")
_BEGIN, _END = 0, 1  # random numbers for the hooks. Batch n has those of n + 2


def is_sequence(value: Any) -> bool:
    """Whether a value is a PyDataset or a Sequence."""
    return any(_is_keras(kind) and kind.__name__ in _KINDS for kind in type(value).__mro__)


class BatchSequence:
    """Batches by number, shuffled anew for each epoch of training as in Keras's `fit`.

    Args:
        sequence: A PyDataset or a Sequence. It must not change from one attempt to the next.
        where: Names it in messages.

    Raises:
        ConfigError: its batches are not (x, y) or (x, y, sample_weight), or there are none.

    Attributes:
        length: The number of batches, or None if the sequence does not end.
        batch_size: The number of examples in the first batch.
        element_spec: The specification of a batch of any size.
    """

    def __init__(self, sequence: Any, where: str) -> None:
        self.length = _length(sequence)
        if self.length == 0:
            raise ConfigError(f"{where}: the {type(sequence).__name__} has no batches")
        self._sequence, self._where = sequence, where
        self._hooks = [name for name in _HOOKS if _overrides(sequence, name)]
        with _random_numbers(0, 0, 2):
            self.first = elements.converted(sequence[0], where)
        some = [self.first]
        if self.length is None or self.length > 1:
            with _random_numbers(0, 0, 3):
                some.append(elements.converted(sequence[1], where))
        self.element_spec = elements.spec(some)
        self.batch_size = elements.size(self.first)
        if getattr(sequence, "use_multiprocessing", False) or getattr(sequence, "workers", 1) > 1:
            console.say(f"{where}: workers are ignored: one thread reads the batches ahead")

    def describe(self) -> str:
        """The class, the specification of its batches and their number."""
        return f"{type(self._sequence).__name__}, {self.element_spec}, {self.length} batches"

    def batches(
        self, config: Any, context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Batches for the replicas in turn: for training without end, else each once in order.

        Args:
            config: Has `is_training`, `global_batch_size`, `seed`, `start_step` and
                `repeated_steps`, as `runner.inputs.DataConfig`.
            context: The replicas, or None for one.

        Raises:
            ConfigError: the configured batch size is not that of the batches.
        """
        if config.global_batch_size != self.batch_size:
            raise ConfigError(
                f"{self._where}: a {type(self._sequence).__name__} makes its own batches: these "
                f"have {self.batch_size} examples, but the batch size (global_batch_size) is "
                f"{config.global_batch_size}: omit it, or set {self.batch_size}"
            )
        seed = config.seed or 0
        numbers = self._trained(config, seed) if config.is_training else self._in_order()
        reader = _Reader(self._sequence, self._hooks if config.is_training else [], seed)
        flat = tf.nest.flatten(self.element_spec)

        def read(epoch: np.ndarray, number: np.ndarray) -> list[np.ndarray]:
            with elements.errors_named(f"{self._where}: batch {number}"):
                found = reader.batch(int(epoch), int(number))
            return list(tf.nest.flatten(elements.converted(found, self._where)))

        @tf.autograph.experimental.do_not_convert
        def load(epoch: tf.Tensor, number: tf.Tensor) -> Any:
            tensors = tf.numpy_function(read, [epoch, number], [each.dtype for each in flat])
            for tensor, spec in zip(tensors, flat, strict=True):
                tensor.set_shape(spec.shape)
            return tf.nest.pack_sequence_as(self.element_spec, tensors)

        dataset = numbers.map(load)  # one at a time: their random numbers come from one generator
        if context is not None and context.num_replicas_in_sync > 1:
            dataset = pipeline.share(dataset, context)
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _in_order(self) -> tf.data.Dataset:
        """The epoch, 0, and the number of each batch."""
        return tf.data.Dataset.range(self.length or tf.int64.max).map(lambda n: (0 * n, n))

    def _trained(self, config: Any, seed: int) -> tf.data.Dataset:
        """The epochs and numbers of the batches of training, from a step on and without end."""
        length, first, period = self.length, config.start_step, config.repeated_steps

        @tf.autograph.experimental.do_not_convert
        def drawn(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if length is None:
                return tf.zeros_like(step), step
            serial = order.Shuffle(length, seed).serial(step[tf.newaxis])[0]
            return serial // length, serial % length

        if period:
            return tf.data.Dataset.range(period).repeat().skip(first % period).map(drawn)
        return tf.data.Dataset.range(first, tf.int64.max).map(drawn)


class _Reader:
    """Gets batches of a sequence, and calls its methods at the ends of epochs.

    A batch depends only on the seed, its epoch and its number: Python's and numpy's random numbers
    are seeded for each, and an earlier epoch starts with a new copy of the sequence.
    """

    def __init__(self, sequence: Any, hooks: list[str], seed: int) -> None:
        self._original, self._hooks, self._seed = sequence, hooks, seed
        self._sequence: Any = None
        self._epoch, self._lock = 0, threading.Lock()

    def batch(self, epoch: int, number: int) -> Any:
        """The batch of this number."""
        with self._lock:
            self._go_to(epoch if self._hooks else 0)
            with _random_numbers(self._seed, epoch, number + 2):
                return self._sequence[number]

    def _go_to(self, epoch: int) -> None:
        if self._sequence is None or epoch < self._epoch:
            self._sequence = copy.deepcopy(self._original) if self._hooks else self._original
            self._epoch = 0
            self._call("on_epoch_begin", _BEGIN)
        while self._epoch < epoch:
            self._call("on_epoch_end", _END)
            self._epoch += 1
            self._call("on_epoch_begin", _BEGIN)

    def _call(self, name: str, number: int) -> None:
        if name in self._hooks:
            with _random_numbers(self._seed, self._epoch, number):
                getattr(self._sequence, name)()


@contextlib.contextmanager
def _random_numbers(*seed: int) -> Iterator[None]:
    """Python's and numpy's generators give the same numbers in each block with this seed."""
    held = random.getstate(), np.random.get_state()
    words = np.random.SeedSequence(seed).generate_state(4)
    random.seed(words.tobytes())
    np.random.seed(words)
    try:
        yield
    finally:
        random.setstate(held[0])
        np.random.set_state(held[1])


def _length(sequence: Any) -> int | None:
    """The number of batches, or None if the sequence does not end."""
    length = sequence.num_batches if hasattr(sequence, "num_batches") else len(sequence)
    return None if length is None else int(length)


def _overrides(sequence: Any, name: str) -> bool:
    method = getattr(type(sequence), name, None)
    return method is not None and method.__module__.partition(".")[0] not in _LIBRARIES


def _is_keras(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES
