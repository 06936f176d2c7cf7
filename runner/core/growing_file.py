"""Reads a file to which another process appends lines. Standard library only."""

from pathlib import Path
from typing import Any

from runner.core import files
from runner.errors import RunnerError


class GrowingFile:
    """A file of lines, read as it grows. It may be missing, truncated, or rewritten.

    Args:
        path: The file.

    Attributes:
        restarted: Whether the last `take` started at the beginning of the file.
        first: The number, from 1, of the first line that the last `take` returned.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restarted = True
        self.first = 1
        self._lines = 0  # returned so far
        self._read = 0  # bytes
        self._last = b""  # the last line read, by which the file is recognized

    def take(self) -> list[bytes]:
        """Returns the complete lines that are new, or all lines if the file is a different one."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read - len(self._last))
                self.restarted = not self._last or file.read(len(self._last)) != self._last
                if self.restarted:
                    file.seek(0)
                    self._read, self._last, self._lines = 0, b"", 0
                new = file.read()
        except FileNotFoundError:
            self._read, self._last, self._lines = 0, b"", 0
            return []
        lines = new[: new.rfind(b"\n") + 1].splitlines(keepends=True)
        self.first = self._lines + 1
        if lines:
            self._lines += len(lines)
            self._read += sum(map(len, lines))
            self._last = lines[-1]
        return lines

    def take_rows(self) -> list[Any]:
        """Returns the values in the new lines, which are JSON.

        Raises:
            RunnerError: a line is damaged.
        """
        lines = self.take()
        try:
            return files.parse_json_lines(lines, name=str(self.path), first=self.first)
        except ValueError as error:
            raise RunnerError(f"{error}: repair or delete the line") from error
