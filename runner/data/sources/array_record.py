"""The records of ArrayRecord files, as serialized strings."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner.data.sources import files
from runner.data.sources.source import DamagedExampleError, Shard, Source, first_damaged
from runner.errors import ConfigError

_DAMAGE = (RuntimeError, ValueError, IndexError)


class ArrayRecords(Source):
    """Records of several files, one file after the other. An ArrayRecord file has its own index."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self._paths = list(paths)
        readers = [self._opened(path) for path in paths]
        self._readers = readers
        super().__init__(
            name,
            [
                Shard(str(path), reader.num_records(), files.fingerprint(path))
                for path, reader in zip(paths, readers, strict=True)
            ],
        )

    @staticmethod
    def _opened(path: Path) -> Any:
        try:
            from array_record.python import array_record_module
        except ImportError as error:
            raise ConfigError(f"{path}: to read it, pip install array-record") from error
        files.check(path)
        try:
            reader = array_record_module.ArrayRecordReader(str(path), "readahead_buffer_size:0")
            records = reader.num_records()
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error
        if not records:
            raise ConfigError(f"{path} has no examples, or is not an ArrayRecord file")
        return reader

    @property
    def spec(self) -> Any:
        """A string."""
        return tf.TensorSpec([], tf.string)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Returns the records, [n] objects."""
        records = np.empty(len(indices), object)
        shards, places = self.places(indices)
        for shard in np.unique(shards):
            numbers = np.flatnonzero(shards == shard)
            wanted, reader = places[numbers].tolist(), self._readers[shard]
            try:
                records[numbers] = reader.read(wanted)
            except _DAMAGE as error:
                bad = first_damaged(functools.partial(_record, reader), wanted, _DAMAGE)
                said = f"{self._paths[shard]}, record {wanted[bad]:,}: {str(error).splitlines()[0]}"
                raise DamagedExampleError(said, int(indices[numbers[bad]])) from error
        return records


def _record(reader: Any, place: int) -> Any:
    return reader.read([place])
