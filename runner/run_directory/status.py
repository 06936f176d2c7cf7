"""`status.json`: what a run is doing, for other processes to see. No TensorFlow."""

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from runner.core import console, files, heartbeat, layout, signals, typed
from runner.errors import DivergedError, RunnerError
from runner.run_directory import spent as times
from runner.run_directory.state import State
from runner.storage import display_names

_STEP = "%20d\n"  # of fixed length, because it is written in place
_OFTEN = 0.1  # seconds between two writes of the step, because each write checks the lock first

PAUSE, SIGNAL = "pause", "signal"
"""What stopped a run with the state `stopped`, if it was not its own rules."""

WRITTEN = {State.RUNNING, State.DONE, State.STOPPED, State.PREEMPTED, State.DIVERGED, State.FAILED}
"""The states that a run records. All others also depend on other files."""


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of one run.

    Attributes:
        state: `running`, or how it ended.
        step: The last training step completed.
        reason: Why it ended that way, in a few words, or empty if it succeeded.
        heartbeat: When this was written, in seconds since the epoch.
        host: The machine.
        pid: The process id.
        spent: See `runner.run_directory.spent`. None for files of older versions.
        stopped_by: `PAUSE` or `SIGNAL` if that stopped it, otherwise empty. Files of older versions
            have None, which `read` replaces.
    """

    state: State
    step: int
    reason: str
    heartbeat: float
    host: str
    pid: int
    spent: Mapping[str, float] | None = None
    stopped_by: str | None = None

    @property
    def ended(self) -> bool:
        """Whether this attempt of the run will save no further checkpoint."""
        return self.state != State.RUNNING

    @property
    def is_final(self) -> bool:
        """Whether the run ended in a way that no scheduler restarts."""
        return self.state not in (State.RUNNING, State.PREEMPTED)

    @property
    def outcome(self) -> State:
        """The state. For a stopped run, it depends on what stopped it."""
        return {PAUSE: State.PAUSED, SIGNAL: State.PREEMPTED}.get(self.stopped_by or "", self.state)


def read(model_dir: Path) -> Status | None:
    """Returns the status of the run in `model_dir`, or None if there is none."""
    path = model_dir / layout.STATUS
    value = files.read_json(path)
    try:
        if value is None:
            return None
        seen = Status(**value)
        typed.check(seen)
        known = isinstance(seen.spent, dict | None) and isinstance(seen.stopped_by, str | None)
        if seen.state not in WRITTEN or not known:
            raise TypeError("a value of another type")
    except TypeError as error:
        raise RunnerError(f"{path} is not the status of a run ({error}); delete it") from error
    stopped_by = _stopped_by(seen) if seen.stopped_by is None else seen.stopped_by
    return dataclasses.replace(seen, state=State(seen.state), stopped_by=stopped_by)


def _stopped_by(seen: Status) -> str:
    """Derives `stopped_by` from the reason, for files of versions that did not store it."""
    if seen.state == State.STOPPED and seen.reason.startswith("paused at step "):
        return PAUSE
    is_signal = seen.reason.startswith(("stopped by SIG", "ended by a second SIG"))
    return SIGNAL if seen.state == State.STOPPED and is_signal else ""


def last_step(model_dir: Path, seen: Status | None) -> int | None:
    """Returns the last training step completed, even by a killed run. None if no file has it.

    Args:
        model_dir: The run's directory.
        seen: The contents of its status.json, which only an ended attempt keeps up to date.
    """
    if seen and seen.ended:
        return seen.step
    with contextlib.suppress(OSError, ValueError):
        noted = int((model_dir / layout.STEP).read_bytes())
        return max([noted, *_saved(model_dir)])  # step.txt lags at most a tenth of a second
    return seen.step if seen else None


def _saved(model_dir: Path) -> Iterator[int]:
    """Yields the steps of the checkpoints in a run's directory."""
    for path in model_dir.glob(f"{layout.CHECKPOINT_NAME}-*.index"):
        number = path.stem.rpartition("-")[2]
        if number.isdigit():
            yield int(number)


