"""The heartbeat of a worker for the supervisor that started it, with the worker's own speed.

Each step of several workers waits for the slowest, so its speed limits all. A worker's own time is
the time that it computes and waits for its inputs. Standard library only.
"""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from runner.core import files, heartbeat, signals
from runner.errors import LostError

PLACE = "RUNNER_WORKER_SIGNS"
"""Set in the environment of a worker: the file for its heartbeat."""

_BACK_OFF_SECONDS = 2.0


class Signs:
    """Writes the file of one worker periodically from a thread.

    Args:
        path: The file.
        seconds: The interval.
    """

    def __init__(self, path: Path, *, seconds: float) -> None:
        self._path = path
        self._pause = seconds
        self._now = threading.Event()
        self._lock = threading.Lock()
        self._formed = False
        self._step: int | None = None
        self._steps, self._seconds, self._waited = 0, 0.0, 0.0
        self._worked = time.process_time()
        threading.Thread(target=self._write_regularly, daemon=True, name="signs of life").start()

    def formed(self) -> None:
        """Records that all workers have found each other, so the phase that could hang is over."""
        self._formed = True
        self._now.set()

    def at(self, step: int, *, steps: int, seconds: float, waited: float) -> None:
        """Records that a training loop has ended.

        Args:
            step: The last step.
            steps: How many steps the loop had.
            seconds: How long it took.
            waited: Seconds of that during which this worker waited for its inputs.
        """
        with self._lock:
            is_first, self._step = self._step is None, step
            self._steps += steps
            self._seconds += seconds
            self._waited += waited
        if is_first:
            self.formed()

    def _write_regularly(self) -> None:
        while True:
            try:
                files.write_json(self._path, self._signs())
            except LostError:  # the directory belongs to another run now
                return
            except OSError:  # a full disk, or an unavailable share
                time.sleep(_BACK_OFF_SECONDS)
            self._now.wait(self._pause)
            self._now.clear()

    def _signs(self) -> dict[str, Any]:
        """Returns the content of the file. Times are seconds per step since the last write."""
        with self._lock:
            steps, since, self._worked = self._steps, self._worked, time.process_time()
            spent = {"seconds": self._seconds, "working": self._worked - since}
            spent["waiting"] = self._waited
            self._steps, self._seconds, self._waited = 0, 0.0, 0.0
        each = {name: each / steps for name, each in spent.items()} if steps else {}
        return {
            **{"pid": os.getpid(), "host": socket.gethostname(), "formed": self._formed},
            **{"step": self._step, "written": time.time(), **each},
        }


_mine: Signs | None = None


def begin(*, seconds: float = heartbeat.SECONDS) -> None:
    """Starts the heartbeat in a process that a supervisor has started."""
    global _mine
    if path := os.environ.pop(PLACE, ""):
        signals.die_with_parent()
        _mine = Signs(Path(path), seconds=seconds)


def is_worker() -> bool:
    """Returns whether a supervisor has started this process."""
    return _mine is not None


def formed() -> None:
    """Records that the workers have found each other, if there is a supervisor."""
    if _mine:
        _mine.formed()


def at(step: int, *, steps: int, seconds: float, waited: float) -> None:
    """Records that a training loop has ended, if there is a supervisor. See `Signs.at`."""
    if _mine:
        _mine.at(step, steps=steps, seconds=seconds, waited=waited)
