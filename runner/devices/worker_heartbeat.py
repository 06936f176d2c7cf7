"""What a worker shows the supervisor that started it: that it lives, and how fast it is by itself.

A worker of several waits for the slowest in each step, so its pace is everybody's. Its own time is
what it computes and what it waits for its inputs. Standard library only.
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
"""Set in the environment of a worker: the file for its signs of life."""

_BACK_OFF_SECONDS = 2.0


class Signs:
    """Writes the file of one worker, now and then, from a thread.

    Args:
        path: The file.
        seconds: How often.
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
        """All workers have found each other: what could hang for ever is over."""
        self._formed = True
        self._now.set()

    def at(self, step: int, *, steps: int, seconds: float, waited: float) -> None:
        """A training loop has ended.

        Args:
            step: The last step.
            steps: How many the loop had.
            seconds: How long it took.
            waited: Seconds of that in which this worker waited for its inputs.
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
            except LostError:  # the folder is another run's now
                return
            except OSError:  # a full disk, or a share that is away
                time.sleep(_BACK_OFF_SECONDS)
            self._now.wait(self._pause)
            self._now.clear()

    def _signs(self) -> dict[str, Any]:
        """What the file says; times are seconds a step since it was written last."""
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
    """Begins to give signs of life, in a process that a supervisor has started."""
    global _mine
    if path := os.environ.pop(PLACE, ""):
        signals.die_with_parent()
        _mine = Signs(Path(path), seconds=seconds)


def is_worker() -> bool:
    """Whether a supervisor has started this process."""
    return _mine is not None


def formed() -> None:
    """The workers have found each other; does nothing in a process without a supervisor."""
    if _mine:
        _mine.formed()


def at(step: int, *, steps: int, seconds: float, waited: float) -> None:
    """A training loop has ended, see `Signs.at`; likewise."""
    if _mine:
        _mine.at(step, steps=steps, seconds=seconds, waited=waited)