def before(model_dir: Path, note: console.Note = console.say) -> Status | None:
    """Returns the status of the previous attempt, or None. `note` is called if it is damaged.

    Training does not need it and rewrites it.
    """
    try:
        return read(model_dir)
    except RunnerError:
        note(f"{display_names.of(model_dir / layout.STATUS)} was damaged and is replaced")
        return None


def after(error: BaseException) -> State:
    """Returns the state of a run that `error` ended."""
    if isinstance(error, signals.Interrupted):
        return State.PREEMPTED if error.is_preemption else State.STOPPED
    return State.DIVERGED if isinstance(error, DivergedError) else State.FAILED


class StatusFile:
    """Writes the status of this process's run.

    Within the block, a thread rewrites the status `running` every few seconds:

        with status.StatusFile(model_dir) as state:
            state.beat(step)
            state.write(State.DONE, step)

    Args:
        model_dir: The run's directory.
        seconds: The thread's interval.
        spent: The time accounting of this attempt, which is written too.
        note: Called with a line when the thread cannot write.
        clock: Returns seconds since the epoch. Tests can replace it.

    Attributes:
        step: The last training step completed. At first, that of the previous attempt.
        before: The contents of the file before this attempt, or None if there was none.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        seconds: float = heartbeat.SECONDS,
        spent: times.Spent | None = None,
        note: console.Note = console.say,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.before = before(model_dir, note)
        self.step = last_step(model_dir, self.before) or 0  # until the first step of this attempt
        self._path = model_dir / layout.STATUS
        self._step_file: int | None = None
        self._noted = 0.0  # when it was last written
        self._clock = clock
        self._spent = spent
        self._state: State = State.RUNNING
        self._writing = threading.Lock()  # the thread must not write "running" after the end
        self._beating = heartbeat.beating(self._again, seconds=seconds, note=note)

    def __enter__(self) -> Self:
        self.write(State.RUNNING, self.step)
        path = self._path.with_name(layout.STEP)
        files.write_text(path, _STEP % self.step)
        self._step_file = os.open(path, os.O_WRONLY)
        self._beating.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._beating.__exit__(*error)
        if self._step_file is not None:
            os.close(self._step_file)
            self._step_file = None

    @property
    def state(self) -> State:
        """The state that was written last."""
        return self._state

    def write(self, state: State, step: int, reason: str = "", *, stopped_by: str = "") -> None:
        """Writes the status immediately. Any state except `running` is final."""
        with self._writing:
            self._state, self.step = state, step
            self._note_step()
            self._dump(reason, stopped_by)

    def withdraw(self) -> bool:
        """Restores the contents from before this attempt. Returns False if there were none."""
        with self._writing:
            if self.before:
                self._state = State.FAILED  # stops the thread from writing
                files.write_json(self._path, dataclasses.asdict(self.before))
        return self.before is not None

    def beat(self, step: int) -> None:
        """Records the step. step.txt, which survives a kill, lags at most a tenth of a second."""
        self.step = step
        now = time.monotonic()
        if now - self._noted >= _OFTEN:
            self._noted = now
            self._note_step()

    def _note_step(self) -> None:
        if self._step_file is not None:
            files.check(self._path)
            with contextlib.suppress(OSError):  # a full disk; the step is only informational
                os.pwrite(self._step_file, (_STEP % self.step).encode(), 0)

    def _again(self) -> None:
        with self._writing:
            if self._state == State.RUNNING:
                if self._spent:
                    self._spent.beat()
                self._dump()

    def _dump(self, reason: str = "", stopped_by: str = "") -> None:
        now, host = self._clock(), socket.gethostname()
        spent = self._spent.as_dict() if self._spent else None
        status = Status(self._state, self.step, reason, now, host, os.getpid(), spent, stopped_by)
        files.write_json(self._path, dataclasses.asdict(status))
