"""The log of a run: evaluations and decisions, appended and flushed. No TensorFlow.

All state that follows from them is a fold over the rows of `history.jsonl` and stored nowhere else,
so it survives every restart: `early_stopping`, `learning_rate_drops`, `best_evaluation`.
"""

import bisect
import math
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from runner.core import files, growing_file, text
from runner.data import windows
from runner.errors import RunnerError
from runner.history import records

Kind = TypeVar("Kind", bound=records.Record)


class Extent(NamedTuple):
    """The extent of a history.

    Attributes:
        evaluations: The number of evaluations.
        digest: Identifies their steps and values.
        rollbacks: The number of rollbacks, and of resumes with newly shuffled data.
        drops: The number of learning rate drops.
    """

    evaluations: int
    digest: int
    rollbacks: int
    drops: int


class History:
    """The rows of one `history.jsonl`, in memory and on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._set(read(path))

    def of(self, kind: type[Kind]) -> Sequence[Kind]:
        """Returns the rows of one kind, oldest first."""
        return self._of[kind]

    @property
    def evaluations(self) -> Sequence[records.Evaluation]:
        """The evaluations, oldest first."""
        return self.of(records.Evaluation)

    @property
    def left_out(self) -> list[records.LeftOut]:
        """The checkpoints that could not be evaluated, in the order of discovery."""
        rows = (*self.of(records.Damaged), *self.of(records.Failed))
        return sorted(rows, key=lambda row: row.time)

    @property
    def rollbacks(self) -> Sequence[records.Rollback]:
        """The rollbacks, oldest first."""
        return self.of(records.Rollback)

    @property
    def reading(self) -> windows.Reading:
        """What training reads from its data, after rollbacks and resumes."""
        return reading((*self.rollbacks, *self.of(records.FreshShuffle)))

    @property
    def extent(self) -> Extent:
        """The current extent."""
        return self._extent(len(self.evaluations))

    def lost(self, then: Extent) -> str:
        """Describes the rows lost since the extent `then`, or returns an empty string."""
        counts = {
            "evaluation": (then.evaluations, len(self.evaluations)),
            "rollback or new shuffle": (then.rollbacks, self._changes_of_data),
            "learning rate drop": (then.drops, len(self.of(records.Drop))),
        }
        lost = [
            f"{was - now} of {text.counted(was, name)}"
            for name, (was, now) in counts.items()
            if now < was
        ]
        if not lost and self._extent(then.evaluations).digest != then.digest:
            lost = [f"the first {then.evaluations} evaluations as they were"]
        return " and ".join(lost)

    def _extent(self, evaluations: int) -> Extent:
        digest = _digest(self.evaluations[:evaluations])
        return Extent(evaluations, digest, self._changes_of_data, len(self.of(records.Drop)))

    @property
    def _changes_of_data(self) -> int:
        return len(self.rollbacks) + len(self.of(records.FreshShuffle))

    def append(self, row: records.Record) -> None:
        """Adds one row. The row is on disk when this returns."""
        files.append_json_line(self._path, row.as_dict())
        self._add(row)

    @property
    def steps(self) -> Sequence[int]:
        """The evaluated steps, in order, without those of other runs' checkpoints."""
        return self._steps

    @property
    def furthest(self) -> int:
        """The highest of these steps, or -1 if there is none."""
        return self._steps[-1] if self._steps else -1

    def has(self, step: int) -> bool:
        """Returns whether `step` has been evaluated."""
        at = bisect.bisect_left(self._steps, step)
        return at < len(self._steps) and self._steps[at] == step

    def drop_after(self, step: int) -> bool:
        """Removes rows newer than `step`, because the training that led to them is repeated.

        A decision is kept if it applies from `step` or earlier, whenever it was made.

        Returns:
            Whether there were any.
        """
        newer = any(row.step > step for rows in self._of.values() for row in rows)
        if newer:
            self._keep(lambda row: row.step <= step)
        return newer

    def drop(self, row: records.Record) -> None:
        """Removes a decision that no longer applies."""
        self._keep(lambda each: each != row)

    def _keep(self, keeps: Callable[[records.Record], bool]) -> None:
        kept = [row for row in read(self._path) if keeps(row)]
        files.write_json_lines(self._path, (row.as_dict() for row in kept))
        self._set(kept)

    def _set(self, rows: Iterable[records.Record]) -> None:
        self._of: dict[type, Any] = {kind: [] for kind in records.KINDS.values()}
        self._steps: list[int] = []
        for row in rows:
            self._add(row)

    def _add(self, row: records.Record) -> None:
        self._of[type(row)].append(row)
        if isinstance(row, records.Evaluation) and row.is_own and not self.has(row.step):
            bisect.insort(self._steps, row.step)


