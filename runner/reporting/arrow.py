"""Builds Arrow tables from columns of Python values, and writes them to files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from runner.core import files


def table(
    columns: Mapping[str, list[Any]],
    *,
    as_text: Callable[[Any], str],
    kinds: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Returns a table.

    Args:
        columns: The values by column name, with None for missing values.
        as_text: Converts the values of a column without a common type.
        kinds: The types of columns that may have no value at all.
    """
    known = kinds or {}
    arrays = {
        name: pa.array(_uniform(values, as_text), known.get(name))
        for name, values in columns.items()
    }
    return pa.table(arrays)


def write(path: Path, rows: pa.Table) -> None:
    """Writes a table atomically, as CSV if the file's name ends in `.csv`, otherwise as Parquet."""
    with files.whole(path) as file:
        csv.write_csv(rows, file) if path.suffix == ".csv" else parquet.write_table(rows, file)


def _uniform(values: list[Any], as_text: Callable[[Any], str]) -> list[Any]:
    """Converts values to one type."""
    types = {type(value) for value in values} - {type(None)}
    if types <= {int, float} and float in types:
        return [None if value is None else float(value) for value in values]
    if len(types) < 2 and types <= {bool, int, str}:
        return values
    return [None if value is None else as_text(value) for value in values]
