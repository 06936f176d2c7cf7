"""Local directories for URLs, in the user's cache, each used by one process at a time."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.core import console
from runner.errors import RunnerError
from runner.storage import copying, display_names, snapshot, urls

_LOCK = "lock"
_ASIDE = ".before"


def of(url: str) -> Path:
    """Returns the local working directory of a run at `url`."""
    return display_names.cache() / urls.folder_name(url)


def copied_to(folder: Path) -> str:
    """Returns the URL that a local directory is a copy of, or "" if it is not a copy."""
    if folder.absolute().parent != display_names.cache().absolute():
        return ""
    return copying.url_of(folder)


def put_aside(folder: Path) -> None:
    """Empties a directory that is out of date, and keeps its contents in one backup."""
    aside = folder.with_name(folder.name + _ASIDE)
    if folder.exists() and any(each.name != snapshot.FOLDER for each in folder.iterdir()):
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        console.say(f"the older local copy was moved to {aside}")


@contextlib.contextmanager
def alone(folder: Path, url: str) -> Iterator[None]:
    """Keeps other processes of this machine out of the directory within the block."""
    lock = folder.with_name(f"{folder.name}.{_LOCK}")
    with _writable(lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunnerError(
                f"{url} is being written by another process on this machine; stop it first, "
                "or choose another --model_dir"
            ) from error
        yield


@contextlib.contextmanager
def temporary(url: str) -> Iterator[Path]:
    """Yields a directory for a copy of `url`, removed when the block ends.

    It also removes such directories of killed processes.
    """
    cache = display_names.cache()
    with _writable(cache):
        cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob(f"{display_names.TEMPORARY}*/{_LOCK}"):
        with contextlib.suppress(OSError), left.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    with _writable(cache):
        made = tempfile.TemporaryDirectory(
            prefix=display_names.TEMPORARY, dir=cache, ignore_cleanup_errors=True
        )
    with made as own, (Path(own) / f"{_LOCK}.new").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(Path(own) / _LOCK)  # never visible unlocked while this process lives
        folder = Path(own) / (url.rpartition("/")[2] or "run")
        folder.mkdir()
        display_names.record(folder, url)
        yield folder


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Adds to an OSError how to choose another directory."""
    try:
        yield
    except OSError as error:
        raise RunnerError(
            f"{folder} cannot be written: {error.strerror} (XDG_CACHE_HOME sets where the local "
            "directories of runs in buckets are)"
        ) from error
