"""The record of data sent to a logger, `loggers/<name>.jsonl`, which prevents duplicates.

Each line is one entry. It is written after its data have arrived, so data without an entry after a
kill are sent again.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.errors import RunnerError
from runner.run_directory import claim_file

_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.2

Entry = tuple[str, str, Any]
"""The kind of data, the key, and the value that was sent."""


class Ledger:
    """The entries of one logger in one directory, for one target such as a server.

    Args:
        folder: The run's or the study's.
        name: The logger's.
        target: The destination. Entries for other targets are ignored here, but not removed.
    """

    def __init__(self, folder: Path, name: str, target: str) -> None:
        self._path = path(folder, name)
        self._target = target
        self._entries: dict[tuple[str, str], Any] = {}
        try:
            rows = files.read_json_lines(self._path)
            for row in rows:
                if row["target"] == target:
                    self._entries[row["what"], row["key"]] = row["value"]
        except (KeyError, TypeError, ValueError) as error:
            raise RunnerError(f"{self._path} is damaged ({error}): remove the line") from error

    def get(self, what: str, key: str = "") -> Any | None:
        """Returns the value that was sent, or None."""
        return self._entries.get((what, key))

    def has(self, entry: Entry) -> bool:
        """Returns whether exactly this value was sent last."""
        what, key, value = entry
        return bool(self._entries.get((what, key)) == value)

    def of(self, what: str) -> dict[str, Any]:
        """Returns all entries of a kind, by key."""
        return {key: value for (about, key), value in self._entries.items() if about == what}

    def put(self, entries: Iterable[Entry]) -> None:
        """Adds entries. Each replaces the earlier one of the same kind and key."""
        new = {(what, key): value for what, key, value in entries}
        self._entries.update(new)
        files.append_json_lines(
            self._path,
            [
                {"target": self._target, "what": what, "key": key, "value": value}
                for (what, key), value in new.items()
            ],
        )


def path(folder: Path, name: str) -> Path:
    """Returns the path of a logger's record in a directory."""
    return folder / layout.LOGGERS / f"{name}.jsonl"


@contextlib.contextmanager
def alone(folder: Path, name: str, *, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Locks a logger within the block, so that no other local process sends data to it.

    Raises:
        RunnerError: another process held the lock for longer than `patience` seconds.
    """
    place = path(folder, name)
    place.parent.mkdir(exist_ok=True)
    end = time.monotonic() + patience
    with files.staying(folder), place.open("a+", encoding="utf-8") as file:
        while claim_file.lock(file) is False:
            if time.monotonic() > end:
                raise RunnerError(f"another process is logging {folder} to {name}: wait for it")
            time.sleep(_POLL_SECONDS)
        yield
