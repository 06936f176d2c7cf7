"""Tables of a user's: DataFrames of pandas and the columns of files, as arrays for a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runner.errors import ConfigError
from runner.internals import lazy_imports

Takes: TypeAlias = Callable[[], Sequence[str] | None]
"""Returns the names of a model's inputs, none for a single input, or None if unknown."""

Columns: TypeAlias = Mapping[Any, np.ndarray]
"""The columns of a table by name, [n, ...] each, without missing values."""

_ENCODE = (
    "encode it as numbers, such as with .cat.codes, or use a model with an input for each column"
)
_SHOWN = 8  # maximum number of columns that a message lists


def unknown() -> None:
    """The `Takes` of an unknown model."""
    return


def inputs_of(model: Any) -> Sequence[str] | None:
    """The names of the inputs of a model of either Keras: see `Takes`."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    structure = getattr(model, "input", None)  # a Sequential of Keras 3 may have none
    if isinstance(structure, Mapping):
        return tuple(structure)
    return () if len(inputs) == 1 else tuple(getattr(each, "name", "") for each in inputs)


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame of pandas."""
    pandas: Any = lazy_imports.loaded("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_series(value: Any) -> bool:
    """Whether a value is a Series of pandas."""
    pandas: Any = lazy_imports.loaded("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def of_frame(frame: Any, where: str) -> Columns:
    """The columns of a DataFrame. Categories become their values.

    Raises:
        ConfigError: a column has missing values, or values that are neither numbers nor strings.
    """
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ConfigError(f"{where}: there are two columns {twice!r}")
    return {name: _of_pandas(frame[name], f"{where}: column {name!r}") for name in frame.columns}


def of_series(series: Any, where: str) -> np.ndarray:
    """The values of a Series, [n]. Errors are those of `of_frame`."""
    is_key = where.endswith("]")  # x['age'] names the column already
    named = "" if series.name is None or is_key else f" (column {series.name!r})"
    return _of_pandas(series, f"{where}{named}")


def of_arrow(table: pa.Table, where: str) -> Columns:
    """The columns of a table of Arrow. Errors are those of `of_frame`."""
    return {
        name: column(table.column(name), f"{where}: column {name!r}") for name in table.column_names
    }


def column(values: pa.Array | pa.ChunkedArray, name: str) -> np.ndarray:
    """A column of numbers or strings, [n], or of lists of one length, [n, length].

    Args:
        values: As Arrow holds them.
        name: Names the column in messages.

    Raises:
        ConfigError: it has missing values, or other ones.
    """
    _check_whole(values, name)
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(kind):
        return np.asarray(values.flatten()).reshape(len(values), kind.list_size)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.to_numpy(zero_copy_only=False).astype(str)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.to_numpy(zero_copy_only=False)
    raise ConfigError(f"{name} has values of the type {kind}: convert them to numbers, or drop it")


def features(columns: Columns, where: str, takes: Takes) -> Any:
    """The columns in the form that a model takes: a matrix, or a dict with one for each input.

    If the inputs of the model are unknown, numbers become a matrix.

    Raises:
        ConfigError: a column of a matrix has no numbers, or an input of the model has no column.
    """
    names = takes()
    if names:
        if missing := [name for name in names if name not in columns]:
            raise ConfigError(
                f"{where}: the model has an input {missing[0]!r}, but there is no such column; "
                f"there are {_listed(columns)}"
            )
        return {name: columns[name] for name in names}
    if names is None and any(_is_text(part) for part in columns.values()):
        return dict(columns)
    return matrix(columns, where)


def matrix(columns: Columns, where: str) -> np.ndarray:
    """The columns side by side, [n, columns].

    Raises:
        ConfigError: there is none, or one of several has no numbers.
    """
    if not columns:
        raise ConfigError(f"{where}: there are no columns")
    for name, part in columns.items():
        if _is_text(part) and len(columns) > 1:
            raise ConfigError(f"{where}: column {name!r} has strings, not numbers: {_ENCODE}")
    return np.column_stack(list(columns.values()))


def _of_pandas(series: Any, name: str) -> np.ndarray:
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = str(error).splitlines()[0][:120]
        raise ConfigError(f"{name} has values that are neither numbers nor text: {said}") from error
    return column(values, name)


def _check_whole(values: pa.Array | pa.ChunkedArray, name: str) -> None:
    absent = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
    number = pc.sum(absent).as_py() or 0
    if number:
        first = pc.index(absent, True).as_py()
        raise ConfigError(
            f"{name} has missing values (NaN or empty) in {number:,} of {len(values):,} rows, the "
            f"first at index {first}"
        )


def _is_text(part: np.ndarray) -> bool:
    return part.dtype.kind in "SU"


def _listed(columns: Columns) -> str:
    names = [repr(name) for name in columns]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
