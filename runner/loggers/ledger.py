"""What a logger has been given: `loggers/<name>.jsonl`, by which nothing is given twice.

Each line is one entry. It appears after what it is about has arrived, so whatever a kill leaves
without one is given again.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.errors import RunnerError
from runner.run_folder import claim_file

_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.2

Entry = tuple[str, str, Any]
"""What it is about, which one, and what was given of it."""


class Ledger:
    """The entries of one logger in one folder, for one target such as a server.

    Args:
        folder: The run's or the study's.
        name: The logger's.
        target: Entries for other targets do not count here, and are kept.
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
        """What was given; None if nothing."""
        return self._entries.get((what, key))

    def has(self, entry: Entry) -> bool:
        """Whether exactly this was given last."""
        what, key, value = entry
        return bool(self._entries.get((what, key)) == value)

    def of(self, what: str) -> dict[str, Any]:
        """All entries about something, by key."""
        return {key: value for (about, key), value in self._entries.items() if about == what}

    def put(self, entries: Iterable[Entry]) -> None:
        """Adds entries, each in place of the one before it about the same."""
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
    """The ledger of a logger in a folder."""
    return folder / layout.LOGGERS / f"{name}.jsonl"


@contextlib.contextmanager
def alone(folder: Path, name: str, *, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """Within the block, no other process of this machine gives anything to this logger.

    Raises:
        RunnerError: another one did for longer than `patience` seconds.
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
