"""Data that a user names by path: .npz files, and the tables of CSV and Parquet files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from runner.core import spelling
from runner.errors import ConfigError
from runner.models import tables

_TABLES = (".csv", ".parquet")


def is_table(given: Any) -> bool:
    """Whether given data are the path of a table with the name of its label column."""
    return (
        isinstance(given, tuple | list)
        and len(given) in (2, 3)
        and isinstance(given[0], str | Path)
        and Path(given[0]).suffix.lower() in _TABLES
    )


def table(path: Path, label: Any, weight: str | None, where: str, takes: tables.Takes) -> Any:
    """Reads a table: its features, label and weights.

    Args:
        path: A CSV file with a header line, or a Parquet file.
        label: The column of the label, or a list of columns.
        weight: The column of sample weights, if any.
        where: Names the data in messages.
        takes: Returns what the model takes.

    Raises:
        ConfigError: there is no such file or column, or a column has values that no model can take.
    """
    where = f"{where}: {path}"
    read = _read(path, where)
    labels = [label] if isinstance(label, str) else list(label)
    for name in (*labels, *([weight] if weight else ())):
        if name not in read.column_names:
            raise ConfigError(
                f"{where}: there is no column {name!r}"
                f"{spelling.did_you_mean(name, read.column_names)}; "
                f"there are {', '.join(map(repr, read.column_names))}"
            )
    others = [name for name in read.column_names if name not in (*labels, weight)]
    x = _features(read.select(others), where, takes)
    y = tables.of_arrow(read.select(labels), where)
    return (
        x,
        y[label] if isinstance(label, str) else tables.matrix(y, where),
        tables.of_arrow(read.select([weight]), where)[weight] if weight else None,
    )


def npz(path: Path, where: str, group: str) -> tuple[Any, ...]:
    """Reads x, y, the sample weights or None, and the array `group` or ().

    Raises:
        ConfigError: it cannot be read, or has other arrays.
    """
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error}") from error
    if not {"x", "y"} <= found.keys() <= {"x", "y", "sample_weight", group}:
        raise ConfigError(
            f"{where}: {path} has the arrays {', '.join(found) or 'none'}; expected x, y and, "
            "if examples are weighted, sample_weight"
        )
    return found["x"], found["y"], found.get("sample_weight"), found.get(group, ())


def of_other_kind(path: Path, where: str, expected: str) -> ConfigError:
    """The error for a path that is not that of an .npz."""
    if path.suffix.lower() in _TABLES:
        return ConfigError(
            f"{where}: which column of {path} is the label? Give (path, column): "
            f"({str(path)!r}, 'label')"
        )
    return ConfigError(f"{where}: {expected}; got the path {path}")


def _features(read: pa.Table, where: str, takes: tables.Takes) -> Any:
    """Features of the columns that the model takes. Other columns may have any content."""
    names = takes()
    wanted = [name for name in names or () if name in read.column_names] or read.column_names
    return tables.features(tables.of_arrow(read.select(wanted), where), where, lambda: names)


def _read(path: Path, where: str) -> pa.Table:
    if not path.is_file():
        raise ConfigError(f"{where}: there is no such file")
    try:
        if path.suffix.lower() == ".parquet":
            return pq.read_table(path)
        return csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True))
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0][:200]
        raise ConfigError(f"{where} cannot be read: {said}") from error
