"""How long epochs take, and the run altogether. No TensorFlow."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.core import console, files, schedule, text

_FLOOD = 1.0  # seconds; shorter epochs are not announced one by one


class EpochTimes:
    """The time of each epoch, evaluations and commits included, and that of the run so far.

    The training rows have both, so that a resumed run counts on from them: `seconds`, of the run up
    to the row, and in the first row after an epoch has ended `epoch_seconds`.

    Args:
        grid: When epochs end; nothing is counted if it has none.
        total: The number of epochs in the run.
        rows: The file of the training rows, cut to where the run is.
        clock: Seconds, for tests to inject.

    Attributes:
        last: How long the last epoch took; 0 before the first has ended.
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
        self._ended: float | None = None  # the time of an epoch that no row has yet
        self.last = 0.0
        self.rewind()

    def after(self, loop: schedule.Loop) -> dict[str, float]:
        """After a loop: what its row says, if it has one; an epoch that has ended is announced."""
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
            if self.last >= _FLOOD:
                taken, so_far = text.duration(self.last), text.duration(seconds)
                which = min(number, math.ceil(self._total))  # a step may be longer than it
                console.say(f"epoch {which:,} of {self._total:g} took {taken}, {so_far} so far")
        if not loop.summary:
            return {}
        ended, self._ended = self._ended, None
        return {"seconds": seconds, **({} if ended is None else {"epoch_seconds": ended})}

    def rewind(self) -> None:
        """Counts on from the last row, after the run went back."""
        if self._grid.epoch and self._rows:
            self._began = self._ended = None
            self._before, self._epoch = _counted(self._rows)


def _counted(rows: Path) -> tuple[float, float]:
    """The run's time at the last row, and at the last row after the end of an epoch."""
    newest: dict[str, Any] = files.last_json_line(rows) or {}
    lines = rows.read_bytes().splitlines() if newest else []
    ended = next((line for line in reversed(lines) if b'"epoch_seconds"' in line), b"{}")
    return float(newest.get("seconds", 0.0)), float(json.loads(ended).get("seconds", 0.0))
