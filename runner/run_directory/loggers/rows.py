"""Reads the rows of a run's directory for loggers, incrementally while the files grow."""

import bisect
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import layout
from runner.errors import RunnerError
from runner.history import records
from runner.run_directory.run import Run, run_in

TRAINING = "train"
VALIDATION = "validation"
SYSTEM = "system"


class Row(NamedTuple):
    """Numbers of one point in time.

    Attributes:
        source: Their origin: `train`, `validation`, `test`, `test-last`, `system`, or an
            evaluator's directory, `eval-<name>`.
        key: Identifies the row within its source. A later row with the same key replaces it.
        step: The training step.
        time: In seconds since the epoch. Training rows do not store a time. It is computed from the
            preceding evaluation and their throughput, always with the same result.
        values: Numbers by name, which may not be finite.
    """

    source: str
    key: str
    step: int
    time: float
    values: Mapping[str, float]

    @property
    def named(self) -> dict[str, float]:
        """The values with the source as a prefix: `train/training_loss`."""
        return {f"{self.source}/{name}": value for name, value in self.values.items()}

    @property
    def entry(self) -> tuple[str, str, int]:
        """For the record of sent rows: source, key, and a digest of all values but throughput."""
        same = {name: x for name, x in self.values.items() if name not in records.PACE}
        return self.source, self.key, zlib.crc32(json.dumps(same, sort_keys=True).encode())


class Reader:
    """The rows of one run. A study has none.

    Args:
        folder: The run's.
    """

    def __init__(self, folder: Path) -> None:
        if run := run_in(folder):
            self._training = run.follow(layout.TRAINING_ROWS)
            self._system = run.follow(layout.SYSTEM_ROWS)
        self._run = run

    def take(self) -> list[Row]:
        """Returns new rows, by step. It may return some rows again."""
        if not self._run:
            return []
        training, run = self._training.take_rows(), Run(self._run.directory)
        if self._training.restarted:
            self._clock = _Clock(_begin(run))
        self._clock.set(run.history)
        rows = [self._training_row(row) for row in training]
        rows += _evaluated(VALIDATION, run.history)
        for name, history in run.evaluators.items():
            rows += _evaluated(layout.evaluator(Path(), name).name, history)
        rows += [_system_row(row) for row in self._system.take_rows()]
        return sorted(rows, key=lambda row: row.step)

    def _training_row(self, row: dict[str, Any]) -> Row:
        try:
            step, values = int(row.pop("step")), {name: float(x) for name, x in row.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunnerError(
                f"{self._training.path} has a row that is not a training row"
            ) from error
        time = self._clock.at(step, values.get("steps_per_second", 0.0))
        return Row(TRAINING, str(step), step, time, values)


class _Clock:
    """Estimates the times of training steps from the files."""

    def __init__(self, begin: float) -> None:
        self._step, self._time = 0, begin
        self._steps: list[int] = []  # of the history's rows, in order
        self._latest: list[float] = []  # the latest time up to each row

    def set(self, rows: Iterable[records.Record]) -> None:
        """Sets the known times from the rows of a history."""
        at = sorted((row.step, getattr(row, "time", 0.0)) for row in rows)
        self._steps, self._latest = [step for step, _ in at], []
        for _, time in at:
            self._latest.append(max(time, self._latest[-1] if self._latest else 0.0))

    def at(self, step: int, pace: float) -> float:
        """Returns the time of a row. Call it in the order of rows."""
        before = bisect.bisect_left(self._steps, step) - 1
        taken = max(step - self._step, 0) / pace if pace > 0 else 0.0
        known = self._latest[before] if before >= 0 else 0.0
        self._step, self._time = step, max(self._time + taken, known)
        return self._time


def _begin(run: Run) -> float:
    """Returns the time of the run's first start."""
    try:
        return float(run.attempts[0]["started"])
    except (IndexError, KeyError, TypeError, ValueError):
        return run.directory.stat().st_mtime


def _evaluated(source: str, rows: Iterable[records.Record]) -> Iterable[Row]:
    """Yields the evaluations and tests of a history."""
    for row in rows:
        if isinstance(row, records.Evaluation) and row.is_own:
            yield Row(source, _key(row.step, row.metrics), row.step, row.time, row.metrics)
        elif isinstance(row, records.Test):
            test = layout.TEST if row.weights == "best" else layout.TEST_LAST
            own = source == VALIDATION
            values = {name.removeprefix("test/"): x for name, x in row.metrics.items()}
            at = test if own else f"{source}/{test}"
            yield Row(at, _key(row.tested, values), row.tested, row.time, values)


def _key(step: int, metrics: Mapping[str, float]) -> str:
    """Returns the key of an evaluation. One step may have evaluations of several sets."""
    return f"{step}-{zlib.crc32(json.dumps(sorted(metrics)).encode()):08x}"


def _system_row(row: dict[str, Any]) -> Row:
    time, step = float(row.pop("time")), int(row.pop("step"))
    return Row(SYSTEM, f"{time}", step, time, {name: float(x) for name, x in row.items()})
