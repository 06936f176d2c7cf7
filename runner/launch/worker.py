"""Starts, watches and ends a worker of a run, a local process. No TensorFlow."""

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
from runner.run_directory import watch
from runner.studies import warm

_MOMENT_SECONDS = 1.0


class Place(NamedTuple):
    """The identity of a worker process.

    Attributes:
        number: 0 is the chief.
        hosts: The addresses of all workers.
        folder: The run's `workers/`.
        gpus: The GPUs that it may use, as CUDA_VISIBLE_DEVICES names them, or None for all.
    """

    number: int
    hosts: Sequence[str]
    folder: Path
    gpus: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that identify the process."""
        task = {"type": "worker", "index": self.number}
        found = {
            "TF_CONFIG": json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task}),
            worker_heartbeat.PLACE: str(self.signs),
        }
        return found if self.gpus is None else {**found, "CUDA_VISIBLE_DEVICES": self.gpus}

    @property
    def log(self) -> Path:
        """The output of a worker other than the chief."""
        return self.folder / f"{self.number}.log"

    @property
    def signs(self) -> Path:
        """Its heartbeats."""
        return self.folder / f"{self.number}.json"


class Worker(child.Child):
    """A process whose heartbeats are watched.

    The chief's output is passed on. The last line of its stdout, the results, is held back, because
    the chief may be restarted.

    Args:
        command: The command.
        place: The identity of the worker.
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
        """Its last heartbeat, or empty before the first."""
        with contextlib.suppress(OSError, RunnerError):
            return files.read_json(self.place.signs) or {}
        return {}

    @property
    def has_formed(self) -> bool:
        """Whether it has found the others."""
        return bool(self.shows.get("formed"))

    @property
    def silent_for(self) -> float:
        """The seconds since its last heartbeat."""
        if self._glance.changed():
            self._alive = self._clock()
        return self._clock() - self._alive

    @property
    def printed(self) -> str:
        """The last line that the chief has printed on stdout, once it has ended."""
        self._passing.join(_MOMENT_SECONDS)  # a process left behind may hold the pipe
        return self._last.decode(errors="replace")

    def _pass_on(self) -> None:
        """Prints all stdout lines of the chief but the last."""
        for line in self.stdout or ():
            if self._last:
                console.answers().say(self._last.decode(errors="replace").removesuffix("\n"))
            self._last = line

    def reason(self) -> str:
        """Returns the error that a worker other than the chief ended with, in one line."""
        if self.code == -signal.SIGKILL:
            return ""
        return super().reason().partition("\n")[0]


class WarmWorker(Worker, warm.Fork):
    """A worker that is forked from a process that has imported its modules, if that is possible."""

    _execs = True
