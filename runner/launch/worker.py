"""A worker of a run: a process of this machine, started, watched and ended. No TensorFlow."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import child, console, files
from runner.devices import worker_heartbeat
from runner.errors import RunnerError
from runner.run_folder import watch

_MOMENT_SECONDS = 1.0


class Place(NamedTuple):
    """Which worker a process is.

    Attributes:
        number: 0 is the chief.
        hosts: The addresses of all workers.
        folder: The run's `workers/`.
        gpus: The GPUs that it may use, as CUDA_VISIBLE_DEVICES names them; None: all.
    """

    number: int
    hosts: Sequence[str]
    folder: Path
    gpus: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What tells the process so."""
        task = {"type": "worker", "index": self.number}
        found = {
            "TF_CONFIG": json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task}),
            worker_heartbeat.PLACE: str(self.signs),
        }
        return found if self.gpus is None else {**found, "CUDA_VISIBLE_DEVICES": self.gpus}

    @property
    def log(self) -> Path:
        """What a worker other than the chief prints."""
        return self.folder / f"{self.number}.log"

    @property
    def signs(self) -> Path:
        """Its signs of life."""
        return self.folder / f"{self.number}.json"


class Worker(child.Child):
    """A process whose heartbeats are watched.

    What the chief prints is passed on, but for the last line on stdout, its results: it may start
    again.

    Args:
        command: The command.
        place: Which worker it is.
        clock: Seconds, for tests to inject.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Place,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self._clock = clock
        self._last = b""
        place.signs.unlink(missing_ok=True)
        super().__init__(
            command,
            environment=place.environment,
            log=place.log if place.number else None,
            answer=None if place.number else child.PIPE,
        )
        self._passing = threading.Thread(target=self._pass_on, daemon=True)
        self._passing.start()
        self._glance = watch.Glance(place.signs)
        self._alive = clock()

    @property
    def shows(self) -> Mapping[str, Any]:
        """Its signs of life, empty before the first."""
        with contextlib.suppress(OSError, RunnerError):
            return files.read_json(self.place.signs) or {}
        return {}

    @property
    def has_formed(self) -> bool:
        """Whether it has found the others."""
        return bool(self.shows.get("formed"))

    @property
    def silent_for(self) -> float:
        """Seconds without a sign of life."""
        if self._glance.changed():
            self._alive = self._clock()
        return self._clock() - self._alive

    @property
    def printed(self) -> str:
        """The last line that the chief has printed on stdout, once it has ended."""
        self._passing.join(_MOMENT_SECONDS)  # a process that it has left behind may hold the pipe
        return self._last.decode(errors="replace")

    def _pass_on(self) -> None:
        """Prints what the chief prints on stdout, but for its last line."""
        for line in self.stdout or ():
            if self._last:
                console.answers().say(self._last.decode(errors="replace").removesuffix("\n"))
            self._last = line

    def reason(self) -> str:
        """The error that a worker other than the chief ended with, in one line."""
        if self.code == -signal.SIGKILL:
            return ""
        return super().reason().partition("\n")[0]
