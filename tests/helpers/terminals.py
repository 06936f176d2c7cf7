"""Terminals that know what stands on their screen: one in memory, and a real one of the system."""

import contextlib
import io
import os
import threading

import pyte


class Terminal(io.StringIO):
    """What is written, and what it looks like."""

    def __init__(self, columns=120):
        super().__init__()
        self._columns = columns

    def isatty(self):
        return True

    @property
    def lines(self):
        return _lines(self._columns, self.getvalue().replace("\n", "\r\n"))


class Pty:
    """A pseudo-terminal: `stream` is a process's end of it."""

    def __init__(self, columns=120):
        self._columns = columns
        self._master, slave = os.openpty()
        self.stream = os.fdopen(slave, "w")
        self._read = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self):
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(self._master, 4096):
                self._read.append(piece)

    def close(self):
        """Ends it; returns the lines that stand there at the end."""
        self.stream.close()
        self._reader.join()
        os.close(self._master)
        return _lines(self._columns, self.text)

    @property
    def text(self):
        """All that was written."""
        return b"".join(self._read).decode()


def _lines(columns, text):
    screen = pyte.Screen(columns, 1000)
    pyte.Stream(screen).feed(text)
    lines = [line.rstrip() for line in screen.display]
    return lines[: max((n for n, line in enumerate(lines, start=1) if line), default=0)]
