"""The log of a run: evaluations and decisions, appended and flushed. No TensorFlow.

What follows from them (`runner.rules`) is a fold over the rows of `history.jsonl` and lives nowhere
else, so it survives every restart.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from runner import files
from runner.errors import RunnerError

Kind = TypeVar("Kind", bound="Record")


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A row of any kind.

    Attributes:
        step: The training step that it belongs to.
    """

    kind: ClassVar[str]

    step: int

    def as_dict(self) -> dict[str, Any]:
        """JSON's view of the row; metrics are finite there, other values become their names."""
        names = (field.name for field in dataclasses.fields(self))
        row = {"kind": self.kind, **{name: getattr(self, name) for name in names}}
        return {**row, "metrics": plain(row["metrics"])} if "metrics" in row else row


@dataclasses.dataclass(frozen=True, slots=True)
class Row(Record):
    """One evaluation.

    Attributes:
        step: The training step whose weights were evaluated.
        metrics: Name to value; may be NaN or infinite.
        seconds: How long the evaluation took.
        time: When it ended, in seconds since the epoch.
        checkpoint: The checkpoint's name, `ckpt-<step>` or a path.
    """

    kind = "evaluation"

    metrics: Mapping[str, float]
    seconds: float
    time: float
    checkpoint: str

    @property
    def is_own(self) -> bool:
        """Whether the checkpoint is of this run, and not another's that was evaluated here."""
        return "/" not in self.checkpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Rollback(Record):
    """A decision: training broke, went back to a checkpoint and leaves out what broke it.

    Attributes:
        step: The checkpoint's step; the decision holds from there.
        found: The step after the one that broke.
        skipped: The batches left out: the first, and the one after the last.
        rate: What the learning rate is multiplied by from `step` on.
        reason: What broke.
        time: When, in seconds since the epoch.
    """

    kind = "rollback"

    found: int
    skipped: tuple[int, int]
    rate: float
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Stop(Record):
    """A decision that came from a sidecar's evaluations: the run ends.

    Attributes:
        step: Where it ended, and committed.
        source: The sidecar's name.
        reason: Why.
        time: When, in seconds since the epoch.
    """

    kind = "stop"

    source: str
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Drop(Record):
    """A decision that came from a sidecar's evaluations: the learning rate drops.

    Attributes:
        step: Where it was made, and committed; it holds from there.
        source: The sidecar's name.
        scale: What the schedule is multiplied by, by this drop and all before it.
        time: When, in seconds since the epoch.
    """

    kind = "drop"

    source: str
    scale: float
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Unreadable(Record):
    """A checkpoint that could not be evaluated, and is not tried again.

    Attributes:
        step: The checkpoint's.
        checkpoint: Its name, `ckpt-<step>` or a path.
        reason: What is wrong with it.
        time: When that was found, in seconds since the epoch.
    """

    kind = "unreadable"

    checkpoint: str
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Test(Record):
    """A test of some weights at the end of a run.

    Attributes:
        step: Where the run ended.
        weights: `best` or `last`.
        tested: The step whose weights were tested.
        metrics: Name to value; may be NaN or infinite.
        seconds: How long it took.
        time: When it ended, in seconds since the epoch.
        checkpoint: The checkpoint's name.
    """

    kind = "test"

    weights: str
    tested: int
    metrics: Mapping[str, float]
    seconds: float
    time: float
    checkpoint: str


_KINDS: Mapping[str, type[Record]] = {
    row.kind: row for row in (Row, Rollback, Stop, Drop, Unreadable, Test)
}


