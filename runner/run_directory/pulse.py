"""Measures the time since the last heartbeat of the process that holds a run. No TensorFlow.

It never compares the clocks of two machines. For a process on this machine, it uses the time in
status.json. For a remote process, it uses the time at which this process saw the files change.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runner.core import heartbeat, layout
from runner.run_directory import claim_file, status, watch

PATIENCE_SECONDS = 2 * heartbeat.SECONDS + 1
"""A live process sends a heartbeat between two looks that are this far apart."""


class Sign(NamedTuple):
    """The last heartbeat.

    Attributes:
        seconds: How long ago it was.
        is_known: If False, there has been none since the first look, `seconds` ago.
    """

    seconds: float
    is_known: bool


class Pulse:
    """The heartbeat in one directory.

    Args:
        folder: The run's directory.
        clock: Returns seconds. Tests can replace it.
        wall: Returns seconds since the epoch. Tests can replace it.
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
        """Returns the last heartbeat known now."""
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
