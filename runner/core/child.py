"""Starts, watches, signals and ends a child process. No TensorFlow.

    with Child([sys.executable, "-m", "runner", *flags], log=log) as child:
        if child.wait_until(lambda: has_trained(model_dir)):
            child.send(signal.SIGTERM)
        code = child.end(grace=120)

Subclasses start processes in other ways, such as a fork or a task on another machine.
"""

import contextlib
import enum
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from runner.core import signals
from runner.errors import RunnerError

PIPE = subprocess.PIPE

_POLL_SECONDS = 0.001
_LONGEST_END = 1 << 14  # bytes of a log
_LAST_LINES = 5


class Tie(enum.Enum):
    """The bond between a process and its parent."""

    OWNED = enum.auto()
    """It ends with this process, even if this process is killed. Its stdin is a pipe, and the
    runner's command exits when the pipe closes. It has its own session, so that Ctrl-C reaches it
    only through this process."""

    DETACHED = enum.auto()
    """It outlives this process and its terminal, in its own session."""

    FOREGROUND = enum.auto()
    """It shares this process's session and stdin, like a command in a shell. A scheduler that
    signals or ends the session reaches both."""


class Child:
    """A child process.

    Args:
        command: The command.
        tie: Its bond to this process.
        directory: Its working directory. None means that of this process.
        environment: Variables in addition to those of this process.
        log: A file to which its stderr is appended, and its stdout too unless `answer` is set. If
            None, it prints where this process prints, or to /dev/null if it is detached.
        answer: A file for its stdout, or PIPE.
        message: The input that a detached process reads from stdin.

    Attributes:
        log: The log file, as passed.
        stdin: The pipe to its stdin, which it may watch until the pipe closes.
        stdout: The pipe, if `answer` is PIPE.

    Raises:
        OSError: it cannot be started, or a file cannot be written.
    """

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    log: Path | None = None
    _log_start = 0  # the offset at which this process's output starts in the log
    _has_group = True

    def __init__(
        self,
        command: Sequence[str],
        *,
        tie: Tie = Tie.OWNED,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        answer: Path | int | None = None,
        message: bytes | None = None,
    ) -> None:
        self.log, self._answer = log, answer
        self._has_group = tie is not Tie.FOREGROUND
        variables = {**os.environ, **(environment or {})}
        if tie is Tie.OWNED:
            variables[signals.ENDS_WITH_STDIN] = "1"
        unset = subprocess.DEVNULL if tie is Tie.DETACHED else None
        has_pipe = tie is Tie.OWNED or message is not None
        with contextlib.ExitStack() as files:
            stdout: Any = answer if isinstance(answer, int) else unset
            stderr: Any = unset
            if log:
                log.parent.mkdir(parents=True, exist_ok=True)
                stderr = files.enter_context(log.open("ab"))
                self._log_start = stderr.tell()
            if isinstance(answer, Path):
                answer.unlink(missing_ok=True)  # left by an earlier process
                stdout = files.enter_context(answer.open("ab"))
            elif log and answer is None:
                stdout = stderr
            self._start(
                command,
                cwd=directory,
                env=variables,
                stdin=PIPE if has_pipe else unset,
                stdout=stdout,
                stderr=stderr,
                start_new_session=self._has_group,
            )
        if message is not None and self.stdin:
            with self.stdin as pipe:
                pipe.write(message)

    def _start(self, command: Sequence[str], **options: Any) -> None:
        """Starts the process, with the options of `subprocess.Popen`."""
        self._process: Any = subprocess.Popen(command, **options)
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its process id on its machine."""
        return int(self._process.pid)

    @property
    def code(self) -> int | None:
        """The exit code, negative after a signal, or None while it runs."""
        code: int | None = self._process.poll()
        return code

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits at most `seconds` for the end. Returns the exit code, or None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code

    def wait_until(
        self, condition: Callable[[], object], *, poll_seconds: float = _POLL_SECONDS
    ) -> bool:
        """Waits until the condition holds. Returns False if the process ends first."""
        while self.code is None:
            if condition():
                return True
            time.sleep(poll_seconds)
        return False

    def send(self, number: int) -> None:
        """Sends a signal to the process only, not its group, unless it has ended."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its process group immediately, unless it has ended."""
        if self._has_group and self.code is None:
            with contextlib.suppress(ProcessLookupError):  # a fork that does not lead its group yet
                os.killpg(self.pid, signal.SIGKILL)
                return
        self.send(signal.SIGKILL)

    def end(self, grace: float = 0.0) -> int:
        """Waits `grace` seconds for the end, then kills. Returns the exit code."""
        code = self.wait(grace)
        if code is None:
            self.kill()
            code = self.wait()
        assert code is not None
        if self.stdin:
            with contextlib.suppress(OSError):
                self.stdin.close()
        return code

    def results(self) -> dict[str, Any]:
        """Waits for the end and returns the JSON results that a runner command printed.

        Raises:
            RunnerError: it failed.
        """
        if self.wait():
            raise self.failure()
        assert isinstance(self._answer, Path)
        results: dict[str, Any] = json.loads(self._answer.read_text().splitlines()[-1])
        return results

    def failure(self) -> RunnerError:
        """Returns an error that describes how training ended, with the last lines it printed."""
        lines = "".join(f"\n    {line}" for line in self.last_lines(_LAST_LINES))
        return RunnerError(f"training {ending(self.end())}; its last lines:{lines}")

    def lines(self) -> list[str]:
        """Returns the last lines that it printed to its log."""
        if self.log is None:
            return []
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._log_start, file.seek(0, os.SEEK_END) - _LONGEST_END))
            return file.read().decode(errors="replace").strip().splitlines()
        return []

    def last_lines(self, most: int = 1) -> list[str]:
        """Returns the printed error, from `runner: ` on, or the last lines if there is none."""
        lines = self.lines()
        errors = [number for number, line in enumerate(lines) if line.startswith("runner: ")]
        return lines[errors[-1] :] if errors else lines[-most:]

    def reason(self) -> str:
        """Returns why it failed, from its last output, or "" without output."""
        for line in reversed(self.lines()):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return str(json.loads(line)["reason"])
        return " ".join(self.last_lines()).removeprefix("runner: ")


def ending(code: int) -> str:
    """Describes how a process ended."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """Returns a name such as `SIGKILL`, or `signal 64` for a signal without a name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def exit_status(code: int) -> int:
    """Returns the exit code as a shell reports it: 128 plus the number of a signal."""
    return code if code >= 0 else 128 - code