class Tail:
    """Another process's `history.jsonl`, read as it grows.

    Args:
        path: The file, which may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._file = growing_file.GrowingFile(path)
        self._waiting: list[records.Evaluation] = []
        self._known: set[tuple[int, frozenset[str]]] = set()  # steps, with the metrics found there

    def take(self, step: int | None) -> list[records.Evaluation]:
        """Returns the new evaluations up to `step` (None: all), oldest first.

        If a checkpoint was evaluated again, only the first result is returned. Evaluations of other
        runs' checkpoints are ignored.
        """
        waiting, self._waiting = [*self._waiting, *self._new()], []
        if step is None:
            return waiting
        self._waiting = [row for row in waiting if row.step > step]
        return [row for row in waiting if row.step <= step]

    def _new(self) -> list[records.Evaluation]:
        rows = _parsed(self._file.path, self._file.take_rows())
        own = [row for row in rows if isinstance(row, records.Evaluation) and row.is_own]
        return [row for row in own if self._is_new(row)]

    def _is_new(self, row: records.Evaluation) -> bool:
        key = (row.step, frozenset(row.metrics))
        new = key not in self._known
        self._known.add(key)
        return new


def reading(rows: Iterable[records.Record]) -> windows.Reading:
    """Returns what a run with these rows reads from its training data."""
    skipped, fresh = [], windows.Reading()
    for row in rows:
        if isinstance(row, records.Rollback):
            skipped.append(row.skipped)
        elif isinstance(row, records.FreshShuffle):
            fresh = windows.Reading((), row.batch, row.seed)
    return fresh._replace(skipped=skipped)


def reshuffled(rows: Iterable[records.Record]) -> str:
    """Describes the resumes with newly shuffled inputs, after which a run is not bit-exact."""
    steps = [f"{row.step:,}" for row in rows if isinstance(row, records.FreshShuffle)]
    at = "step" if len(steps) == 1 else "steps"
    said = f"its inputs were reshuffled at {at} {', '.join(steps)} (RunConfig.resume_inputs)"
    return said if steps else ""


def read(path: Path) -> list[records.Record]:
    """Returns the rows of a `history.jsonl`, oldest first, or [] if there is no file.

    Raises:
        RunnerError: it is damaged.
    """
    try:
        rows = files.read_json_lines(path)
    except ValueError as error:
        raise RunnerError(f"{error}: repair or delete the line") from error
    return _parsed(path, rows)


def _parsed(path: Path, rows: Iterable[Any]) -> list[records.Record]:
    try:
        return [records.parse(row) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunnerError(f"{path} has a row of unknown kind ({error}): remove it") from error


def _digest(rows: Sequence[records.Evaluation]) -> int:
    """Returns a digest, below 2**63, of these evaluations' steps and values."""
    steps = array("q", [row.step for row in rows])
    numbers = (value for row in rows for value in row.metrics.values())
    values = array("d", [math.nan if math.isnan(value) else value for value in numbers])
    return zlib.crc32(values) << 31 ^ zlib.crc32(steps)
