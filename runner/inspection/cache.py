"""What was read from the folders of runs, kept from one command to the next. No TensorFlow.

It is one SQLite file in the user's folder of caches ($XDG_CACHE_HOME, else ~/.cache), so folders
that cannot be written are remembered too. It may be deleted. Where it cannot be used, everything is
read again.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_FORMAT = 3  # of what is remembered; another one is forgotten


class Cache:
    """What is remembered of the folders below one.

    Args:
        known: Stamp and facts, by folder.
    """

    def __init__(self, known: Mapping[str, tuple[str, str]]) -> None:
        self._known = known
        self._seen: set[str] = set()
        self._new: dict[str, tuple[str, str]] = {}

    def get(self, folder: str, stamp: str) -> dict[str, Any] | None:
        """What was put with the same stamp; None if there is nothing."""
        self._seen.add(folder)
        before, facts = self._known.get(folder, ("", ""))
        return dict(json.loads(facts)) if before == stamp else None

    def put(self, folder: str, stamp: str, facts: Mapping[str, Any]) -> None:
        """Remembers facts, for JSON, which hold as long as the stamp is this."""
        self._new[folder] = (stamp, json.dumps(facts))

    @property
    def changes(self) -> tuple[dict[str, tuple[str, str]], list[str]]:
        """What is new, and the folders that are gone."""
        return self._new, [folder for folder in self._known if folder not in self._seen]


@contextlib.contextmanager
def of(root: Path) -> Iterator[Cache]:
    """The cache for the folders at and below `root`; what changes in it is kept afterwards."""
    below = os.path.realpath(root)
    base = _open()
    try:
        found = Cache(_read(base, below) if base else {})
        yield found
        if base:
            _write(base, found)
    finally:
        if base:
            base.close()


def _open() -> sqlite3.Connection | None:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "runner"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        base = sqlite3.connect(folder / "runs.sqlite", timeout=1)
        if base.execute("PRAGMA user_version").fetchone() != (_FORMAT,):
            base.executescript(
                "DROP TABLE IF EXISTS runs;"
                "CREATE TABLE runs (folder TEXT PRIMARY KEY, stamp TEXT, facts TEXT);"
                f"PRAGMA user_version = {_FORMAT};"
            )
    except (OSError, RuntimeError, sqlite3.Error):  # RuntimeError: there is no home
        return None
    return base


def _read(base: sqlite3.Connection, below: str) -> dict[str, tuple[str, str]]:
    after = below.rstrip("/") + "0"  # which follows "/"
    query = "SELECT folder, stamp, facts FROM runs WHERE folder >= ? AND folder < ?"
    with contextlib.suppress(sqlite3.Error):
        rows = base.execute(query, (below, after))
        inside = below.rstrip("/") + "/"
        return {
            folder: (stamp, facts)
            for folder, stamp, facts in rows
            if folder == below or folder.startswith(inside)
        }
    return {}


def _write(base: sqlite3.Connection, found: Cache) -> None:
    new, gone = found.changes
    if not (new or gone):
        return
    with contextlib.suppress(sqlite3.Error), base:
        base.executemany(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)",
            ((folder, *each) for folder, each in new.items()),
        )
        base.executemany("DELETE FROM runs WHERE folder = ?", ((folder,) for folder in gone))
