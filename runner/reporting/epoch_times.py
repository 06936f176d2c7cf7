"""Measures the time of each epoch and of the whole run. No TensorFlow."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.core import console, files, schedule, text

_FLOOD = 1.0  # seconds. Shorter epochs are not announced individually


class EpochTimes:
    """The time of each epoch, with evaluations and checkpoints, and of the run so far.

    The training rows contain both, so that a resumed run continues from them: `seconds` is the time
    of the run up to the row. The first row after the end of an epoch also has `epoch_seconds`.

    Args:
        grid: When epochs end. Without epochs, no time is measured.
        total: The number of epochs in the run.
        rows: The file of the training rows, cut at the run's current step.
        clock: Returns seconds. Tests can replace it.

    Attributes:
        last: How long the last epoch took, or 0 before the first has ended.
    """

    def __init__(
        self,
        grid: schedule.Grid,
        *,
        total: float = 0.0,
        rows: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._grid = grid
        self._total = total
        self._clock = clock
        self._began: float | None = None  # the clock when the run's time was 0
        self._before = self._epoch = 0.0
        self._ended: float | None = None  # the time of an epoch that is in no row yet
        self.last = 0.0
        self.rewind()

    def after(self, loop: schedule.Loop) -> dict[str, float]:
        """Returns the values for the row after a loop, and announces an epoch that has ended."""
        if not self._grid.epoch:
            return {}
        now = self._clock()
        if self._began is None:
            self._began = now - loop.seconds - self._before
        seconds = now - self._began
        number = self._grid.epochs(loop.step)
        if number > self._grid.epochs(loop.step - loop.steps):
            self._ended = self.last = seconds - self._epoch
            self._epoch = seconds
            if self.last >= _FLOOD and console.STDERR.shows_progress:
                taken, so_far = text.duration(self.last), text.duration(seconds)
                which = min(number, math.ceil(self._total))  # a step may be longer than an epoch
                console.say(f"epoch {which:,} of {self._total:g} took {taken}, {so_far} so far")
        if not loop.summary:
            return {}
        ended, self._ended = self._ended, None
        return {"seconds": seconds, **({} if ended is None else {"epoch_seconds": ended})}

    def rewind(self) -> None:
        """Continues from the last row after a rollback."""
        if self._grid.epoch and self._rows:
            self._began = self._ended = None
            self._before, self._epoch = _counted(self._rows)


def _counted(rows: Path) -> tuple[float, float]:
    """Returns the run's time at the last row, and at the last row that ended an epoch."""
    newest: dict[str, Any] = (files.last_json_lines(rows) or [{}])[-1]
    lines = rows.read_bytes().splitlines() if newest else []
    ended = next((line for line in reversed(lines) if b'"epoch_seconds"' in line), b"{}")
    return float(newest.get("seconds", 0.0)), float(json.loads(ended).get("seconds", 0.0))
