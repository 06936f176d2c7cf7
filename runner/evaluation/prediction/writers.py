"""The formats of predictions: each joins the parts of a file, one at a time.

Parts use Arrow's own format, and are read from disk as needed. The output depends only on the rows,
not on how they were split into parts.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

from runner.core import spelling
from runner.errors import ConfigError

_GROUP_ROWS = 2**16  # the limits of Parquet's row groups, in rows and in bytes
_GROUP_BYTES = 2**26
_TEXT_BYTES = 2**22  # of rows converted to text at a time
_MOST_COLUMNS = 10_000  # of a CSV file

_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Writer(Protocol):
    """A format."""

    def write(self, parts: Sequence[Path], file: BinaryIO) -> None:
        """Writes the rows of all parts to `file`.

        Raises:
            ConfigError: the format cannot hold them.
        """


def of(path: Path) -> Writer:
    """Returns the writer for a file of this name.

    Raises:
        ConfigError: there is no such format.
    """
    if writer := FORMATS.get(path.suffix):
        return writer
    meant = spelling.did_you_mean(path.suffix, FORMATS)
    raise ConfigError(
        f"--output={path}: the format is chosen by the name's end, {', '.join(FORMATS)}{meant}"
    )


class JsonLines:
    """A JSON object on each line. NaN and infinities, which JSON does not have, are null."""

    def write(self, parts: Sequence[Path], file: BinaryIO) -> None:
        """Writes floats with the fewest digits that identify them in their precision."""
        for table in _tables(parts):
            size = max(1, _TEXT_BYTES * len(table) // max(1, table.nbytes))
            for batch in table.to_batches(size):
                lines = compute.binary_join_element_wise(json_rows(batch), "\n", "")
                whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
                file.write(compute.binary_join(whole, "")[0].as_buffer())


class Npz:
    """An array for each field, with examples along its first axis."""

    def write(self, parts: Sequence[Path], file: BinaryIO) -> None:
        """Writes one array after the other. A field `b` within `a` is called `a/b`."""
        with zipfile.ZipFile(file, "w") as archive:
            for name in [name for name, _ in _flat(next(_tables(parts)))]:
                kind = _kind(name, parts)
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    header = {
                        "descr": np.lib.format.dtype_to_descr(kind.dtype),
                        "fortran_order": False,
                        "shape": (kind.rows, *kind.shape),
                    }
                    np.lib.format.write_array_header_2_0(member, header)
                    for array in _arrays(name, parts):
                        member.write(np.ascontiguousarray(array, kind.dtype).tobytes())


class Parquet:
    """Apache Parquet. Arrays become lists, and nested fields a struct."""

    def write(self, parts: Sequence[Path], file: BinaryIO) -> None:
        """Writes row groups of about 64 MB and at most 65,536 rows."""
        first = next(_tables(parts))
        size = max(1, min(_GROUP_ROWS, _GROUP_BYTES // max(1, first.slice(0, 1).nbytes)))
        with parquet.ParquetWriter(file, first.schema) as writer:
            waiting = first.slice(0, 0)
            for table in _tables(parts):
                waiting = pa.concat_tables([waiting, table])
                while len(waiting) >= size:
                    writer.write_table(waiting.slice(0, size).combine_chunks(), size)
                    waiting = waiting.slice(size)
            if len(waiting):
                writer.write_table(waiting.combine_chunks(), size)


class Csv:
    """Comma-separated values, with a line of names. Each number of an array has its own column."""

    def write(self, parts: Sequence[Path], file: BinaryIO) -> None:
        """Writes the columns `a/0`, `a/1` and so on for an array `a`."""
        first = _wide(next(_tables(parts))).schema
        with csv.CSVWriter(file, first) as writer:
            for table in _tables(parts):
                wide = _wide(table)
                if wide.schema.names != first.names:
                    changed = set(wide.schema.names) ^ set(first.names)
                    raise _ragged(min(changed).partition("/")[0], "CSV")
                writer.write_table(wide)


FORMATS: Mapping[str, Writer] = {
    ".jsonl": JsonLines(),
    ".csv": Csv(),
    ".npz": Npz(),
    ".parquet": Parquet(),
}


class _Kind(NamedTuple):
    """The header of an array."""

    dtype: np.dtype
    rows: int
    shape: tuple[int, ...]


def json_rows(rows: pa.RecordBatch) -> pa.StringArray:
    """Returns each row as JSON."""
    return _json(rows.to_struct_array())


def write_part(table: pa.Table, file: BinaryIO) -> None:
    """Writes rows as a part."""
    table = table.combine_chunks()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _tables(parts: Sequence[Path]) -> Iterator[pa.Table]:
    """Yields the parts with a common schema. A field may be integer in some and float in others."""
    schemas = []
    for part in parts:
        with pa.memory_map(str(part)) as source:
            schemas.append(pa.ipc.open_file(source).schema)
    try:
        schema = pa.unify_schemas(list(dict.fromkeys(schemas)), promote_options="permissive")
    except pa.ArrowException as error:
        raise ConfigError(f"the predictions' fields change from row to row: {error}") from error
    for part in parts:
        with pa.memory_map(str(part)) as source:
            yield pa.ipc.open_file(source).read_all().select(schema.names).cast(schema)


def _json(array: pa.Array) -> pa.StringArray:
    """Returns each value as JSON, by columns, which is several times as fast as by rows."""
    if pa.types.is_struct(array.type):
        names = [f"{_quoted(field.name)}: " for field in array.type]
        fields = [_json(array.field(number)) for number in range(len(names))]
        named = [_joined(*pair) for pair in zip(names, fields, strict=True)]
        text = _joined("{", compute.binary_join_element_wise(*named, ", "), "}")
    elif pa.types.is_list(array.type):
        starts = compute.subtract(array.offsets, array.offsets[0])
        lists = pa.ListArray.from_arrays(starts, _json(array.flatten()))
        text = _joined("[", compute.binary_join(lists, ", "), "]")
    elif pa.types.is_floating(array.type):
        text = compute.cast(array, pa.string())
        text = compute.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0")
        text = compute.if_else(compute.is_finite(array), text, "null")
    elif pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        text = compute.cast(array, pa.string())
    else:
        text = pa.array(map(_quoted, compute.cast(array, pa.string()).to_pylist()), pa.string())
    return compute.if_else(array.is_valid(), text, "null")


def _joined(*texts: pa.StringArray | str) -> pa.StringArray:
    return compute.binary_join_element_wise(*texts, "")


def _flat(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yields the columns. Nested columns have the outer name as a prefix."""

    def flat(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
        if pa.types.is_struct(array.type):
            for field in array.type:
                yield from flat(f"{name}/{field.name}", array.field(field.name))
        else:
            yield name, array

    for name in table.column_names:
        yield from flat(name, table[name].combine_chunks())


def _wide(table: pa.Table) -> pa.Table:
    """Returns a table with a column for each number of an array."""
    columns: dict[str, pa.Array] = {}
    for name, array in _flat(table):
        for each, values in _numbers(name, array):
            columns[each] = values
            if len(columns) > _MOST_COLUMNS:
                raise ConfigError(
                    f"{name!r} has too many values for a CSV file, which can have "
                    f"{_MOST_COLUMNS:,} columns: write .npz or .parquet"
                )
    return pa.table(columns)


def _numbers(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields a column for each position in an array, or the column itself if it has no arrays."""
    if not pa.types.is_list(array.type):
        yield name, array
        return
    lengths = np.unique(np.diff(array.offsets))
    if len(lengths) != 1:
        raise _ragged(name, "CSV")
    inner, size = array.flatten(), int(lengths[0])
    for place in range(size):
        yield from _numbers(f"{name}/{place}", inner.take(np.arange(place, len(inner), size)))


def _arrays(name: str, parts: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yields a column's parts as arrays."""
    for table in _tables(parts):
        found = dict(_flat(table))[name]
        shape = [len(found)]
        while pa.types.is_list(found.type):
            lengths = np.unique(np.diff(found.offsets))
            if len(lengths) != 1:
                raise _ragged(name, ".npz")
            shape.append(int(lengths[0]))
            found = found.values
        values = found.to_numpy(zero_copy_only=False)
        yield (values.astype(str) if values.dtype == object else values).reshape(shape)


def _kind(name: str, parts: Sequence[Path]) -> _Kind:
    dtypes, rows, shapes = [], 0, set()
    for array in _arrays(name, parts):
        dtypes.append(array.dtype)
        rows += len(array)
        shapes.add(array.shape[1:])
    if len(shapes) != 1:
        raise _ragged(name, ".npz")
    return _Kind(np.result_type(*dtypes), rows, shapes.pop())


def _ragged(name: str, kind: str) -> ConfigError:
    article = "an" if kind == ".npz" else "a"
    return ConfigError(
        f"{name!r} has different shapes in different examples, which {article} {kind} file cannot "
        "hold: write .jsonl or .parquet"
    )
