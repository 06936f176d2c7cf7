"""A source: examples that can be read in any order without loading the others.

Grain's random-access data sources (`__len__` and `__getitem__` by record key) are the model; here a
source reads many examples at a time, says which file each is from, and has a fingerprint for each
of its files, so that a run notices data that changed between two attempts.
"""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.core import console
from runner.errors import ConfigError, RunnerError


class Identity(NamedTuple):
    """Which example it is.

    Attributes:
        source: The source's name.
        index: Its number in the source, from 0.
        path: The file that holds it; empty if there is none.
        place: Its number in that file, from 0.
    """

    source: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    path: str
    place: int

    def __str__(self) -> str:
        if self.path:
            return f"{self.path}, example {self.place:,} (index {self.index:,})"
        return f"{self.source}, example {self.index:,}"


class Shard(NamedTuple):
    """A part of a source.

    Attributes:
        path: Its file.
        examples: How many examples it holds.
        fingerprint: Changes if its content does.
    """

    path: str
    examples: int
    fingerprint: str


class DamagedExampleError(RunnerError):
    """An example that cannot be read.

    Args:
        message: What is wrong, with the file.
        index: The example.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Source(abc.ABC):
    """Examples by index.

    Attributes:
        name: For messages and identities.
        shards: Its parts, in the order of its examples.
        block: How many neighbouring examples are read together; 1 if reading any one is as cheap.
        faults: The examples that were left out because they are damaged, and why.
        max_faults: How many of them may be.
    """

    block = 1

    def __init__(self, name: str, shards: Sequence[Shard]) -> None:
        self.name = name
        self.shards = tuple(shards)
        counts = [shard.examples for shard in self.shards]
        self._ends = np.cumsum(np.asarray(counts, np.int64))
        self.faults: dict[int, str] = {}
        self.max_faults = 0
        self.failure: DamagedExampleError | None = None
        if not len(self):
            raise ConfigError(f"{name}: there are no examples")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """The structure of an example, as `tf.TensorSpec`s without the dimension of the batch."""

    @abc.abstractmethod
    def read(self, indices: np.ndarray) -> Any:
        """The examples at these indices, [n] int64, as arrays [n, ...] in the structure of `spec`.

        Raises:
            DamagedExampleError: one of them is damaged.
        """

    def identity(self, index: int) -> Identity:
        """Which example an index is."""
        number = int(np.searchsorted(self._ends, index, "right"))
        shard = self.shards[number]
        place = index - int(self._ends[number]) + shard.examples
        return Identity(self.name, index, shard.path, place)

    def places(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each example, and its place there; both [n] int64."""
        numbers = np.searchsorted(self._ends, indices, "right")
        counts = np.diff(self._ends, prepend=0)
        return numbers, indices - self._ends[numbers] + counts[numbers]

    def load(self, indices: tf.Tensor) -> Any:
        """`read` as an op: [batch] int64 -> a structure of [batch, ...] tensors."""
        specs = tf.nest.flatten(self.spec)

        def numbers(wanted: np.ndarray) -> list[np.ndarray]:
            return list(tf.nest.flatten(self._good(np.asarray(wanted, np.int64))))

        kinds = [spec.dtype for spec in specs]
        flat = tf.numpy_function(numbers, [indices], kinds, stateful=False)
        for tensor, spec in zip(flat, specs, strict=True):
            tensor.set_shape([indices.shape[0], *spec.shape])
        return tf.nest.pack_sequence_as(self.spec, flat)

    def _good(self, indices: np.ndarray) -> Any:
        """`read`, with the next sound example in place of each damaged one, if they may be."""
        wanted = indices.copy()
        while True:
            for number in range(len(wanted)):
                while wanted[number] in self.faults:
                    wanted[number] = (wanted[number] + 1) % len(self)
            try:
                return self.read(wanted)
            except DamagedExampleError as fault:
                if len(self.faults) >= self.max_faults:
                    self.failure = fault
                    raise
                self.faults[fault.index] = str(fault)
                console.say(f"{fault}: left out ({len(self.faults)} of up to {self.max_faults})")
