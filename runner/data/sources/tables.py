"""The rows of Parquet and CSV files, as columns."""

import collections
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from pyarrow import csv

from runner.data.sources import files
from runner.data.sources.source import DamagedExampleError, Shard, Source
from runner.errors import ConfigError

_KEPT = 40  # groups of rows in memory: more than the two windows of blocks that a batch may touch
_CSV_ROWS = 4096  # approximate number of rows of a CSV file that are parsed together


class _Table(Source):
    """Rows in groups. Each group is read as a whole.

    Args:
        name: The name in messages.
        shards: The files.
        schema: The schema of all files.
        columns: The columns to read, or empty for all.
        groups: For each file, how many rows each of its groups has.
    """

    def __init__(
        self,
        name: str,
        shards: Sequence[Shard],
        schema: pa.Schema,
        columns: Sequence[str],
        groups: Sequence[Sequence[int]],
    ) -> None:
        if missing := set(columns) - set(schema.names):
            raise ConfigError(f"{name}: there is no column {min(missing)!r}: {schema.names}")
        self._columns = list(columns or schema.names)
        self._spec = {column: _spec(schema.field(column), name) for column in self._columns}
        self._ends_of_groups = [np.cumsum(counts) for counts in groups]
        self._cache: collections.OrderedDict[tuple[int, int], dict[str, np.ndarray]]
        self._cache, self._lock = collections.OrderedDict(), threading.Lock()
        counts = [count for shard in groups for count in shard]
        self.block = max(1, int(np.median(counts))) if counts else 1
        super().__init__(name, shards)

    @property
    def spec(self) -> Any:
        """Each column by its name."""
        return self._spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows' columns, [n, ...] each."""
        shards, places = self.places(indices)
        parts: dict[str, Any] = {name: [None] * len(indices) for name in self._columns}
        for number, (shard, place) in enumerate(zip(shards.tolist(), places.tolist(), strict=True)):
            ends = self._ends_of_groups[shard]
            group = int(np.searchsorted(ends, place, "right"))
            rows = self._group(shard, group, int(indices[number]))
            row = place - (int(ends[group - 1]) if group else 0)
            for name in self._columns:
                parts[name][number] = rows[name][row]
        return {name: _stacked(values, self._spec[name]) for name, values in parts.items()}

    def _group(self, shard: int, group: int, index: int) -> dict[str, np.ndarray]:
        with self._lock:
            if (shard, group) in self._cache:
                self._cache.move_to_end((shard, group))
                return self._cache[shard, group]
        try:
            table = self._read_group(shard, group)
            rows = {name: _array(table.column(name)) for name in self._columns}
        except (OSError, pa.ArrowException, ValueError) as error:
            said = str(error).splitlines()[0]
            raise DamagedExampleError(
                f"{self.shards[shard].path}, group {group}: {said}", index
            ) from error
        with self._lock:
            self._cache[shard, group] = rows
            while len(self._cache) > _KEPT:
                self._cache.popitem(last=False)
        return rows

    def _read_group(self, shard: int, group: int) -> pa.Table:
        raise NotImplementedError


