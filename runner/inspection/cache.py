"""Caches facts about run directories between commands. No TensorFlow.

The cache is one SQLite file in the user's cache directory ($XDG_CACHE_HOME, or ~/.cache), so
directories that cannot be written are cached, too. It is safe to delete. If it cannot be used,
everything is read again.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.core import files

_FORMAT = 3  # of the cached facts. A cache with another format is dropped


class Cache:
    """The cached facts about the directories below a root.

    Args:
        root: The real path of the root.
        known: Stamp and facts, by directory.
    """

    def __init__(self, root: str = "", known: Mapping[str, tuple[str, str]] = {}) -> None:
        self._root = root
        self._known = known
        self._seen: set[str] = set()
        self._new: dict[str, tuple[str, str]] = {}

    def get(self, name: str, stamp: str) -> dict[str, Any] | None:
        """Returns the facts stored with the same stamp, or None if there are none.

        Args:
            name: The path of a directory, relative to the root. Empty for the root.
            stamp: Its stamp, which changes with the facts.
        """
        folder = self._folder(name)
        self._seen.add(folder)
        before, facts = self._known.get(folder, ("", ""))
        return dict(json.loads(facts)) if before == stamp else None

    def put(self, name: str, stamp: str, facts: Mapping[str, Any]) -> None:
        """Stores facts, as JSON values, which are valid while the stamp is unchanged."""
        self._new[self._folder(name)] = (stamp, json.dumps(facts))

    def _folder(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @property
    def changes(self) -> tuple[dict[str, tuple[str, str]], list[str]]:
        """The new facts, and the directories that are gone."""
        return self._new, [folder for folder in self._known if folder not in self._seen]


@contextlib.contextmanager
def of(root: Path) -> Iterator[Cache]:
    """Yields the cache for the directories at and below `root`, and saves changes at the end."""
    below = os.path.realpath(root)
    base = _open()
    try:
        found = Cache(below, _read(base, below) if base else {})
        yield found
        if base:
            _write(base, found)
    finally:
        if base:
            base.close()


def _open() -> sqlite3.Connection | None:
    try:
        folder = files.cache()
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
    after = below.rstrip("/") + "0"  # the character after "/"
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
