"""The progress of runs and studies, with heartbeats of active runs. No TensorFlow.

board = Board(Path("runs"))
for each in board.look():
    print(each.name, each.state, each.step, each.left)
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import RunnerError
from runner.inspection import rows
from runner.inspection.rows import Row
from runner.run_directory import pulse, submitted
from runner.run_directory.run import Run
from runner.run_directory.state import ACTIVE, UNRESPONSIVE_SECONDS, State

UNFINISHED = (*ACTIVE, State.PENDING, State.PAUSED, State.PREEMPTED)
"""The states of runs that have not ended or may be resumed."""

_WORK = ("training", "input_wait", "again", "evaluation", "checkpoint")


@dataclasses.dataclass(frozen=True)
class Line:
    """The current progress of one run.

    Attributes:
        row: The run.
        state: Its state, as far as several looks at a remote process can show.
        step: The last training step completed.
        pace: Steps per second of this attempt, including evaluations and checkpoints, or None.
        sign: The last heartbeat of its process, or None.
        ended: When it ended, in seconds since the epoch by its machine's clock, or None if unknown.
        workers: The number of its workers, if a supervisor starts them.
        job: The last job submitted for it, or None.
    """

    row: Row
    state: State
    step: int
    pace: float | None = None
    sign: pulse.Sign | None = None
    ended: float | None = None
    workers: int = 1
    job: submitted.Submission | None = None

    @property
    def end(self) -> int | None:
        """The step at which it is to end, or None if unknown."""
        trainer = self.row.configuration.get("trainer")
        found = trainer.get("train_steps") if isinstance(trainer, Mapping) else None
        return found if isinstance(found, int) else None

    @property
    def left(self) -> float | None:
        """The estimated seconds until it ends, or None if unknown."""
        if self.state != State.RUNNING or not self.end or not self.pace:
            return None
        return max(self.end - self.step, 0) / self.pace

    @property
    def figures(self) -> dict[str, Any]:
        """The values for JSON."""
        return {
            "step": self.step,
            "train_steps": self.end,
            "steps_per_second": self.row.rate,
            "seconds_left": None if self.left is None else round(self.left),
            "seconds_silent": None if self.sign is None else round(self.sign.seconds, 1),
            "starts": self.row.starts,
            "host": self.row.host,
        }


@dataclasses.dataclass(frozen=True)
class Study:
    """The trials of a study.

    Attributes:
        name: The study's directory, relative to the one being shown.
        trials: The progress of each trial.
    """

    name: str
    trials: Sequence[Line]

    @property
    def states(self) -> dict[str, int]:
        """The number of trials in each state."""
        return counts(self.trials)

    @property
    def left(self) -> float | None:
        """The estimated seconds until all existing trials have ended, or None if unknown."""
        paces = [each.pace for each in self.trials if each.state == State.RUNNING]
        ends = [each.end for each in self.trials if each.end]
        if not ends or not paces or not all(paces):
            return None
        unfinished = [each for each in self.trials if each.state in UNFINISHED]
        steps = sum(max((each.end or ends[0]) - each.step, 0) for each in unfinished)
        return steps / sum(each for each in paces if each)

    def as_dict(self) -> dict[str, Any]:
        """Returns the values for JSON."""
        left = None if self.left is None else round(self.left)
        return {"study": self.name, "trials": self.states, "seconds_left": left}


class Board:
    """The runs at and below a directory, read repeatedly.

    Args:
        root: The directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pulses: dict[Path, pulse.Pulse] = {}

    def look(self) -> list[Line]:
        """Returns the current progress of the runs, active runs first, then by name.

        Raises:
            ConfigError: there is no such directory.
        """
        found = [self._line(each) for each in rows.below(self._root)]
        return sorted(found, key=lambda each: each.state not in ACTIVE)

    @property
    def is_settled(self) -> bool:
        """Whether every active process has sent a heartbeat since the first look."""
        return all(each.look().is_known for each in self._pulses.values())

    def _line(self, row: Row) -> Line:
        try:
            run = Run(row.folder, strict=False)
            if row.state in ACTIVE:
                return self._running(row, run)
            ended = run.status.heartbeat if run.status else None
            return Line(row, row.state, row.step, ended=ended, job=run.submission)
        except (RunnerError, OSError, ValueError):  # it cannot be read, or was just removed
            return Line(row, row.state, row.step)

    def _running(self, row: Row, run: Run) -> Line:
        sign = self._pulses.setdefault(row.folder, pulse.Pulse(row.folder)).look()
        is_quiet = sign.seconds > UNRESPONSIVE_SECONDS
        state = State.UNRESPONSIVE if is_quiet else State.RUNNING
        pace = _pace(run.status.spent if run.status else None) or row.rate
        hosts = (run.workers or {}).get("hosts")
        workers = len(hosts) if hosts else 1
        return Line(row, state, run.step, pace, sign, workers=workers, job=run.submission)


def _pace(spent: Mapping[str, float] | None) -> float | None:
    """Returns the steps per second of an attempt, without its start and compilation."""
    seconds = sum((spent or {}).get(name, 0.0) for name in _WORK)
    return spent.get("steps", 0) / seconds or None if spent and seconds > 0 else None


def counts(lines: Iterable[Line]) -> dict[str, int]:
    """Returns the number of runs in each state."""
    return dict(sorted(collections.Counter(each.state for each in lines).items()))


def studies(lines: Iterable[Line]) -> list[Study]:
    """Returns the studies that the trials belong to."""
    found: dict[str, list[Line]] = {}
    for each in lines:
        if each.row.study:
            found.setdefault(each.row.study, []).append(each)
    return [Study(name, trials) for name, trials in sorted(found.items())]
