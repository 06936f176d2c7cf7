"""Errors that the user sees as one short message, with an exit code."""

import contextlib
import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class RunnerError(Exception):
    """The run cannot continue, and the message gives the reason. No traceback is shown.

    Args:
        message: Names options of the mode in braces. `{steps}` is shown as `--steps=1:2`, or as
            `steps='1:2'` in a call from Python.
        options: These options, by name. None for one that is named without a value.
    """

    exit_code = 1
    in_python = False
    ag_pass_through = True  # AutoGraph re-raises such an error unchanged

    def __init__(self, message: str = "", **options: Any) -> None:
        super().__init__(message)
        self.options = options

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook prints instead of a traceback: the user's lines, the message."""
        libraries = (sys.prefix, sys.base_prefix, str(Path(__file__).parent))
        stack = traceback.extract_tb(self.__traceback__)
        frames = [each for each in stack if not each.filename.startswith(libraries)]
        return [
            *(f"  line {each.lineno}: {each.line}" for each in frames),
            f"{type(self).__name__}: {self}",
        ]

    def __str__(self) -> str:
        text = super().__str__()
        for name, value in self.options.items():
            shown = _as_argument(name, value) if self.in_python else _as_flag(name, value)
            text = text.replace(f"{{{name}}}", shown)
        return text


class ConfigError(RunnerError):
    """A mistake in flags or configuration, reported with its location and a suggestion."""

    exit_code = 2


class LostError(RunnerError):
    """Another process is writing in the directory, or this process's lock was deleted."""


class CorruptionError(RunnerError):
    """A repeated training step gave other bits, so the hardware may be faulty."""


class DivergedError(RunnerError, RuntimeError):  # Model Garden raises a RuntimeError
    """Training diverged. The message gives the cause and any checkpoint to go back to.

    Either the loss is not finite or is above `TrainerConfig.loss_upper_bound`, or a variable is not
    finite.
    """

    exit_code = 3


class RejectedError(RunnerError):
    """Export validation failed: an exported model does not reproduce its checkpoint's metrics.

    Attributes:
        results: The exported and the rejected models, for JSON.
    """

    exit_code = 4

    def __init__(self, message: str, results: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.results = results or {}


class DifferError(RunnerError):
    """The compared runs are not equal.

    Attributes:
        results: The differences, for JSON.
    """

    exit_code = 5

    def __init__(self, message: str, results: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.results = results or {}


class VerdictError(RunnerError):
    """The candidate of `--mode=decide` is not better than the baseline.

    Attributes:
        results: The decision, for JSON.
        exit_code: 7 if it is worse, 8 if it is equivalent, 9 if nothing could be decided.
    """

    def __init__(self, message: str, results: dict[str, Any], verdict: str) -> None:
        super().__init__(message)
        self.results = results
        self.exit_code = {"worse": 7, "equivalent": 8, "undecided": 9}[verdict]


class GaveUpError(RunnerError):
    """Several attempts in a row ended before they had made a step, so no further one is made."""

    exit_code = 6


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Makes errors raised inside name Python arguments instead of flags."""
    try:
        yield
    except RunnerError as error:
        error.in_python = True
        raise


def _as_flag(name: str, value: Any) -> str:
    return f"--{name}" if value is None or value is True else f"--{name}={value}"


def _as_argument(name: str, value: Any) -> str:
    return name if value is None else f"{name}={value!r}"


# Errors of disks, permissions and file types, which are not the program's fault.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
_FILES = (
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR),
    *(errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
)
_LABEL = re.compile(r"label value of (\S+) which is outside .* range of (\[.+?\))")
_REFUSED = re.compile(f".+({'|'.join(re.escape(os.strerror(number)) for number in _DISK)})")


def readable(error: BaseException) -> RunnerError | None:
    """Returns the error to show instead of a traceback, or None if a traceback is needed."""
    if isinstance(error, RunnerError):
        return error
    if isinstance(error, OSError) and error.errno in (*_DISK, *_FILES):
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return _of_the_disk(said) if error.errno in _DISK else RunnerError(said)
    return from_graph(error)


def from_graph(error: BaseException) -> RunnerError | None:
    """Returns the error to show for a TensorFlow error, or None if a traceback is needed.

    If Python inside a graph raised a ConfigError, the text of TensorFlow's error contains its
    class, message and traceback. If memory ran out, the text names the tensor. If a disk is full,
    it names the file.
    """
    if found := re.search(r"\bConfigError: (.+)", str(error)):
        return ConfigError(found[1])
    if found := re.search(r"OOM when (allocating .+)", str(error)):
        return RunnerError(
            f"out of memory when {found[1]}\nuse a smaller global_batch_size, or "
            "RunConfig.gradient_accumulation, which takes a batch in parts"
        )
    if found := _LABEL.search(str(error)):
        return ConfigError(f"a label is {found[1]}, but the model has outputs for {found[2]}")
    if found := _REFUSED.search(str(error)):
        return _of_the_disk(found[0])
    return None


def _of_the_disk(said: str) -> RunnerError:
    return RunnerError(f"{said}; make it writable and rerun the command to continue")
