"""A task of Ray that runs a command, as if it were a process of this machine. No TensorFlow."""

import contextlib
import math
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from runner.errors import RunnerError
from runner.studies import places

_NEVER_STARTED = 128 + signal.SIGTERM
_AGAIN_SECONDS = 5.0
_CALL_SECONDS = 2.0


class Process:
    """A task: what is needed of `subprocess.Popen`.

    Args:
        ray: The library.
        ref: The task's result.
        output: The file for what it prints.
        head: The address of the cluster's head.
    """

    pid = 0
    stdin = None

    def __init__(self, ray: Any, ref: Any, output: Path, head: str) -> None:
        self._ray = ray
        self._ref = ref
        self._output = output
        self._head = head
        self._code: int | None = None
        self._cancelled = math.inf  # when that was asked for

    def poll(self) -> int | None:
        """The exit code; None while it runs, or waits for a node."""
        if self._code is None:
            ended, _ = self._ray.wait([self._ref], timeout=0)
            self._code = self._result() if ended else None
        if self._code is None and time.monotonic() > self._cancelled + _AGAIN_SECONDS:
            self._cancel()  # a task that is just starting may miss it
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            subprocess.TimeoutExpired: it has not ended after `timeout` seconds.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := end - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired("runner", timeout or 0)
            self._ray.wait([self._ref], timeout=min(left, _AGAIN_SECONDS))
        return code

    def send_signal(self, sig: int, /) -> None:
        """Sends SIGTERM, whatever the signal; a task that waits for a node is given up."""
        del sig
        if self.poll() is None:
            self._cancel()

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
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
            with self._output.open("a") as file:
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
