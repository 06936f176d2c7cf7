"""`status.json`: what a run is doing, for other processes to see. No TensorFlow."""

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from runner.core import console, files, heartbeat, layout, signals
from runner.errors import DivergedError, RunnerError

State = Literal["running", "done", "stopped", "preempted", "diverged", "failed"]

PAUSED = "paused at step "
"""How the reason begins with which a run has stopped at `RunConfig.pause_at`, to go on later."""


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of one run.

    Attributes:
        state: `running`, or how it ended.
        step: The last training step done.
        reason: Why it ended that way, in a few words; empty if all is well.
        heartbeat: When this was written, in seconds since the epoch.
        host: The machine.
        pid: The process.

    """

    state: State
    step: int
    reason: str
    heartbeat: float
    host: str
    pid: int

    @property
    def ended(self) -> bool:
        """Whether no further checkpoint will come from this start of the run."""
        return self.state != "running"


def read(model_dir: Path) -> Status | None:
    """The status of the run in `model_dir`, None if there is none."""
    path = model_dir / layout.STATUS
    value = files.read_json(path)
    try:
        return None if value is None else Status(**value)
    except TypeError as error:
        raise RunnerError(f"{path} is not the status of a run ({error}): remove it") from error


def after(error: BaseException) -> State:
    """The state of a run that was ended by `error`."""
    if isinstance(error, signals.Interrupted):
        return "preempted" if error.is_preemption else "stopped"
    return "diverged" if isinstance(error, DivergedError) else "failed"


class StatusFile:
    """Writes the status of this process's run.

    Inside, a thread writes `running` again every few seconds:

        with status.StatusFile(model_dir) as state:
            state.beat(step)
            state.write("done", step)

    Args:
        model_dir: The run's folder.
        seconds: How often the thread writes.
        note: Called with a line when the thread cannot write.
        clock: Seconds since the epoch, for tests to inject.

    Attributes:
        step: The last training step done; at first, that of the start before.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        seconds: float = heartbeat.SECONDS,
        note: console.Note = console.say,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._before = read(model_dir)
        self.step = self._before.step if self._before else 0  # until this start knows its own
        self._path = model_dir / layout.STATUS
        self._clock = clock
        self._state: State = "running"
        self._writing = threading.Lock()  # the thread must not say "running" after the end
        self._beating = heartbeat.beating(self._again, seconds=seconds, note=note)

    def __enter__(self) -> Self:
        self.write("running", self.step)
        self._beating.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._beating.__exit__(*error)

    @property
    def state(self) -> State:
        """What was written last."""
        return self._state

    def write(self, state: State, step: int, reason: str = "") -> None:
        """Writes at once; any state but `running` is final."""
        with self._writing:
            self._state, self.step = state, step
            self._dump(reason)

    def withdraw(self) -> bool:
        """Puts back what the file said before this start; False if there was none."""
        with self._writing:
            if self._before:
                self._state = "failed"  # so that the thread writes no more
                files.write_json(self._path, dataclasses.asdict(self._before))
        return self._before is not None

    def beat(self, step: int) -> None:
        """Notes the step; the thread writes it down."""
        self.step = step

    def _again(self) -> None:
        with self._writing:
            if self._state == "running":
                self._dump("")

    def _dump(self, reason: str) -> None:
        now, host = self._clock(), socket.gethostname()
        status = Status(self._state, self.step, reason, now, host, os.getpid())
        files.write_json(self._path, dataclasses.asdict(status))
