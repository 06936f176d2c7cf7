"""The attempts, checkpoints, evaluations and decisions of a run, as a plot and as rows.

The time between two attempts is drawn short, however long it was. No TensorFlow.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runner.core import text
from runner.history import records
from runner.run_directory import goodput
from runner.run_directory.run import Run

_GAP = 0.02  # fraction of the plot's width, for the time between two attempts
_MARKS = 400  # places of a lane, each with at most one mark
_ROWS = 300  # rows of the table


@dataclasses.dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        time: When it happened, in seconds since the epoch.
        kind: `start`, `kill`, `end`, `save`, `evaluation`, `decision` or `test`.
        said: Its description.
        at: Its position on the plot, 0 to 1. 0 for an event that is not drawn.
    """

    time: float
    kind: str
    said: str
    at: float = 0.0

    @property
    def when(self) -> str:
        """The date and time, in this machine's time zone."""
        return stamp(self.time)


@dataclasses.dataclass(frozen=True)
class Bar:
    """An attempt, from one position on the plot to another."""

    begin: float
    end: float
    state: str
    said: str


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The contents of the plot, and the events by time. `more` events are left out."""

    bars: Sequence[Bar]
    marks: Sequence[Event]
    events: Sequence[Event]
    more: int


def of(run: Run) -> Timeline:
    """Returns the timeline of a run, empty if its attempts are unknown."""
    starts = run.time.starts
    axis, rows, others = _Axis(starts), _rows(run), [*_starts(starts), *_saves(run)]
    count = len(rows) + len(others)
    if count > _ROWS:
        rows = _drawn(rows, axis)
    events = sorted([*others, *(_event(*row) for row in rows)], key=lambda event: event.time)
    marks: dict[tuple[str, int], tuple[float, Event]] = {}
    for each in events if starts else ():
        if each.kind not in ("start", "end"):
            at = axis.place(each.time)
            marks[each.kind, round(at * _MARKS)] = at, each
    drawn = [dataclasses.replace(each, at=at) for at, each in marks.values()]
    few = events
    if count > _ROWS:  # the plot and the files still have all of them
        few = [each for each in events if each.kind not in ("save", "evaluation")][:_ROWS]
    bars = [
        Bar(axis.place(each.began), axis.place(each.ended), each.state, _about(n, each))
        for n, each in enumerate(starts, 1)
    ]
    return Timeline(bars, drawn, few, count - len(few))


def stamp(seconds: float) -> str:
    """Formats `2026-11-23 01:02:03`, in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


class _Axis:
    """Maps times to positions, with attempts in proportion and short gaps between them."""

    def __init__(self, starts: Sequence[goodput.Start]) -> None:
        gap = min(_GAP, 0.4 / max(len(starts), 1))
        total = sum(each.ended - each.began for each in starts) or 1.0
        room = 1 - gap * max(len(starts) - 1, 0)
        self._parts: list[tuple[float, float, float, float]] = []
        at = 0.0
        for each in starts:
            end = at + room * (each.ended - each.began) / total
            self._parts.append((each.began, each.ended, at, end))
            at = end + gap

    def place(self, when: float) -> float:
        place = 0.0
        for began, ended, at, end in self._parts:
            if when < began:
                break
            share = min((when - began) / (ended - began), 1.0) if ended > began else 0.0
            place = at + share * (end - at)
        return min(place, 1.0)


def _about(number: int, start: goodput.Start) -> str:
    steps = "" if start.first is None else f" from step {start.first:,}"
    steps += "" if start.step is None else f" to {start.step:,}"
    long = goodput.shown(start.ended - start.began)
    ended = "killed" if start.state == "lost" else start.state
    return f"start {number}{steps}: {ended} after {long}"


def _starts(starts: Sequence[goodput.Start]) -> Iterator[Event]:
    for number, each in enumerate(starts, 1):
        first = "" if each.first is None else f", from step {each.first:,}"
        lost = f", {text.counted(each.thrown_away, 'step')} lost" if each.thrown_away else ""
        yield Event(each.began, "start", f"start {number}{first}{lost}")
        step = "" if each.step is None else f" at step {each.step:,}"
        if each.state == "lost":
            yield Event(each.ended, "kill", f"killed{step}, or somewhat later")
        elif each.state != "running":
            yield Event(each.ended, "end", f"{each.state}{step}")


def _rows(run: Run) -> list[tuple[Any, str]]:
    """Returns the records of the run and of its evaluators, with words that name the evaluator."""
    by = {source: f" by {source}" if source else "" for source in ("", *run.evaluators)}
    found = {"": run.history, **run.evaluators}
    return [
        (row, by[source])
        for source, rows in found.items()
        for row in rows
        if not isinstance(row, records.RateChange)  # perhaps one per epoch
    ]


def _drawn(rows: Iterable[tuple[Any, str]], axis: _Axis) -> list[tuple[Any, str]]:
    """Returns the rows without the evaluations that a later one at the same place hides."""
    kept: dict[int, tuple[Any, str]] = {}
    for row, by in rows:
        may_be_hidden = isinstance(row, records.Evaluation)
        key = round(axis.place(row.time) * _MARKS) if may_be_hidden else id(row)
        if key not in kept or kept[key][0].time <= row.time:
            kept[key] = row, by
    return list(kept.values())


def _event(row: Any, by: str) -> Event:
    at = f"step {row.step:,}"
    match row:
        case records.Evaluation():
            return Event(row.time, "evaluation", f"evaluation of {at}{by}, {row.seconds:.1f} s")
        case records.Test():
            return Event(
                row.time, "test", f"test of the {row.weights} weights, step {row.tested:,}"
            )
        case records.Rollback():
            said = f"{row.reason}: back to {at}, found at {row.found:,}; rate times {row.rate:g}"
            return Event(row.time, "decision", said)
        case records.Corruption():
            return Event(row.time, "decision", f"{row.reason}; the checkpoint before it: {at}")
        case records.FreshShuffle():
            return Event(row.time, "decision", f"resumed at {at} with newly shuffled inputs")
        case records.Stop():
            said = f" by {row.source}" if row.source else ""
            return Event(row.time, "decision", f"stopped at {at}{said}: {row.reason}")
        case records.Drop():
            said = f"{row.source} dropped the learning rate to {row.scale:g} of the schedule, {at}"
            return Event(row.time, "decision", said)
        case _:
            return Event(row.time, "decision", f"{row.checkpoint} left out{by}: {row.reason}")


def _saves(run: Run) -> Iterator[Event]:
    """Yields the checkpoints that still exist."""
    for name, step in run.checkpoints.items():
        path = run.directory / f"{name}.index"
        if path.parent == run.directory:  # not a best one
            with contextlib.suppress(OSError):  # just removed
                yield Event(path.stat().st_mtime, "save", f"checkpoint of step {step:,}")
