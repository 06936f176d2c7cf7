"""Writes predictions as they arrive, in a part every few seconds."""

import collections
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import tensorflow as tf

from runner.core import console
from runner.errors import ConfigError
from runner.evaluation.prediction import partial, predictor, rows

_SECONDS = 10.0
_BYTES = 2**26  # of rows in memory


class _Read(NamedTuple):
    """A batch that was read: its number, its first example, its size, and its contents."""

    number: int
    first: int
    size: int
    batch: predictor.Batch


class Recorder:
    """Turns batches into rows, and rows into parts.

    Args:
        target: The destination of the parts.
        made: Makes the rows.
        progress: The position of the first batch.
        made_of: The provenance, recorded with the parts.
        clock: Returns seconds. Tests can replace it.

    Attributes:
        examples: The number of received examples.
    """

    def __init__(
        self,
        target: partial.Partial,
        made: rows.Rows,
        progress: partial.Progress,
        made_of: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._rows, self._made_of = target, made, made_of
        self._progress = progress
        self._clock = clock
        self._committed = self._shown = clock()
        self._number, self._first, self._skip = progress.batch, progress.first, progress.done
        self._read: collections.deque[_Read] = collections.deque()
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._is_broken = False
        self.examples = 0

    def take(self, group: Sequence[predictor.Batch]) -> None:
        """Takes the next batches, and writes a part if it is time.

        Raises:
            ConfigError: the first batch after a restart differs from before.
            OSError: the part cannot be written.
        """
        if self._is_broken:
            return  # the waiting thread will receive the error
        self._is_broken = True
        self._take(group)
        now = self._clock()
        if now - self._committed > _SECONDS or self._bytes > _BYTES:
            self.commit()
        if now - self._shown > console.STDERR.pause:
            self._shown = now
            console.show(f"{self._first:,} examples predicted")
        self._is_broken = False

    def _take(self, group: Sequence[predictor.Batch]) -> None:
        if self._progress.parts and not self._read:
            self._compare(group[0].checksum)
        parts: list[rows.Columns] = []
        for batch in group:
            own = list(batch.columns())
            parts += own
            size = sum(map(_count, own))
            self._read.append(_Read(self._number, self._first, size, batch))
            self._number, self._first = self._number + 1, self._first + size
        for columns in predictor.joined(parts):
            self._add(columns, min(self._skip, _count(columns)))
        while len(self._read) > 1 and self._read[0].first + self._read[0].size <= self._rows.begin:
            self._read.popleft()

    def commit(self) -> None:
        """Writes the collected rows as a part."""
        if not self._tables:
            return
        table = pa.concat_tables(self._tables, promote_options="permissive")
        read = self._read[0]
        progress = partial.Progress(
            parts=self._progress.parts + 1,
            rows=self._progress.rows + len(table),
            batch=read.number,
            first=read.first,
            done=self._rows.begin - read.first,
            inputs=read.batch.checksum,
            strange=self._rows.strange,
            example=self._rows.example,
        )
        self._target.add(table, progress, self._made_of)
        self._progress = progress
        self._tables, self._bytes = [], 0
        self._committed = self._clock()

    def finish(self) -> partial.Progress:
        """Writes the last part. Returns the progress of all parts.

        Raises:
            ConfigError: no batch arrived after a restart, or the task has returned another number
                of keys.
        """
        if self._progress.parts and not self._read:
            self._compare(None)
        self._keep(self._rows.finish())
        self.commit()
        return self._progress

    def _add(self, columns: rows.Columns, skip: int) -> None:
        """Adds examples, except the first ones, which are already in a part."""
        self._skip -= skip
        self.examples += _count(columns) - skip
        if skip:
            columns = tf.nest.map_structure(lambda each: each[skip:], columns)
        if _count(columns):
            self._keep(self._rows.add(columns))

    def _keep(self, table: pa.Table | None) -> None:
        if table is not None:
            self._tables.append(table)
            self._bytes += table.nbytes

    def _compare(self, checksum: int | None) -> None:
        if checksum != self._progress.inputs:
            raise ConfigError(
                f"{self._target.folder} was started with other data: batch "
                f"{self._progress.batch:,} has changed; to start over, remove that directory"
            )


def _count(columns: rows.Columns) -> int:
    """Returns the number of examples in columns."""
    return len(tf.nest.flatten(columns)[0])
