"""What goes wrong in a way the user should read: one short message, and an exit code."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import Any


class RunnerError(Exception):
    """The run cannot go on; the message says why. No traceback is shown for it.

    Args:
        message: Options of the mode are in braces: `{steps}` is shown as `--steps=1:2`, or, where
            Python called, as `steps='1:2'`.
        options: These options, by name; None for one that is named without a value.
    """

    exit_code = 1
    in_python = False
    ag_pass_through = True  # AutoGraph leaves such an error as it is

    def __init__(self, message: str = "", **options: Any) -> None:
        super().__init__(message)
        self.options = options

    def __str__(self) -> str:
        text = super().__str__()
        for name, value in self.options.items():
            shown = _as_argument(name, value) if self.in_python else _as_flag(name, value)
            text = text.replace(f"{{{name}}}", shown)
        return text


class ConfigError(RunnerError):
    """A mistake in flags or configuration: what is wrong, where it was written, what was meant."""

    exit_code = 2


class LostError(RunnerError):
    """Another process writes in the folder now, or this one's claim was deleted."""


class DivergedError(RunnerError, RuntimeError):  # official raises a RuntimeError
    """The loss is no longer finite; the message names the last good checkpoint."""

    exit_code = 3


class RejectedError(RunnerError):
    """A gate refused: an exported model does not score what its checkpoint scores.

    Attributes:
        results: For JSON: what was exported, and what was rejected.
    """

    exit_code = 4

    def __init__(self, message: str, results: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.results = results or {}


class DifferError(RunnerError):
    """The runs that were compared are not equal.

    Attributes:
        results: For JSON: in what they differ.
    """

    exit_code = 5

    def __init__(self, message: str, results: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.results = results or {}


class GaveUpError(RunnerError):
    """Start after start ended before it had made a step: no further one is worth it."""

    exit_code = 6


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Inside, which Python has called, messages name arguments instead of flags."""
    try:
        yield
    except RunnerError as error:
        error.in_python = True
        raise


def _as_flag(name: str, value: Any) -> str:
    return f"--{name}" if value is None or value is True else f"--{name}={value}"


def _as_argument(name: str, value: Any) -> str:
    return name if value is None else f"{name}={value!r}"


# Errors from disks, permissions and kinds of files, which are not the program's fault.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
_FILES = (
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR),
    *(errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
)
_LABEL = re.compile(r"label value of (\S+) which is outside .* range of (\[.+?\))")
_REFUSED = re.compile(f".+({'|'.join(re.escape(os.strerror(number)) for number in _DISK)})")


def readable(error: BaseException) -> RunnerError | None:
    """What the user should read instead of a traceback, None if a traceback is needed."""
    if isinstance(error, RunnerError):
        return error
    if isinstance(error, OSError) and error.errno in (*_DISK, *_FILES):
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return _of_the_disk(said) if error.errno in _DISK else RunnerError(said)
    return from_graph(error)


def from_graph(error: BaseException) -> RunnerError | None:
    """What the user should read of a TensorFlow error, None if a traceback is needed.

    If Python inside a graph raised a ConfigError, the text of TensorFlow's error holds its class,
    message and traceback. If memory ran out, it names the tensor; if a disk is full, the file.
    """
    if found := re.search(r"\bConfigError: (.+)", str(error)):
        return ConfigError(found[1])
    if found := re.search(r"OOM when (allocating .+)", str(error)):
        return RunnerError(
            f"out of memory when {found[1]}\nuse a smaller global_batch_size, or "
            "RunConfig.gradient_accumulation, which takes a batch in parts"
        )
    if found := re.search(
        r"label value of (\S+) which is outside .* range of (\[.+?\))", str(error)
    ):
        return ConfigError(f"a label is {found[1]}, but the model has outputs for {found[2]}")
    if found := _REFUSED.search(str(error)):
        return _of_the_disk(found[0])
    return None


def _of_the_disk(said: str) -> RunnerError:
    return RunnerError(f"{said}; once it can be written again, the same command goes on")
