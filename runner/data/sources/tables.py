"""The rows of Parquet and CSV files, as columns."""

import collections
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from pyarrow import csv

from runner.data.sources import files
from runner.data.sources.source import DamagedExampleError, Shard, Source
from runner.errors import ConfigError

_KEPT = 40  # groups of rows in memory: more than the two windows of blocks that a batch may touch
_CSV_BYTES = 1 << 24  # of a CSV file from which types are inferred at once
_PARSING = csv.ParseOptions(newlines_in_values=True)
_CSV_ROWS = 4096  # approximate number of rows of a CSV file that are parsed together
_TEXT = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)


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
        if twice := [each for each, n in collections.Counter(schema.names).items() if n > 1]:
            raise ConfigError(f"{name}: several columns are called {twice[0]!r}")
        if missing := set(columns) - set(schema.names):
            raise ConfigError(f"{name}: there is no column {min(missing)!r}: {schema.names}")
        self._columns = list(columns or schema.names)
        self._spec = {column: _spec(schema.field(column), name) for column in self._columns}
        self._ends_of_groups = [np.cumsum(counts) for counts in groups]
        self._cache: collections.OrderedDict[tuple[int, int], dict[str, _Column]]
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
                if row in rows[name].missing:
                    raise DamagedExampleError(
                        f"{self.shards[shard].path}, row {place:,}: a value of {name!r} is missing",
                        int(indices[number]),
                    )
                parts[name][number] = rows[name].values[row]
        return {name: _stacked(values, self._spec[name]) for name, values in parts.items()}

    def _group(self, shard: int, group: int, index: int) -> "dict[str, _Column]":
        with self._lock:
            if (shard, group) in self._cache:
                self._cache.move_to_end((shard, group))
                return self._cache[shard, group]
        try:
            table = self._read_group(shard, group)
            rows = {name: _Column.of(table.column(name)) for name in self._columns}
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
            _check_plain(path)
            starts, counts = _line_groups(path)
            self._starts.append(starts)
            groups.append(counts)
            schemas.append(_csv_schema(path, starts))
        if [each.names for each in schemas] == [schemas[0].names] * len(schemas):
            schemas = [_promoted(schemas)] * len(schemas)  # 1 in one file may be 1.5 in another
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
            parse_options=_PARSING,
            convert_options=csv.ConvertOptions(
                column_types=self._schema, include_columns=self._columns
            ),
        )


def _csv_schema(path: Path, starts: Sequence[int]) -> pa.Schema:
    """Returns the types that hold all values of a file, whose groups of lines have these starts."""
    try:
        options = csv.ReadOptions(block_size=_CSV_BYTES)
        with csv.open_csv(path, read_options=options, parse_options=_PARSING) as reader:
            found = reader.schema
        begin = next((each for each in starts if each > _CSV_BYTES // 2), starts[-1])
        with path.open("rb") as file:
            while begin < starts[-1]:
                end = next((each for each in starts if each > begin + _CSV_BYTES), starts[-1])
                file.seek(begin)
                part = csv.read_csv(
                    pa.BufferReader(file.read(end - begin)),
                    read_options=csv.ReadOptions(column_names=found.names),
                    parse_options=_PARSING,
                )
                found = pa.schema([_wider(*each) for each in zip(found, part.schema, strict=True)])
                begin = end
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error
    return found


def _wider(one: pa.Field, other: pa.Field) -> pa.Field:
    """Returns a field that holds the values of both. Any value is text."""
    try:
        return pa.unify_schemas(
            [pa.schema([one]), pa.schema([other])], promote_options="permissive"
        ).field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.field(one.name, pa.string())


def _line_groups(path: Path) -> tuple[list[int], list[int]]:
    """Returns the starts of groups of lines, with the end of the last, and the line counts."""
    at, count, starts, counts, quoted = 0, 0, [], [], False
    with path.open("rb") as file:
        at += len(file.readline())
        starts.append(at)
        for line in file:
            at += len(line)
            if quoted or b'"' in line:
                quoted = _ends_quoted(line, quoted=quoted)
            count += not quoted and bool(line.strip(b"\r\n"))
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


def _ends_quoted(line: bytes, *, quoted: bool) -> bool:
    """Returns whether a quoted value goes on after a line. A quote inside a value is plain."""
    at = 0
    while True:
        if not quoted:
            quoted = line[at : at + 1] == b'"'
            at += quoted
        while quoted:
            if (end := line.find(b'"', at)) < 0:
                return True
            quoted = line[end + 1 : end + 2] == b'"'  # two quotes stand for one
            at = end + (2 if quoted else 1)
        if (at := line.find(b",", at) + 1) == 0:
            return False


def _check_plain(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise ConfigError(
                f"{path} is compressed (GZIP), so its rows cannot be read by index; decompress it"
            )


def _promoted(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Returns the schema with types that hold the values of all files, or the first one."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return schemas[0]


def _check_schemas(schemas: Sequence[pa.Schema], paths: Sequence[Path]) -> None:
    for schema, path in zip(schemas, paths, strict=True):
        if not schema.equals(schemas[0]):
            raise ConfigError(f"{path} has different columns than {paths[0]}")


def _spec(field: pa.Field, name: str) -> tf.TensorSpec:
    """Returns the tensor spec of a column."""
    kind = field.type
    if pa.types.is_dictionary(kind):  # such as a category of pandas
        kind = kind.value_type
    if any(is_text(kind) for is_text in _TEXT):
        return tf.TensorSpec([], tf.string)
    is_fixed = pa.types.is_fixed_size_list(kind)
    if is_fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        if pa.types.is_integer(inner) or pa.types.is_floating(inner):
            shape = [kind.list_size] if is_fixed else [None]
            return tf.TensorSpec(shape, tf.as_dtype(inner.to_pandas_dtype()))
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


class _Column(NamedTuple):
    """A column of a group of rows.

    Attributes:
        values: An array [rows, ...], or an object for each row.
        missing: The rows without a value, or with a list that lacks one.
    """

    values: np.ndarray
    missing: frozenset[int]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Self:
        """Converts a column of Arrow. What is missing has any value."""
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # it has no chunk
            array = pa.array([], array.type)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind, missing = array.type, _missing(array)
        if pa.types.is_fixed_size_list(kind):
            inner = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
            return cls(_filled(inner).reshape(len(array), kind.list_size), missing)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            if not missing:
                return cls(array.to_numpy(zero_copy_only=False), missing)
            values = np.empty(len(array), object)
            for number, row in enumerate(array):
                values[number] = None if number in missing else _filled(row.values)
            return cls(values, missing)
        if any(is_text(kind) for is_text in _TEXT):
            array = array.cast(pa.large_binary())
        return cls(_filled(array), missing)


def _missing(array: pa.Array) -> frozenset[int]:
    rows = set(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist())
    if pa.types.is_nested(array.type) and array.flatten().null_count:
        rows |= {
            number for number, row in enumerate(array) if row.is_valid and row.values.null_count
        }
    return frozenset(rows)


def _filled(array: pa.Array) -> np.ndarray:
    """Returns an array with zeros for missing numbers."""
    kind = array.type
    if array.null_count and not pa.types.is_large_binary(kind):
        array = array.fill_null(False if pa.types.is_boolean(kind) else 0)
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values