class History:
    """The rows of one `history.jsonl`, in memory and on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._set(read(path))

    def of(self, kind: type[Kind]) -> Sequence[Kind]:
        """The rows of one kind, oldest first."""
        return self._of[kind]

    @property
    def rows(self) -> Sequence[Row]:
        """The evaluations, oldest first."""
        return self.of(Row)

    @property
    def rollbacks(self) -> Sequence[Rollback]:
        """The rollbacks, oldest first."""
        return self.of(Rollback)

    def append(self, row: Record) -> None:
        """Adds one row; it is on disk when this returns."""
        files.append_json_line(self._path, row.as_dict())
        self._add(row)

    @property
    def steps(self) -> AbstractSet[int]:
        """The steps that have been evaluated; other runs' checkpoints do not count."""
        return self._steps

    @property
    def furthest(self) -> int:
        """The highest of these steps, -1 where there is none."""
        return self._furthest

    def has(self, step: int) -> bool:
        """Whether `step` has been evaluated."""
        return step in self._steps

    def drop_after(self, step: int) -> None:
        """Forgets rows newer than `step`: the training that led to them is done again.

        A decision stays if it holds from `step` or earlier, whenever it was made.
        """
        self._keep([row for row in self._all if row.step <= step])

    def drop(self, row: Record) -> None:
        """Forgets a decision that no longer holds."""
        self._keep([each for each in self._all if each is not row])

    def _keep(self, kept: list[Record]) -> None:
        if len(kept) < len(self._all):
            files.write_json_lines(self._path, (row.as_dict() for row in kept))
            self._set(kept)

    def _set(self, rows: Iterable[Record]) -> None:
        self._all: list[Record] = []
        self._of: dict[type, list[Any]] = {kind: [] for kind in _KINDS.values()}
        self._steps: set[int] = set()
        self._furthest = -1
        for row in rows:
            self._add(row)

    def _add(self, row: Record) -> None:
        self._all.append(row)
        self._of[type(row)].append(row)
        if isinstance(row, Row) and row.is_own:
            self._steps.add(row.step)
            self._furthest = max(self._furthest, row.step)


class Tail:
    """Another process's `history.jsonl`, read as it grows.

    Args:
        path: It; there need not be such a file yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes
        self._waiting: list[Row] = []
        self._known: set[tuple[int, frozenset[str]]] = set()  # steps, with the metrics found there

    def take(self, step: int | None) -> list[Row]:
        """The evaluations up to `step` (None: all) that were not taken yet, oldest first.

        Of a checkpoint that was evaluated again only the first counts, and none of another run.
        """
        waiting, self._waiting = [*self._waiting, *self._new()], []
        if step is None:
            return waiting
        self._waiting = [row for row in waiting if row.step > step]
        return [row for row in waiting if row.step <= step]

    def _new(self) -> list[Row]:
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._read:  # begun anew
                    self._read = 0
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        name = f"{self._path}, after byte {self._read}"
        rows = files.parse_json_lines(whole.splitlines(), _record, name=name)
        self._read += len(whole)
        found = [row for row in rows if isinstance(row, Row) and row.is_own]
        return [row for row in found if self._is_new(row)]

    def _is_new(self, row: Row) -> bool:
        key = (row.step, frozenset(row.metrics))
        new = key not in self._known
        self._known.add(key)
        return new


def read(path: Path) -> list[Record]:
    """The rows of a `history.jsonl`, oldest first; none where there is no file.

    Raises:
        RunnerError: it is damaged.
    """
    try:
        return files.read_json_lines(path, _record)
    except ValueError as error:
        raise RunnerError(f"{error}: mend the line, or remove it") from error
    except (KeyError, TypeError) as error:
        raise RunnerError(f"{path} has a row of no known kind ({error})") from error


def _record(found: dict[str, Any]) -> Any:
    """What an object of JSON stands for: a row, or the metrics of one."""
    if "kind" not in found or "step" not in found:
        return found
    kind = _KINDS[found.pop("kind")]
    if "metrics" in found:
        found["metrics"] = {name: float(value) for name, value in found["metrics"].items()}
    if "skipped" in found:
        found["skipped"] = tuple(found["skipped"])
    return kind(**found)


def plain(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """`metrics` for JSON, which has no NaN and no infinities: they become "nan", "inf", "-inf"."""
    return {
        name: value if math.isfinite(value) else str(float(value))
        for name, value in metrics.items()
    }
