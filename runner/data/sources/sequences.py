"""The sequences of numbers in a source: features of `tf.Example` records, or columns of lists."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from runner.core import spelling
from runner.data.sources.source import DamagedExampleError, Source
from runner.errors import ConfigError

_KINDS = {"int64_list": tf.int64, "float_list": tf.float32}
_READ = 1024  # examples at a time


class Sequences:
    """Reads some features of a source's examples, each a sequence of any length.

    Args:
        source: The source.
        names: The features.

    Attributes:
        source: The source.
        types: The type of each feature's numbers, in the order of `names`.

    Raises:
        ConfigError: if the source has no such features, or they are not numbers.
    """

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self.source = source
        self._names = names
        self._found: dict[str, tf.DType] = {}
        self._first: list[str] = []  # the features of the first example
        self._are_records = getattr(source.spec, "dtype", None) == tf.string
        if self._are_records:
            self._find_types()
        else:
            self._found = _types_of_columns(source, names)
        self.types = [self._found[name] for name in names]

    def read(self, indices: np.ndarray) -> list[Sequence[Any]]:
        """Returns for each example the sequences of its features, in the order of `names`.

        Raises:
            DamagedExampleError: if an example is damaged.
            ConfigError: if a record is not a tf.Example, or a feature has another type.
        """
        found = self.source.read(indices)
        if self._are_records:
            return [self._parsed(*each) for each in zip(indices.tolist(), found, strict=True)]
        return list(zip(*(found[name] for name in self._names), strict=True))

    def sound(self, first: int, end: int) -> Iterator[tuple[np.ndarray, list[Sequence[Any]]]]:
        """Yields the indices and the sequences of examples, some at a time, without damaged ones.

        Args:
            first: The index of the first example.
            end: The index after the last one.
        """
        for start in range(first, end, _READ):
            indices = np.arange(start, min(start + _READ, end))
            while len(indices):
                try:
                    yield indices, self.read(indices)
                except DamagedExampleError as fault:
                    indices = indices[indices != fault.index]
                else:
                    break

    def _parsed(self, index: int, record: bytes) -> Sequence[Any]:
        """Returns the features of a record, and notes their types."""
        try:
            features = tf.train.Example.FromString(record).features.feature
        except DecodeError as error:
            raise ConfigError(f"{self.source.identity(index)}: it is not a tf.Example") from error
        self._first = self._first or sorted(features)
        return [self._values(features[n], n, index) if n in features else () for n in self._names]

    def _values(self, feature: Any, name: str, index: int) -> Sequence[Any]:
        kind = feature.WhichOneof("kind")
        values: Sequence[Any] = getattr(feature, kind).value if kind else ()
        if len(values):
            dtype = _KINDS.get(kind)
            if dtype is None or self._found.setdefault(name, dtype) != dtype:
                wanted = self._found[name].name if name in self._found else "numbers"
                raise ConfigError(
                    f"{self.source.identity(index)}: the feature {name!r} is a {kind}; expected "
                    f"{wanted}"
                )
        return values

    def _find_types(self) -> None:
        """Reads examples until the type of each feature is known."""
        for _ in self.sound(0, len(self.source)):
            if len(self._found) == len(self._names):
                break
        for name in self._names:
            if name not in self._found:
                raise ConfigError(
                    f"{self.source.name}: no example has values in the feature {name!r}"
                    f"{_suggested(name, self._first)}"
                )


def _types_of_columns(source: Source, names: Sequence[str]) -> dict[str, tf.DType]:
    """Returns the types of columns, each with a sequence in every row."""
    spec = source.spec
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"inputs.packed: {source.name} has no named sequences; pack tf.Example records or "
            "columns of lists"
        )
    for name in names:
        if name not in spec:
            raise ConfigError(
                f"{source.name}: there is no column {name!r}{_suggested(name, list(spec))}"
            )
        if spec[name].dtype == tf.string or spec[name].shape.rank != 1:
            raise ConfigError(
                f"{source.name}: the column {name!r} is not a sequence of numbers in each row"
            )
    return {name: spec[name].dtype for name in names}


def _suggested(name: str, known: Sequence[str]) -> str:
    return spelling.did_you_mean(name, known) or f"; there are {', '.join(known) or 'none'}"
