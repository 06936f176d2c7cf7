"""The interface of sources, whose examples can be read in any order without loading others.

The model is Grain's random-access data sources (`__len__` and `__getitem__` by record key). Unlike
them, a source here reads many examples at a time and reports the file of each. It also has a
fingerprint for each of its files, so that a run detects data that changed between two attempts.
"""

import abc
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.core import console, text
from runner.errors import ConfigError, RunnerError

_SHOWN = 8  # examples in the text of a packed row


class Identity(NamedTuple):
    """Identifies an example.

    Attributes:
        source: The source's name.
        index: Its number in the source, from 0.
        path: The file that holds it, or "" if there is none.
        place: Its number in that file, from 0.
        mixed_as: The name of its source in a mixture, or "".
        packed: For a row of packed examples, the numbers of all of them in that file.
    """

    source: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    path: str
    place: int
    mixed_as: str = ""
    packed: Sequence[int] = ()

    def __str__(self) -> str:
        mixed = f"{self.mixed_as}: " if self.mixed_as else ""
        if self.packed:
            examples = text.some([f"{place:,}" for place in self.packed], _SHOWN)
            where = self.path or self.source
            return f"{mixed}{where}, row {self.index:,} of packed examples ({examples})"
        if self.path:
            return f"{mixed}{self.path}, example {self.place:,} (index {self.index:,})"
        return f"{mixed}{self.source}, example {self.index:,}"


class Shard(NamedTuple):
    """A part of a source.

    Attributes:
        path: Its file.
        examples: The number of examples in it.
        fingerprint: Changes if its content does.
    """

    path: str
    examples: int
    fingerprint: str


class DamagedExampleError(RunnerError):
    """An example that cannot be read.

    Args:
        message: A description of the error, with the file.
        index: The example.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def first_damaged(
    read: Callable[[int], object],
    places: Sequence[int],
    damage: type[Exception] | tuple[type[Exception], ...],
) -> int:
    """Returns which of the examples at some places raises `damage`, or 0 if none does alone."""
    for number, place in enumerate(places):
        try:
            read(place)
        except damage:
            return number
    return 0


class Source(abc.ABC):
    """Examples by index.

    Attributes:
        name: The name in messages and identities.
        shards: Its parts, in the order of its examples.
        block: How many neighbouring examples are read together, or 1 if single reads are as cheap.
        settings: Other values that its examples depend on, in addition to the content of its files.
        faults: The examples that were left out because they are damaged, and why.
        max_faults: How many of them may be left out.
    """

    block = 1
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, name: str, shards: Sequence[Shard]) -> None:
        self.name = name
        self.shards = tuple(shards)
        counts = [shard.examples for shard in self.shards]
        self._ends = np.cumsum(np.asarray(counts, np.int64))
        self.faults: dict[int, str] = {}
        self._faulting = threading.Lock()
        self.max_faults = 0
        self.failure: DamagedExampleError | None = None
        if not len(self):
            raise ConfigError(f"{name}: there are no examples")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """The structure of an example, as `tf.TensorSpec`s without the batch dimension."""

    @abc.abstractmethod
    def read(self, indices: np.ndarray) -> Any:
        """Returns the examples at these indices, [n] int64, as arrays [n, ...] like `spec`.

        Raises:
            DamagedExampleError: if one of them is damaged.
        """

    def identity(self, index: int) -> Identity:
        """Returns the identity of the example at an index."""
        number = int(np.searchsorted(self._ends, index, "right"))
        shard = self.shards[number]
        place = index - int(self._ends[number]) + shard.examples
        return Identity(self.name, index, shard.path, place)

    def parts(self) -> "Sequence[Part]":
        """Returns what a run compares when it resumes: the sources of a mixture, or this source."""
        return [Part("", self, self.settings)]

    def following(self, index: int) -> int:
        """Returns the example that replaces a damaged one."""
        return (index + 1) % len(self)

    def places(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the shard of each example and its place there, both [n] int64."""
        numbers = np.searchsorted(self._ends, indices, "right")
        counts = np.diff(self._ends, prepend=0)
        return numbers, indices - self._ends[numbers] + counts[numbers]

    def load(self, indices: tf.Tensor) -> Any:
        """Calls `read` as an op: [batch] int64 -> a structure of [batch, ...] tensors.

        Raises:
            ConfigError: if an array of an example has another length in each example.
        """
        specs = tf.nest.flatten(self.spec)
        if not all(spec.shape.is_fully_defined() for spec in specs):
            raise ConfigError(
                f"{self.name}: its examples are sequences of different lengths; pack them "
                "with inputs.packed, or pass columns= without them"
            )

        def numbers(wanted: np.ndarray) -> list[np.ndarray]:
            return list(tf.nest.flatten(self._good(np.asarray(wanted, np.int64))))

        kinds = [spec.dtype for spec in specs]
        flat = tf.numpy_function(numbers, [indices], kinds, stateful=False)
        for tensor, spec in zip(flat, specs, strict=True):
            tensor.set_shape([indices.shape[0], *spec.shape])
        return tf.nest.pack_sequence_as(self.spec, flat)

    def _good(self, indices: np.ndarray) -> Any:
        """Calls `read`, replacing each damaged example by the next sound one within the limit."""
        wanted = indices.copy()
        while True:
            for number, first in enumerate(wanted.tolist()):
                while wanted[number] in self.faults:
                    wanted[number] = self.following(int(wanted[number]))
                    if wanted[number] == first:
                        said = f"{self.name}: every example is damaged"
                        self.failure = DamagedExampleError(said, first)
                        raise self.failure
            try:
                return self.read(wanted)
            except DamagedExampleError as fault:
                with self._faulting:
                    if fault.index in self.faults:  # another thread has read it, too
                        continue
                    if len(self.faults) >= self.max_faults:
                        self.failure = fault
                        raise
                    self.faults[fault.index] = str(fault)
                    count = f"{len(self.faults)} of up to {self.max_faults}"
                    console.say(f"{fault}: skipped ({count})")


class Part(NamedTuple):
    """A source in a mixture, or a source that is not mixed.

    Attributes:
        mixed_as: Its name in the mixture, or "".
        source: The source.
        settings: Other values that the examples depend on, such as the weight in the mixture.
    """

    mixed_as: str
    source: Source
    settings: Mapping[str, Any]
