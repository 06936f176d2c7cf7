"""Sends a directory's new rows, configuration and best checkpoint to loggers."""

import contextlib
import importlib.util
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from runner.core import installation, layout, plugins
from runner.errors import ConfigError
from runner.run_directory.loggers import facts as facts_
from runner.run_directory.loggers import ledger, rows, to_csv

_PACKAGE = "runner.run_directory.loggers"


class Logger(Protocol):
    """A logger's representation of one run."""

    @property
    def place(self) -> str:
        """Its id in the logger."""

    def describe(self, facts: facts_.Facts) -> None:
        """Logs the configuration and other facts."""

    def log(self, found: Sequence[rows.Row]) -> None:
        """Logs rows."""

    def keep(self, path: Path, digest: str) -> None:
        """Stores a file or a directory."""

    def close(self) -> None:
        """Records how the run ended, and waits until all data have arrived."""


class Kind(NamedTuple):
    """A logger that needs a library: what its module `to_NAME.py` defines.

    Attributes:
        make: The module's class `Logger`, which starts or continues a run.
        target: The module's function `target`, which returns the destination.
    """

    make: Callable[[facts_.Facts, ledger.Ledger], Logger]
    target: Callable[[], str]


def names() -> list[str]:
    """The loggers: each is a module `to_NAME.py` of this package."""
    return plugins.names(_PACKAGE, "to_")


def _kind(name: str) -> Kind:
    """The logger of a library."""
    module = plugins.load(_PACKAGE, f"to_{name}")
    return Kind(module.Logger, module.target)


def check_installed(names: Sequence[str], where: str) -> None:
    """Raises ConfigError if the library of a logger is missing. `where` names the setting."""
    for name in names:
        if name != to_csv.NAME and importlib.util.find_spec(name) is None:
            raise ConfigError(f"{where}: {name} is not installed: {installation.command_for(name)}")


class Feed:
    """The connection of one run or study to one logger.

    Args:
        folder: The run's or the study's.
        name: The logger's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._kind = _kind(name)
        self._ledger = ledger.Ledger(folder, name, self._kind.target())
        self._reader: rows.Reader | None = None
        self._logger: Logger | None = None

    @property
    def place(self) -> str:
        """The run's id in the logger, or empty if there were no data to log."""
        return str(self._ledger.get("run", "id") or "")

    @property
    def missing(self) -> int:
        """The number of rows that are not logged yet."""
        return len(self._new(rows.Reader(self._folder).take()))

    def give(self, *, whole: bool) -> int:
        """Logs new data. Returns the number of new rows.

        Args:
            whole: Whether to store the best checkpoint even if training continues or will continue.
        """
        facts = facts_.of(self._folder, whole=whole)
        kept = [(path, _digest(path)) for path in facts.files]
        if facts.best:
            kept.append((facts.best, _digest(facts.best / layout.INFO)))
        reader, self._reader = self._reader or rows.Reader(self._folder), None
        new = self._new(reader.take())
        news = facts.entry, *(("artifact", path.name, digest) for path, digest in kept)
        if self._logger is None and not new and all(map(self._ledger.has, news)):
            self._reader = reader
            return 0
        self._logger = logger = self._logger or self._kind.make(facts, self._ledger)
        if not self._ledger.has(facts.entry):
            logger.describe(facts)
        logger.log(new)
        for path, digest in kept:
            logger.keep(path, digest)
        self._reader = reader
        return len(new)

    def close(self) -> None:
        """Records how the run ended, and returns once all data have arrived."""
        if self._logger:
            self._logger.describe(facts_.of(self._folder, whole=False))
            logger, self._logger = self._logger, None
            logger.close()

    def _new(self, found: Sequence[rows.Row]) -> list[rows.Row]:
        return [row for row in found if not self._ledger.has(row.entry)]


class Tables:
    """The equivalent of `Feed` for CSV files, which are rewritten completely."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[ledger.Entry] = []
        self.place = str(folder / layout.LOGGERS)

    @property
    def missing(self) -> int:
        """The number of rows."""
        return len(rows.Reader(self._folder).take())

    def give(self, *, whole: bool) -> int:
        """Writes the tables if there are new rows. Returns the number of rows."""
        del whole
        found = rows.Reader(self._folder).take()
        entries = [row.entry for row in found]
        if entries != self._written:
            to_csv.write(self._folder, found)
            self._written = entries
        return len(found)

    def close(self) -> None:
        """Returns immediately, because the tables are complete."""


def of(folder: Path, name: str) -> Feed | Tables:
    """Returns the feed for a logger."""
    return Tables(folder) if name == to_csv.NAME else Feed(folder, name)


def all_of(folder: Path, name: str, *, whole: bool, rehearses: bool = False) -> dict[str, Any]:
    """Logs a run, or a study with all its trials followed by its summary.

    Args:
        folder: Its directory.
        name: The logger's.
        whole: See `Feed.give`.
        rehearses: Only count the rows that would be logged.

    Returns:
        For JSON: the number of logged `rows`, and the `run` or the directory of the tables.
    """
    is_study = layout.is_study(folder)
    trials = [each for each in layout.trials(folder) if (each / layout.PARAMS).exists()]
    count, place = 0, ""
    for each in [*(trials if is_study else ()), folder]:
        if is_study and each == folder and name == to_csv.NAME:
            break
        if rehearses:
            count += of(each, name).missing
            continue
        with ledger.alone(each, name):
            made = of(each, name)
            with contextlib.closing(made):
                count += made.give(whole=whole)
            place = made.place
    return {"rows": count} if rehearses else {"rows": count, "run": place}


def _digest(path: Path) -> str:
    """Returns a digest of a file, or of all files in a directory."""
    if path.is_dir():
        return _sum("".join(_digest(each) for each in sorted(path.iterdir())).encode())
    return _sum(path.read_bytes())


def _sum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"
