"""The messages that the command prints when it ends without results."""

import contextlib
import json
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner import errors
from runner.core import console, layout, signals, streams
from runner.errors import ConfigError, RunnerError
from runner.storage import urls


class Ending:
    """The final output of the command: a readable line on stderr and a JSON line on stdout.

    It is printed once, by the main thread or, if that does not respond to a signal, by another.

    Args:
        model_dir: The run's directory, or None for a command without one.
        stop: Holds the step at which the run ended.
        answers: Whether JSON is expected. It is not for a command without a mode.
    """

    def __init__(
        self, model_dir: Path | None, stop: signals.Stop | None = None, *, answers: bool = True
    ) -> None:
        self.model_dir = model_dir
        self._stop = stop or signals.Stop()
        self._answers = answers
        self._unsaid = threading.Semaphore(1)

    def results(self, results: dict[str, Any]) -> None:
        """Prints the results."""
        if self._unsaid.acquire(blocking=False):
            _print_line(json.dumps(results))

    def failed(self, error: BaseException) -> int:
        """Reports why there are no results and returns the exit code.

        After a mistake in flags or configuration, stdout stays empty because no run has started.
        """
        if self._unsaid.acquire(blocking=False):
            console.end()
            is_stop = isinstance(error, signals.Interrupted)
            console.say(self._for_a_person(error), style="" if is_stop else "red")
            if self._answers and not isinstance(error, ConfigError):
                _print_line(json.dumps(self._for_a_program(error)))
        return getattr(error, "exit_code", RunnerError.exit_code)

    def _for_a_person(self, error: BaseException) -> str:
        if isinstance(error, signals.Interrupted):
            return f"runner: {error}{self._way_on(error)}"
        if readable := errors.readable(error):
            return _prefixed(str(readable))
        from runner.core import user_code  # slow to import, and not needed for help

        if (said := user_code.explain(error)) is None:
            return "".join(traceback.format_exception(error)).rstrip()
        if not hasattr(error, "__notes__"):  # no run directory to keep the traceback in
            user_code.keep(error, Path(tempfile.mkdtemp(prefix="runner-")) / layout.TRACEBACK)
        return "\n".join([f"runner: {said}", *getattr(error, "__notes__", ())])

    def _way_on(self, error: signals.Interrupted) -> str:
        step = self._stop.step
        if step is None:
            return ""
        if not step:
            return " before the first step; rerun the command to start"
        if not error.saved:
            return f" at step {step:,}; rerun the command to continue from the newest checkpoint"
        return f" at step {step:,}; everything is saved; rerun the command to continue"

    def _for_a_program(self, error: BaseException) -> dict[str, Any]:
        if isinstance(results := getattr(error, "results", None), dict) and results:
            return results
        from runner.core import user_code
        from runner.run_directory import status

        return {
            "status": status.after(error),
            "step": self._stop.step,
            "reason": user_code.summary(error),
            **({"model_dir": urls.shown(self.model_dir)} if self.model_dir else {}),
        }


def written(code: int, *, is_purpose: bool) -> int:
    """Returns the exit code of a command that ends with `code`, after checking stdout.

    A reader that closes its pipe early is not an error. Any other write error is reported on
    stderr, and is an error if the purpose of the command is to print.
    """
    console.flush()
    error = streams.output_error()
    if error is None or isinstance(error, BrokenPipeError):
        return code
    said = f"cannot write to stdout: {error.strerror}"
    if not is_purpose:
        console.say(f"runner: warning: {said}; the results were not printed")
        return code
    console.say(f"runner: {said}", style="red")
    return code or RunnerError.exit_code


class _Stdout:
    """Passes all output on to stdout and records whether its last line has ended."""

    def __init__(self) -> None:
        self._stream = sys.stdout
        self.is_at_start = True

    def write(self, text: str) -> int:
        """Writes text to stdout."""
        if text:
            self.is_at_start = text.endswith("\n")
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def whole_lines() -> Iterator[None]:
    """Ensures that the JSON line starts on a new line, whatever user code has printed."""
    with contextlib.redirect_stdout(_Stdout()):
        yield


def _prefixed(message: str) -> str:
    """Prefixes each line with `runner: `, except lines that continue the one before."""
    lines = message.splitlines() or [""]
    return "\n".join(line if line.startswith(" ") else f"runner: {line}" for line in lines)


def _print_line(line: str) -> None:
    before = "" if getattr(sys.stdout, "is_at_start", True) else "\n"
    print(f"{before}{line}", flush=True)
