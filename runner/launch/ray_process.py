"""A task of Ray that runs a command, as if it were a process of this machine. No TensorFlow."""

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
    """A task of Ray.

    Args:
        ray: The library.
        ref: The task's result.
        log: The file for what it prints.
        head: The address of the cluster's head.
    """

    def __init__(self, ray: Any, ref: Any, log: Path, head: str) -> None:
        self.log = log
        self._ray = ray
        self._ref = ref
        self._head = head
        self._code: int | None = None
        self._cancelled = math.inf  # when that was asked for

    @property
    def pid(self) -> int:
        """0: the number on its node is not known."""
        return 0

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, or waits for a node."""
        if self._code is None:
            ended, _ = self._ray.wait([self._ref], timeout=0)
            self._code = self._result() if ended else None
        if self._code is None and time.monotonic() > self._cancelled + _AGAIN_SECONDS:
            self._cancel()  # a task that is just starting may miss it
        return self._code

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the end, at most so long; the exit code, or None if it still runs."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while (code := self.code) is None and (left := end - time.monotonic()) > 0:
            self._ray.wait([self._ref], timeout=min(left, _AGAIN_SECONDS))
        return code

    def send(self, number: int) -> None:
        """Sends SIGTERM, whatever the signal; a task that waits for a node is given up."""
        del number
        if self.code is None:
            self._cancel()

    def kill(self) -> None:
        """Ends it at once."""
        if self.code is None:
            self._ray.cancel(self._ref, force=True)

    def _cancel(self) -> None:
        self._cancelled = time.monotonic()
        self._ray.cancel(self._ref)

    def _result(self) -> int | None:
        """The exit code; None while nothing can be said, as the cluster has lost its head."""
        errors = self._ray.exceptions
        try:
            return int(self._ray.get(self._ref))
        except errors.TaskCancelledError:
            return _NEVER_STARTED
        except errors.RayTaskError as error:  # nothing could be started
            if self.log:
                with self.log.open("a") as file:
                    file.write(f"runner: {error.cause}\n")
            return RunnerError.exit_code
        except errors.RayError:
            return places.LOST if answers(self._head) else None


def answers(address: str) -> bool:
    """Whether somebody listens at the address of a cluster's head."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), _CALL_SECONDS).close()
        return True
    return False


def cause(error: BaseException) -> str:
    """Why, in a line."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
