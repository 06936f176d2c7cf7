"""A worker of a run: a process of this machine, started, watched and ended. No TensorFlow."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import console, files, signals
from runner.devices import worker_heartbeat
from runner.errors import RunnerError
from runner.run_folder import watch

_LONGEST_END = 1 << 14
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
            signals.ENDS_WITH_STDIN: "1",
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


class Worker:
    """A process that ends with this one, even if this is killed.

    It is in a session of its own, so that Ctrl-C reaches it only through this process. What the
    chief prints is passed on, but for the last line on stdout, its results: it may start again.

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
        with place.log.open("ab") if place.number else contextlib.nullcontext() as log:
            self._from = log.tell() if log else 0
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **place.environment},
                stdin=subprocess.PIPE,
                stdout=log or subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._passing = threading.Thread(target=self._pass_on, daemon=True)
        self._passing.start()
        self._glance = watch.Glance(place.signs)
        self._alive = clock()

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.poll()

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

    def send(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        self.process.send_signal(number)

    def end(self, deadline: float) -> int:
        """Waits for the end until the clock says `deadline`, then kills; the exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(deadline - self._clock(), 0.0))
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        return code

    @property
    def printed(self) -> str:
        """The last line that the chief has printed on stdout, once it has ended."""
        self._passing.join(_MOMENT_SECONDS)  # a process that it has left behind may hold the pipe
        return self._last.decode(errors="replace")

    def _pass_on(self) -> None:
        """Prints what the chief prints on stdout, but for its last line."""
        for line in self.process.stdout or ():
            if self._last:
                console.answers().say(self._last.decode(errors="replace").removesuffix("\n"))
            self._last = line

    @property
    def last_words(self) -> str:
        """The error that a worker other than the chief ended with, from its log."""
        if not self.place.number or self.code == -signal.SIGKILL:
            return ""
        lines: list[str] = []
        with contextlib.suppress(OSError), self.place.log.open("rb") as file:
            file.seek(max(self._from, file.seek(0, os.SEEK_END) - _LONGEST_END))
            lines = file.read().decode(errors="replace").splitlines()
        for line in reversed(lines):
            if line.startswith("{"):
                with contextlib.suppress(ValueError, KeyError):
                    return str(json.loads(line)["reason"]).partition("\n")[0]
            if line.startswith("runner: "):
                return line.removeprefix("runner: ").strip()
        return lines[-1].strip() if lines else ""


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
