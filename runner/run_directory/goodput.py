"""Accounts for the time of a run over all its attempts, and how much was training. No TensorFlow.

    ledger = Run(folder).time
    ledger.share           # of the time that processes ran
    ledger.parts           # seconds, by what they were spent on
    ledger.thrown_away     # completed steps that are not part of the run

Each attempt measures its own time, and run.json stores it. For an attempt that was killed, the time
is known up to its last heartbeat. Attempts of older versions did not measure theirs.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import files, text
from runner.run_directory import status
from runner.run_directory.state import State

PARTS: Mapping[str, str] = {
    "training": "training",
    "input_wait": "waiting for inputs",
    "evaluation": "evaluation",
    "checkpoint": "waiting for checkpoints",
    "start": "starting",
    "compile": "compiling",
    "again": "repeated steps",
    "rollback": "rolling back",
    "suspended": "suspended",
    "end": "ending",
    "unknown": "not recorded",
    "queue": "waiting in a queue",
    "between": "between attempts",
}
"""Kinds of time, in the order in which they are shown. In the last two, no process was running.
`queue` is the time between two attempts of one job that its scheduler requeued. `between` is the
time between other attempts."""

_OUTSIDE = ("queue", "between")
_LEAST = 0.01  # seconds; smaller parts are not shown


@dataclasses.dataclass(frozen=True)
class Start:
    """One attempt of a run.

    Attributes:
        began: Its start time, in seconds since the epoch.
        ended: The time of its end, or of its last heartbeat.
        state: How it ended: `lost` was killed, `running` is still active.
        first: The step from which it continued, or None if it did not get that far.
        step: The last step that it completed.
        parts: Seconds, by what they were spent on.
        thrown_away: The number of steps lost before it started or through its own rollbacks.
        joules: The energy that the machine used meanwhile, or None if unknown.
        job: The scheduler's job, or empty if there is none.
    """

    began: float
    ended: float
    state: str
    first: int | None
    step: int | None
    parts: Mapping[str, float]
    thrown_away: int = 0
    joules: float | None = None
    job: str = ""


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The time of one or more runs.

    Attributes:
        starts: The attempts, by time.
        parts: Seconds, by what they were spent on, in the order of `PARTS`.
    """

    starts: Sequence[Start]
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """How long processes ran, in seconds."""
        return sum(value for name, value in self.parts.items() if name not in _OUTSIDE)

    @property
    def share(self) -> float:
        """The fraction of that time spent training, or NaN if it is unknown."""
        known = self.seconds - self.parts.get("unknown", 0.0)
        return self.parts.get("training", 0.0) / known if known > 0 else math.nan

    @property
    def thrown_away(self) -> int:
        """The number of completed steps that are not part of the run."""
        return sum(each.thrown_away for each in self.starts)

    @property
    def kills(self) -> int:
        """The number of attempts that ended without recording how."""
        return sum(each.state == "lost" for each in self.starts)

    @property
    def joules(self) -> float | None:
        """The energy that the machines used meanwhile, or None if unknown."""
        known = [each.joules for each in self.starts if each.joules is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the values for JSON."""
        return {
            "share": None if math.isnan(self.share) else round(self.share, 4),
            "seconds": round(self.seconds, 3),
            "parts": {name: round(value, 3) for name, value in self.parts.items()},
            "starts": len(self.starts),
            "kills": self.kills,
            "steps_thrown_away": self.thrown_away,
            "joules": self.joules,
        }


def of(
    attempts: Iterable[Mapping[str, Any]],
    seen: status.Status | None,
    powers: Sequence[tuple[float, float]] = (),
) -> Ledger:
    """Returns the time accounting of a run.

    Args:
        attempts: The rows of run.json.
        seen: The contents of status.json.
        powers: See `powers`.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: a row is not the record of an attempt.
    """
    starts = [_start(row, seen, powers) for row in attempts]
    return _ledger(starts, _gaps(starts))


def powers(path: Path) -> Sequence[tuple[float, float]]:
    """Reads a system.jsonl: seconds since the epoch, and watts since the previous sample."""
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        text = path.read_bytes()
        if b"_watts" in text:
            rows = files.parse_json_lines(
                text[: text.rfind(b"\n") + 1].splitlines(), name=str(path)
            )
            return [
                (float(row["time"]), sum(row[name] for name in row if name.endswith("_watts")))
                for row in rows
            ]
    return ()


def together(ledgers: Iterable[Ledger]) -> Ledger:
    """Adds up the times of several runs, such as the trials of a study."""
    ledgers = list(ledgers)
    starts = sorted((each for one in ledgers for each in one.starts), key=lambda each: each.began)
    return _ledger(starts, _sum(each.parts for each in ledgers), parts_of_starts=False)


def sentence(ledger: Ledger) -> str:
    """Summarizes the time: `training took 71% of 12:30; 50 steps discarded after 1 kill`."""
    if not ledger.starts:
        return "no attempt is recorded"
    share = "an unknown share" if math.isnan(ledger.share) else percent(ledger)
    said = f"training took {share} of {shown(ledger.seconds)}"
    if len(ledger.starts) > 1:
        said += f" in {text.counted(len(ledger.starts), 'attempt')}"
    if ledger.thrown_away:
        kills = f" after {text.counted(ledger.kills, 'kill')}" if ledger.kills else ""
        said += f"; {text.counted(ledger.thrown_away, 'step')} discarded{kills}"
    if ledger.joules:
        said += f"; {ledger.joules / 3.6e6:.3g} kWh"
    return said


def percent(ledger: Ledger) -> str:
    """Formats the share of training as `71%`, or as a dash if it is unknown."""
    return "-" if math.isnan(ledger.share) else f"{ledger.share:.0%}"


def lines(ledger: Ledger) -> list[str]:
    """Formats the parts as a table."""
    from runner.reporting import table

    return table.aligned([("time spent on", "time", "share"), *shown_parts(ledger)], left=1)


def shown_parts(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Returns the names of the parts, their times, and their shares of the processes' time."""
    return [
        (
            PARTS[name],
            shown(ledger.parts[name]),
            "" if name in _OUTSIDE else f"{ledger.parts[name] / ledger.seconds:.1%}",
        )
        for name in shown_names(ledger)
    ]


def shown_names(ledger: Ledger) -> list[str]:
    """Returns the parts that are large enough to show."""
    return [name for name, value in ledger.parts.items() if value >= _LEAST]


def shown(seconds: float) -> str:
    """Formats `7.3 s`, or uses `text.duration` for a minute and more."""
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)


