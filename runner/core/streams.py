"""Standard streams whose loss does not stop the command.

A stream is lost if it was closed before the start, if the reader of its pipe has exited, or if its
disk is full. Further output is then dropped without an error, whichever code writes it.
"""

import errno
import io
import os
import select
import sys
from typing import Any, TextIO

_FOR_GOOD = (errno.EPIPE, errno.EBADF)


class _Descriptor(io.FileIO):
    """A standard stream's file descriptor that drops what it cannot write.

    Args:
        number: The descriptor.
        error: Why it cannot be written, if that is already known.

    Attributes:
        error: The first write error, or None if everything was written.
    """

    def __init__(self, number: int, error: OSError | None) -> None:
        super().__init__(number, "w", closefd=False)
        self.error = error

    def write(self, data: Any) -> int:
        """Writes all of the data, or drops the rest."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                written = super().write(rest)
                if (
                    written is None
                ):  # another process has made the pipe non-blocking, and it is full
                    select.select([], [self], [])
                else:
                    rest = rest[written:]
        except OSError as error:
            self.error = self.error or error
            if error.errno in _FOR_GOOD:  # native code and child processes write there too
                _open_null(self.fileno())
        return size


_descriptors: dict[int, _Descriptor] = {}


def keep() -> None:
    """Makes the loss of a stream harmless for this process and its children.

    Call it before any code opens a file, because the file would take the place of a closed stream.
    """
    closed = fill()
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115, it is open until the process ends
    for number, name in ((1, "stdout"), (2, "stderr")):
        error = OSError(errno.EBADF, "it is closed") if number in closed else None
        _descriptors[number] = descriptor = _Descriptor(number, error)
        stream = _text(descriptor, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def fill() -> list[int]:
    """Opens /dev/null in place of closed standard descriptors, and returns their numbers.

    Otherwise the next file that is opened gets such a number, and native code that prints a warning
    writes into it.
    """
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.append(number)
            _open_null(number)
    return closed


def output_error() -> OSError | None:
    """Returns why stdout lacks part of the flushed output, or None if it has all of it."""
    return _descriptors[1].error if 1 in _descriptors else None


def has_reader(number: int) -> bool:
    """Returns whether stdout (1) or stderr (2) may still have a reader, as far as known."""
    error = _descriptors[number].error if number in _descriptors else None
    return not isinstance(error, BrokenPipeError)


def _text(descriptor: _Descriptor, stream: TextIO | None) -> TextIO:
    """Returns a text stream on the descriptor, buffered like `stream`."""
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(descriptor), errors="backslashreplace")
    unbuffered = getattr(stream, "write_through", False)  # PYTHONUNBUFFERED
    return io.TextIOWrapper(
        descriptor if unbuffered else io.BufferedWriter(descriptor),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=unbuffered,
    )


def _open_null(number: int) -> None:
    """Opens /dev/null as the descriptor `number`, which child processes inherit."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, number)
        os.close(null)
