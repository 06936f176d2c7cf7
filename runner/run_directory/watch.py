"""Watches a training run from another process, through status.json and the time of its changes.

It uses only this process's clock, so the clocks of two machines may differ. No TensorFlow.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from runner.core import console, heartbeat, layout, text
from runner.errors import RunnerError
from runner.run_directory import claim_file, status
from runner.run_directory.state import FINISHED, UNRESPONSIVE_SECONDS, State
from runner.storage import display_names

ENDED = (*FINISHED, State.DIVERGED)
"""No more checkpoints will be saved. A run that was preempted or failed may be restarted."""

_LOCK_SECONDS = 2 * heartbeat.SECONDS  # while heartbeats are recent, the lock is not tried
_REMIND_SECONDS = 60.0


class Glance:
    """Detects whether a file has changed since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Returns whether it has changed. An unreachable network share counts as unchanged."""
        try:
            with self._path.open("rb") as file:  # NFS may answer a `stat` from its cache
                found = os.fstat(file.fileno())
        except FileNotFoundError:
            new = None
        except OSError:
            return False
        else:
            new = (found.st_ino, found.st_mtime_ns, found.st_size)
        changed, self._seen = new != self._seen, new
        return changed


class Watch:
    """The state of the run in a directory, which may not exist yet.

    A changed status.json or a new checkpoint is a heartbeat.

    Args:
        model_dir: The run's directory.
        timeout: Seconds without a heartbeat after which `wait` gives up. None means never.
        give_up: Called after `timeout` seconds to decide whether to give up without an error. If it
            returns false, it is called again after another `timeout`. If None, `wait` raises.
        last_step: The step whose checkpoint ends a run without status.json, as under Model Garden.
            0 if unknown.
        note: Called with each change of the run's state, and occasionally while waiting.
        clock: Returns seconds. Tests can replace it.

    Attributes:
        state: The state at the last look: that of the last attempt in status.json, `PENDING` if
            there is no such file, and `UNRESPONSIVE` for a process that is lost or unresponsive.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        timeout: float | None,
        give_up: Callable[[], object] | None = None,
        last_step: int = 0,
        note: console.Note = console.say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model_dir = model_dir
        self._timeout = timeout
        self._give_up = give_up
        self._last_step = last_step
        self._note = note
        self._clock = clock
        self._written = Glance(model_dir / layout.STATUS)
        self._committed = Glance(model_dir / layout.CHECKPOINT)
        self._status: status.Status | None = None
        self._alive = self._noted = self._asked = clock()
        self._gone = False
        self.state = State.RUNNING  # which needs no message

    def look(self) -> State:
        """Returns the state of the run, and reports a change."""
        now = self._clock()
        written, committed = self._written.changed(), self._committed.changed()
        if written:
            self._status = status.read(self._model_dir)
        if written or committed:
            self._alive = now
        state = self._judge(quiet=now - self._alive)
        if state != self.state:
            before, self.state, self._noted = self.state, state, now
            self._note(self._news(before))
        return state

    def wait(self) -> str | None:
        """Reports occasionally what the evaluator is waiting for. Called when there is no work.

        Returns:
            Why to stop waiting if `give_up` decides to, otherwise None.

        Raises:
            RunnerError: there was no heartbeat for too long.
        """
        now = self._clock()
        if self.state == State.RUNNING or self.state in ENDED:
            return None
        quiet = now - self._alive
        if self._timeout is not None and now - max(self._alive, self._asked) > self._timeout:
            silence = f"no heartbeat for {text.duration(quiet)}, giving up; {self._seen()}"
            if self._give_up is None:
                raise RunnerError(
                    f"{display_names.of(self._model_dir)}: {silence} "
                    f"(TrainerConfig.continuous_eval_timeout = {self._timeout:g})"
                )
            self._asked = now
            if self._give_up():
                return silence
        if now - self._noted >= _REMIND_SECONDS:
            self._noted = now
            self._note(f"still waiting after {text.duration(quiet)}: {self._seen()}")
        return None

    def _judge(self, *, quiet: float) -> State:
        if self._status is None:
            return State.DONE if 0 < self._last_step <= self._step else State.PENDING
        if self._status.ended:
            return self._status.state
        if self.state == State.UNRESPONSIVE and quiet > 0:
            return State.UNRESPONSIVE
        self._gone = quiet > _LOCK_SECONDS and claim_file.abandoned(self._model_dir / layout.CLAIM)
        is_lost = self._gone or quiet > UNRESPONSIVE_SECONDS
        return State.UNRESPONSIVE if is_lost else State.RUNNING

    def _news(self, before: State) -> str:
        """Returns the message about a new state."""
        if self.state == State.RUNNING:
            begins = "starts" if before == State.PENDING else "continues"
            return f"training {begins} at step {self._step:,}"
        return self._seen() if self.state in ENDED else f"{self._seen()}; waiting"

    def _seen(self) -> str:
        """Describes the run as last seen."""
        seen = self._status
        folder = display_names.of(self._model_dir)
        if seen is None and self._step:
            ends = "has reached" if self.state == State.DONE else "is at"
            return f"training in {folder}, which writes no status, {ends} step {self._step:,}"
        if seen is None:
            return f"no training has started in {folder}"
        if self.state == State.UNRESPONSIVE:
            who = f"process {seen.pid} on {seen.host}, last at step {self._step:,}"
            how = "exited without recording a status" if self._gone else "is unresponsive"
            return f"{who}, {how}"
        ended = {
            State.PREEMPTED: "was preempted",
            State.DONE: "is done",
            State.FAILED: "has failed",
        }
        reason = f" ({seen.reason})" if seen.reason else ""
        return f"training {ended.get(seen.state, seen.state)} at step {self._step:,}{reason}"

    @property
    def _step(self) -> int:
        """The step of the last heartbeat or of the newest checkpoint, whichever is later."""
        names = [path.stem for path in self._model_dir.glob("ckpt-*.index")]
        steps = [int(name[5:]) for name in names if name[5:].isdigit()]
        known = self._status.step if self._status else 0
        return max([known, *steps])