class Parquet(_Table):
    """Rows of Parquet files, read one group of rows at a time."""

    def __init__(self, paths: Sequence[Path], name: str, *, columns: Sequence[str] = ()) -> None:
        self._files = [self._opened(path) for path in paths]
        _check_schemas([file.schema_arrow for file in self._files], paths)
        groups = [
            [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            for file in self._files
        ]
        shards = [
            Shard(str(path), sum(counts), files.fingerprint(path))
            for path, counts in zip(paths, groups, strict=True)
        ]
        self._local = threading.Lock()
        super().__init__(name, shards, self._files[0].schema_arrow, columns, groups)

    @staticmethod
    def _opened(path: Path) -> pq.ParquetFile:
        files.check(path)
        try:
            return pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error

    def _read_group(self, shard: int, group: int) -> pa.Table:
        with self._local:  # a file is read by one thread at a time
            return self._files[shard].read_row_group(
                group, columns=self._columns, use_threads=False
            )


class Csv(_Table):
    """Rows of CSV files with a header line, parsed a few thousand lines at a time.

    Opening a source counts its lines and infers the types from all of them, once per process.
    """

    def __init__(self, paths: Sequence[Path], name: str, *, columns: Sequence[str] = ()) -> None:
        self._paths, self._starts, groups = list(paths), [], []
        schemas = []
        for path in paths:
            files.check(path)
            starts, counts = _line_groups(path)
            self._starts.append(starts)
            groups.append(counts)
            schemas.append(_csv_schema(path))
        _check_schemas(schemas, paths)
        self._schema = schemas[0]
        shards = [
            Shard(str(path), sum(counts), files.fingerprint(path))
            for path, counts in zip(paths, groups, strict=True)
        ]
        super().__init__(name, shards, self._schema, columns, groups)

    def _read_group(self, shard: int, group: int) -> pa.Table:
        begin, end = self._starts[shard][group : group + 2]
        with self._paths[shard].open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(column_names=self._schema.names, use_threads=False),
            convert_options=csv.ConvertOptions(
                column_types=self._schema, include_columns=self._columns
            ),
        )


def _csv_schema(path: Path) -> pa.Schema:
    try:
        with csv.open_csv(path, read_options=csv.ReadOptions(block_size=1 << 24)) as reader:
            return reader.schema
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error


def _line_groups(path: Path) -> tuple[list[int], list[int]]:
    """Returns the starts of groups of lines, with the end of the last, and the line counts."""
    at, count, starts, counts, quoted = 0, 0, [], [], False
    with path.open("rb") as file:
        at += len(file.readline())
        starts.append(at)
        for line in file:
            at += len(line)
            quoted ^= line.count(b'"') % 2 == 1  # a quoted value may hold line breaks
            count += not quoted and bool(line.strip())
            if count == _CSV_ROWS and not quoted:
                starts.append(at)
                counts.append(count)
                count = 0
    if quoted:
        raise ConfigError(f"{path}: a quoted value does not end")
    if count:
        starts.append(at)
        counts.append(count)
    return starts, counts


def _check_schemas(schemas: Sequence[pa.Schema], paths: Sequence[Path]) -> None:
    for schema, path in zip(schemas, paths, strict=True):
        if not schema.equals(schemas[0]):
            raise ConfigError(f"{path} has different columns than {paths[0]}")


def _spec(field: pa.Field, name: str) -> tf.TensorSpec:
    """Returns the tensor spec of a column."""
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return tf.TensorSpec([], tf.string)
    if pa.types.is_fixed_size_list(kind):
        return tf.TensorSpec([kind.list_size], tf.as_dtype(kind.value_type.to_pandas_dtype()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        if pa.types.is_integer(inner) or pa.types.is_floating(inner):
            return tf.TensorSpec([None], tf.as_dtype(inner.to_pandas_dtype()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return tf.TensorSpec([], tf.as_dtype(kind.to_pandas_dtype()))
    raise ConfigError(
        f"{name}: the column {field.name!r} is of the type {kind}: pass columns= without it"
    )


def _stacked(values: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    """Returns the rows of a column as an array, of objects if they differ in length."""
    if spec.shape.is_fully_defined():
        return np.array(values, spec.dtype.as_numpy_dtype)
    rows = np.empty(len(values), object)
    for number, value in enumerate(values):  # NumPy would stack values of equal length
        rows[number] = value
    return rows


def _array(column: pa.ChunkedArray) -> np.ndarray:
    if column.null_count:
        raise ValueError("a value is missing")
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # it has no chunk
        array = pa.array([], array.type)
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return np.asarray(array.flatten()).reshape(len(array), kind.list_size)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and array.flatten().null_count:
        raise ValueError("a value in a list is missing")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array = array.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return array.to_numpy(zero_copy_only=False)
