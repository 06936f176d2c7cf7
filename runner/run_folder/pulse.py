"""When the process that holds a run's folder last gave a sign of life. No TensorFlow.

Two machines' clocks are never compared. On this machine, the time in status.json is of the clock
that is read here. Of a process elsewhere it counts when this process has seen its files change.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runner.core import heartbeat, layout
from runner.run_folder import claim_file, status, watch

PATIENCE_SECONDS = 2 * heartbeat.SECONDS + 1
"""After two looks that far apart, a process that lives has given a sign."""


class Sign(NamedTuple):
    """The last sign of life.

    Attributes:
        seconds: How long ago it was.
        is_known: If not, there was none since the first look, `seconds` ago.
    """

    seconds: float
    is_known: bool


class Pulse:
    """The signs of life in one folder.

    Args:
        folder: The run's.
        clock: Seconds, for tests to inject.
        wall: Seconds since the epoch, likewise.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._wall = wall
        names = (layout.STATUS, layout.CLAIM, layout.STEP)
        self._glances = [watch.Glance(folder / name) for name in names]
        self._since: float | None = None
        self._has_changed = False

    def look(self) -> Sign:
        """What is known now."""
        changed = [glance.changed() for glance in self._glances]
        now = self._clock()
        if self._since is None:
            self._since = now
        elif any(changed):
            self._since, self._has_changed = now, True
        holder = claim_file.look(self._folder / layout.CLAIM)
        seen = status.read(self._folder)
        if holder and holder.holder.is_here and seen and seen.pid == holder.holder.pid:
            return Sign(max(self._wall() - seen.heartbeat, 0.0), True)
        return Sign(now - self._since, self._has_changed)
