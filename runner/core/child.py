"""A process that this one starts, watches, signals and ends. No TensorFlow.

    with Child([sys.executable, "-m", "runner", *flags], log=log) as child:
        if child.wait_until(lambda: has_trained(model_dir)):
            child.send(signal.SIGTERM)
        code = child.end(grace=120)

Processes that start in another way, such as a fork or a task on another machine, are subclasses.
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
    """What binds a process to the one that started it."""

    OWNED = enum.auto()
    """It ends with this process, even if this is killed: its stdin is a pipe, and the runner's
    command watches for the end of it. It has its own session, so that Ctrl-C reaches it only
    through this process."""

    DETACHED = enum.auto()
    """It outlives this process and its terminal, in its own session."""

    FOREGROUND = enum.auto()
    """It has this process's session and stdin, as a shell's command does: a scheduler that signals
    or ends the session reaches both."""


class Child:
    """A process that this one has started.

    Args:
        command: The command.
        tie: What binds it to this process.
        directory: Its working directory; None: that of this process.
        environment: The variables that it has in addition to those of this process.
        log: A file to append its stderr to, and its stdout, too, unless `answer` is set; None: it
            prints where this process prints, or nowhere if it is detached.
        answer: A file for its stdout, or PIPE.
        message: What a detached process reads from stdin.

    Attributes:
        log: As passed.
        stdin: The pipe whose end it may watch for.
        stdout: The pipe, if `answer` is PIPE.

    Raises:
        OSError: it cannot be started, or a file cannot be written.
    """

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    log: Path | None = None
    _log_start = 0  # where in the log this process begins
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
        """Starts the process; the options are those of `subprocess.Popen`."""
        self._process: Any = subprocess.Popen(command, **options)
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its number on its machine."""
        return int(self._process.pid)

    @property
    def code(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        code: int | None = self._process.poll()
        return code

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the end, at most so long; the exit code, or None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code

    def wait_until(
        self, condition: Callable[[], object], *, poll_seconds: float = _POLL_SECONDS
    ) -> bool:
        """Waits until the condition holds; False if the process ended first."""
        while self.code is None:
            if condition():
                return True
            time.sleep(poll_seconds)
        return False

    def send(self, number: int) -> None:
        """Sends a signal to the process alone, unless it has ended."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends the process and its process group at once, unless it has ended."""
        if self._has_group and self.code is None:
            with contextlib.suppress(ProcessLookupError):  # a fork that does not lead it yet
                os.killpg(self.pid, signal.SIGKILL)
                return
        self.send(signal.SIGKILL)

    def end(self, grace: float = 0.0) -> int:
        """Waits so many seconds for the end, then kills; the exit code."""
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
        """Waits for the end; the results that a command of the runner has answered with.

        Raises:
            RunnerError: it failed.
        """
        if self.wait():
            raise self.failure()
        assert isinstance(self._answer, Path)
        results: dict[str, Any] = json.loads(self._answer.read_text().splitlines()[-1])
        return results

    def failure(self) -> RunnerError:
        """An error that says how training ended, with the last lines that it printed."""
        lines = "".join(f"\n    {line}" for line in self.last_lines(_LAST_LINES))
        return RunnerError(f"training {ending(self.end())}; its last lines:{lines}")

    def lines(self) -> list[str]:
        """The end of what it has printed to its log."""
        if self.log is None:
            return []
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._log_start, file.seek(0, os.SEEK_END) - _LONGEST_END))
            return file.read().decode(errors="replace").strip().splitlines()
        return []

    def last_lines(self, most: int = 1) -> list[str]:
        """The error that it printed, from `runner: ` on; without one, its last lines."""
        lines = self.lines()
        errors = [number for number, line in enumerate(lines) if line.startswith("runner: ")]
        return lines[errors[-1] :] if errors else lines[-most:]

    def reason(self) -> str:
        """Why it failed, by what it answered or printed last; empty if it printed nothing."""
        for line in reversed(self.lines()):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return str(json.loads(line)["reason"])
        return " ".join(self.last_lines()).removeprefix("runner: ")


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 64` for one without a name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def exit_status(code: int) -> int:
    """The exit code as a shell has it: 128 and the number of a signal."""
    return code if code >= 0 else 128 - code
