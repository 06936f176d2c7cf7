"""Wraps a Ray task that runs a command as a local process. No TensorFlow."""

import contextlib
import math
import signal
import socket
import time
from pathlib import Path
from typing import Any

from runner.core.child import Child
from runner.errors import RunnerError
from runner.studies import places

_NEVER_STARTED = 128 + signal.SIGTERM
_AGAIN_SECONDS = 5.0
_CALL_SECONDS = 2.0


class Task(Child):
    """A Ray task.

    Args:
        ray: The library.
        ref: The task's result.
        log: The file for its output.
        head: The address of the cluster's head.
    """

    def __init__(self, ray: Any, ref: Any, log: Path, head: str) -> None:
        self.log = log
        self._ray = ray
        self._ref = ref
        self._head = head
        self._code: int | None = None
        self._cancelled = math.inf  # time of the request

    @property
    def pid(self) -> int:
        """0, because the process id on the node is unknown."""
        return 0

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs or waits for a node."""
        if self._code is None:
            ended, _ = self._ray.wait([self._ref], timeout=0)
            self._code = self._result() if ended else None
        if self._code is None and time.monotonic() > self._cancelled + _AGAIN_SECONDS:
            self._cancel()  # a task that is just starting may miss the first request
        return self._code

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the end, at most this long. Returns the exit code, or None if it still runs."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while (code := self.code) is None and (left := end - time.monotonic()) > 0:
            self._ray.wait([self._ref], timeout=min(left, _AGAIN_SECONDS))
        return code

    def send(self, number: int) -> None:
        """Sends SIGTERM, regardless of the signal. A task that waits for a node is cancelled."""
        del number
        if self.code is None:
            self._cancel()

    def kill(self) -> None:
        """Ends it immediately."""
        if self.code is None:
            self._ray.cancel(self._ref, force=True)

    def _cancel(self) -> None:
        self._cancelled = time.monotonic()
        self._ray.cancel(self._ref)

    def _result(self) -> int | None:
        """Returns the exit code, or None while it is unknown because the head is unreachable."""
        errors = self._ray.exceptions
        try:
            return int(self._ray.get(self._ref))
        except errors.TaskCancelledError:
            return _NEVER_STARTED
        except errors.RayTaskError as error:  # the command could not be started
            if self.log:
                with self.log.open("a") as file:
                    file.write(f"runner: {error.cause}\n")
            return RunnerError.exit_code
        except errors.RayError:
            return places.LOST if answers(self._head) else None


def answers(address: str) -> bool:
    """Returns whether a process listens at the address of a cluster's head."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), _CALL_SECONDS).close()
        return True
    return False


def cause(error: BaseException) -> str:
    """Returns the last line of an error."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
