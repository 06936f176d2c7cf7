"""Files that a configuration names by URL, fetched where they are absent, and verified.

    glove = fetching.RemoteFile(
        path="data/glove.6B.50d.txt",
        url="zip://glove.6B.50d.txt::https://nlp.stanford.edu/data/glove.6B.zip",
    )
    fetching.fetch([glove])

A file comes into `<path>.part`, which is locked, flushed, verified and renamed: `path` is whole or
not there, also where several processes want it at once.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from official.modeling.hyperparams import base_config

from runner.core import console
from runner.errors import ConfigError
from tasks.files import receiving


@dataclasses.dataclass
class RemoteFile(base_config.Config):
    """A file, and where it is fetched from while it is absent.

    Attributes:
        path: where it lies on this machine.
        url: any that fsspec knows: https://, s3://, gs://, file://, also chained, as in
            zip://member::https://host/archive.zip. Object stores need s3fs, gcsfs and the like.
        size: in bytes; 0 is not checked.
        sha256: its checksum in hexadecimal; empty is not checked. Only with it is a part that an
            earlier start has left continued: nothing else tells that both are of one file.
        attempts: how many in a row may bring nothing new before it is given up.
    """

    path: str = ""
    url: str = ""
    size: int = 0
    sha256: str = ""
    attempts: int = 5


def fetch(
    files: Sequence[RemoteFile],
    *,
    note: console.Note = console.say,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Brings the files that are absent; those that are there are only verified.

    Args:
        files: from the user's configuration.
        note: is told what is fetched, how far it is, and why an attempt failed.
        sleep: waits so many seconds between attempts: 1, then twice as long each time.

    Raises:
        ConfigError: a file that is not as described; also as of `receiving.receive`.
        RunnerError: as of `receiving.receive`.
    """
    for file in files:
        _check(file)
    for file in files:
        path = Path(file.path)
        if not path.exists():
            _fetch(file, path, note, sleep)
        elif problem := _problem(path, file):
            raise ConfigError(f"{path} {problem}; remove it to have it fetched from {file.url}")


def _check(file: RemoteFile) -> None:
    problem = ""
    if not file.path or not file.url:
        problem = f"path={file.path!r}, url={file.url!r}: give both"
    elif Path(file.path).is_dir():
        problem = f"path={file.path!r} is a folder; name the file in it"
    elif file.attempts < 1:
        problem = f"attempts={file.attempts}: must be above 0"
    elif file.size < 0:
        problem = f"size={file.size}: a number of bytes, 0 or more"
    elif file.sha256 and not re.fullmatch("[0-9a-fA-F]{64}", file.sha256):
        problem = f"sha256={file.sha256!r}: expected 64 hexadecimal digits"
    if problem:
        raise ConfigError(f"RemoteFile.{problem}")


def _problem(path: Path, file: RemoteFile) -> str:
    """How a file differs from its description, or nothing."""
    status = path.stat()
    if file.size and status.st_size != file.size:
        return f"has {status.st_size:,} bytes, expected {file.size:,}"
    if file.sha256:
        digest = _sha256(path, status.st_size, status.st_mtime_ns)
        if digest != file.sha256.lower():
            return f"has the SHA-256 {digest}, expected {file.sha256.lower()}"
    return ""


@functools.cache
def _sha256(path: Path, *_state: int) -> str:
    """A file's checksum; read again only where its state, size and time of change, is another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(
    file: RemoteFile, path: Path, note: console.Note, sleep: Callable[[float], object]
) -> None:
    """Brings one file, unless another process does."""
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with _alone(part, note) as out:
        if path.exists():  # brought by the process that was waited for
            part.unlink()
            return
        if not file.sha256:
            out.truncate(0)
        note(f"fetching {file.url} to {path}")
        receiving.receive(file.url, out, attempts=file.attempts, note=note, sleep=sleep)
        os.fsync(out.fileno())
        problem = _problem(part, file)
        if problem:
            part.unlink()
            raise ConfigError(f"{file.url}: what was fetched {problem}; it is removed")
        part.rename(path)


@contextlib.contextmanager
def _alone(part: Path, note: console.Note) -> Iterator[BinaryIO]:
    """The part, open to append to, for as long as no other process has it."""
    while True:
        with part.open("ab", buffering=0) as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                note(f"waiting for another process, which fetches to {part}")
                fcntl.flock(out, fcntl.LOCK_EX)
            # While this process waited, the other may have renamed or removed what is open here.
            if part.exists() and os.path.samestat(os.fstat(out.fileno()), part.stat()):
                yield out
                return