def _joules(powers: Iterable[tuple[float, float]], began: float, ended: float) -> float | None:
    """Returns the energy used between two times, or None if there are no samples."""
    during = [(time, watts) for time, watts in powers if began <= time <= ended]
    times = [began, *(time for time, _ in during)]
    used = [watts * (now - then) for (now, watts), then in zip(during, times, strict=False)]
    return sum(used) if used else None


def _start(
    row: Mapping[str, Any],
    seen: status.Status | None,
    powers: Iterable[tuple[float, float]],
) -> Start:
    if not (seen and row["state"] == State.RUNNING and seen.pid == row.get("pid")):
        seen = None  # belongs to another attempt
    spent = (seen.spent if seen else row.get("spent")) or {}
    step = seen.step if seen else row["step"]
    began = float(row.get("launched") or row["started"])
    known = {name: float(value) for name, value in spent.items() if name in PARTS}
    ended = row["ended"] or (seen.heartbeat if seen else row.get("heard"))
    ended = max(float(ended or began + sum(known.values())), began)
    rest = ended - began - sum(known.values())
    if rest > 0 and not (spent and rest < 1):  # less than a second comes from the order of writes
        known["unknown"] = rest
    joules = spent.get("joules", _joules(powers, began, ended))  # earlier versions recorded it
    return Start(
        began=began,
        ended=ended,
        state=row["state"],
        first=int(spent["from"]) if "from" in spent else None,
        step=None if step is None else int(step),
        parts=known,
        thrown_away=int(spent.get("thrown_away", 0)),
        joules=None if joules is None else float(joules),
        job=str(row.get("job") or ""),
    )


def _gaps(starts: Sequence[Start]) -> dict[str, float]:
    """Returns the time between attempts. Between attempts of one requeued job, it is queue time."""
    found = dict.fromkeys(_OUTSIDE, 0.0)
    for before, after in itertools.pairwise(starts):
        queued = before.job and before.job == after.job
        found["queue" if queued else "between"] += max(after.began - before.ended, 0.0)
    return found


def _ledger(
    starts: Sequence[Start], more: Mapping[str, float], *, parts_of_starts: bool = True
) -> Ledger:
    own = [each.parts for each in starts] if parts_of_starts else []
    total = _sum([*own, more])
    return Ledger(starts, {name: total[name] for name in PARTS if total.get(name)})


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in parts:
        for name, value in each.items():
            total[name] = total.get(name, 0.0) + value
    return total
