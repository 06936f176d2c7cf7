"""The records of TFRecord files, as serialized strings."""

import collections
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from runner.core import checksum
from runner.data.sources import record_index
from runner.data.sources.source import DamagedExampleError, Shard, Source
from runner.errors import ConfigError

_OPEN = 256  # a source with more files closes them after each read


class TFRecords(Source):
    """Records of several files, one file after the other."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        names = collections.Counter(path.resolve() for path in paths)
        if double := [path for path, count in names.items() if count > 1]:
            raise ConfigError(f"{name}: {double[0]} is listed twice")
        self._paths = [Path(path) for path in paths]
        self._indexes = [record_index.of(path) for path in self._paths]
        self._open: dict[int, int] = {}
        weakref.finalize(self, _close, self._open)
        super().__init__(
            name,
            [
                Shard(str(path), len(index.offsets) - 1, index.fingerprint)
                for path, index in zip(self._paths, self._indexes, strict=True)
            ],
        )

    @property
    def spec(self) -> Any:
        """A string."""
        return tf.TensorSpec([], tf.string)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Returns the records, [n] objects."""
        records = np.empty(len(indices), object)
        shards, places = self.places(indices)
        with _Files(self._paths, self._open) as files:
            for number, (shard, place) in enumerate(
                zip(shards.tolist(), places.tolist(), strict=True)
            ):
                offsets = self._indexes[shard].offsets
                begin, end = int(offsets[place]), int(offsets[place + 1])
                data = os.pread(files.number(shard), end - begin, begin)
                record, footer = data[record_index.HEADER : -record_index.FOOTER], data[-4:]
                if len(data) < end - begin:
                    wrong = "the file has become shorter"
                elif checksum.masked(record) != int.from_bytes(footer, "little"):
                    wrong = "its checksum is wrong"
                else:
                    records[number] = record
                    continue
                where = f"{self._paths[shard]}: record {place:,}, at byte {begin:,}, is damaged"
                raise DamagedExampleError(f"{where}: {wrong}", int(indices[number]))
        return records


class _Files:
    """The open files of a read. The read closes them if there are more than `_OPEN`."""

    def __init__(self, paths: Sequence[Path], kept: dict[int, int]) -> None:
        self._paths, self._kept = paths, kept
        self._own: dict[int, int] = {}

    def number(self, shard: int) -> int:
        """Returns the descriptor of a shard's file."""
        keeps = len(self._paths) <= _OPEN
        descriptors = self._kept if keeps else self._own
        if shard not in descriptors:
            descriptor = os.open(self._paths[shard], os.O_RDONLY)
            if descriptors.setdefault(shard, descriptor) != descriptor:  # opened by another thread
                os.close(descriptor)
        return descriptors[shard]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._own.values():
            os.close(descriptor)


def _close(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)
