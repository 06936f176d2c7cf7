"""Makes the rows of a file of predictions from a model's outputs for consecutive examples."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner.configuration import prediction_contract
from runner.data.sources.source import Source
from runner.errors import ConfigError

KEY = "key"
PATH = "path"

Columns = Mapping[str, Any]
"""An array [examples, ...], a list, or further columns, by name."""


class Rows:
    """Turns examples into rows with their keys.

    Args:
        task: Defines the keys and the rows. See `docs/guides/predicting.md`.
        data: The configuration of the data.
        begin: The index of the first example to arrive.
        complete: Whether all of the data will arrive.
        source: The source of indexed examples, or None if they are not indexed.

    Attributes:
        begin: The index of the first example that is in no row yet.
        strange: The number of rows with a number that is not finite.
        example: Key and field of the first of these, or empty if there is none.
    """

    def __init__(
        self,
        task: base_task.Task,
        data: cfg.DataConfig,
        *,
        begin: int = 0,
        complete: bool = True,
        source: Source | None = None,
    ) -> None:
        self._source = source
        self._task = task
        self._data = data
        self._complete = complete
        self._keys = prediction_contract.keys_of(task, data)
        self._waiting: list[Columns] = []
        self._end = begin
        self.begin = begin
        self.strange = 0
        self.example = ""

    def add(self, columns: Columns) -> pa.Table | None:
        """Takes the next examples, [n, ...] each column, and returns the rows that are complete."""
        self._waiting.append(columns)
        self._end += len(tf.nest.flatten(columns)[0])
        if self._keys is None:
            return self._take(self._end)
        if self._end > len(self._keys):
            raise self._miscounted("more")
        following = self._keys[self.begin + 1 : self._end + 1]
        same = self._keys[self.begin : self.begin + len(following)] == following
        ends = np.flatnonzero(~same)
        if self._end == len(self._keys):
            return self._take(self._end)
        return self._take(self.begin + int(ends[-1]) + 1) if len(ends) else None

    def finish(self) -> pa.Table | None:
        """Returns the last row, also if only a part of the data has arrived."""
        if self._complete and self._keys is not None and self._end != len(self._keys):
            raise self._miscounted(f"{self._end:,}")
        return self._take(self._end)

    def _take(self, end: int) -> pa.Table | None:
        """Returns the rows of the waiting examples, up to `end`."""
        begin, self.begin = self.begin, end
        if begin == end:
            return None
        columns = self._waiting[0]
        if len(self._waiting) > 1:
            columns = tf.nest.map_structure(lambda *each: np.concatenate(each), *self._waiting)
        rest = tf.nest.map_structure(lambda each: each[end - begin :], columns)
        self._waiting = [rest] if end < self._end else []
        columns = tf.nest.map_structure(lambda each: each[: end - begin], columns)
        index = np.arange(begin, end)
        keys = index if self._keys is None else _runs(self._keys[begin:end])
        made = prediction_contract.rows_of(self._task, self._data, {**columns, "index": index})
        made = columns if made is None else made
        if self._source is not None and self._keys is None and PATH not in made:
            identities = [self._source.identity(number) for number in index.tolist()]
            made = {**made, PATH: [identity.path for identity in identities]}
        return self._table(keys, made)

    def _table(self, keys: np.ndarray, columns: Columns) -> pa.Table:
        strange = np.zeros(len(keys), bool)
        check_length(columns, len(keys))
        for name, values in _leaves(columns):
            if isinstance(values, np.ndarray) and values.dtype.kind == "f":
                bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
                if bad.any() and not self.example:
                    self.example = f"{name!r} of {keys[bad.argmax()]}"
                strange |= bad
        self.strange += int(strange.sum())
        return pa.table({KEY: _column(keys), **{name: _column(columns[name]) for name in columns}})

    def _miscounted(self, found: str) -> ConfigError:
        assert self._keys is not None
        return ConfigError(
            f"{type(self._task).__name__}.prediction_keys returns {len(self._keys):,} keys, but "
            f"the data have {found} examples"
        )


def check_length(columns: Columns, size: int) -> None:
    """Raises ConfigError if one of the columns has another number of values."""
    for name, values in _leaves(columns):
        if len(values) != size:
            raise ConfigError(
                f"{name!r} of a prediction has {len(values)} values for {size} examples or rows; "
                "the first axis must be theirs"
            )


def _runs(keys: np.ndarray) -> np.ndarray:
    """Returns the keys without consecutive repeats."""
    return keys[np.append(True, keys[1:] != keys[:-1])]


def _leaves(columns: Columns, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, values in columns.items():
        if isinstance(values, Mapping):
            yield from _leaves(values, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", values


def _column(values: Any) -> pa.Array:
    """Returns a column for Arrow. Arrays with more than one axis become lists."""
    if isinstance(values, Mapping):
        parts = [_column(part) for part in values.values()]
        return pa.StructArray.from_arrays(parts, list(values))
    if not isinstance(values, np.ndarray):
        return pa.array(list(values))
    if values.ndim > 1:
        starts = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        inner = values.reshape(len(values) * values.shape[1], *values.shape[2:])
        return pa.ListArray.from_arrays(pa.array(starts), _column(inner))
    if values.dtype == object:  # TensorFlow strings
        return pa.array([_text(each) for each in values])
    return pa.array(values.astype(np.float32) if values.dtype == np.float16 else values)


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
