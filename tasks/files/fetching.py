"""Files that a configuration names by URL: downloaded if missing, and verified.

    glove = fetching.RemoteFile(
        path="data/glove.6B.50d.txt",
        url="zip://glove.6B.50d.txt::https://nlp.stanford.edu/data/glove.6B.zip",
    )
    fetching.fetch([glove])

A file is written to `<path>.part`, which is locked, flushed, verified and renamed: `path` is whole
or not there, even if several processes want it at once.
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
    """A file, and where it is downloaded from if it is missing.

    Attributes:
        path: on this machine.
        url: any that fsspec knows: https://, s3://, gs://, file://, also chained, as in
            zip://member::https://host/archive.zip. Object stores need s3fs, gcsfs and the like.
        size: in bytes; 0: not checked.
        sha256: its checksum in hexadecimal; empty: not checked. An earlier start's part is only
            continued with it, since nothing else tells that both are of one file.
        attempts: how many in a row may bring nothing new before giving up.
    """

    path: str = ""
    url: str = ""
    size: int = 0
    sha256: str = ""
    attempts: int = 5


def fetch(
    files: Sequence[RemoteFile],
    *,
    sleep: Callable[[float], object] = time.sleep,
    screen: console.Console = console.STDERR,
) -> None:
    """Fetches the files that are missing; those that are there are only verified.

    Raises:
        ConfigError: a file is not as described, or as in `receiving.receive`.
        RunnerError: as in `receiving.receive`.
    """
    for file in files:
        _check(file)
    for file in files:
        path = Path(file.path)
        if not path.exists():
            _fetch(file, path, sleep, screen)
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
    file: RemoteFile, path: Path, sleep: Callable[[float], object], screen: console.Console
) -> None:
    """Fetches one file, unless another process does."""
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with _alone(part, screen) as out:
        if path.exists():  # the process that was waited for has fetched it
            part.unlink()
            return
        if not file.sha256:
            out.truncate(0)
        screen.say(f"fetching {file.url} to {path}")
        receiving.receive(file.url, out, attempts=file.attempts, sleep=sleep, screen=screen)
        os.fsync(out.fileno())
        if problem := _problem(part, file):
            part.unlink()
            raise ConfigError(f"{file.url}: what was fetched {problem}; it is removed")
        part.rename(path)


@contextlib.contextmanager
def _alone(part: Path, screen: console.Console) -> Iterator[BinaryIO]:
    """The part, open to append to, for as long as no other process has it."""
    while True:
        with part.open("ab", buffering=0) as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                screen.say(f"waiting for another process, which fetches to {part}")
                fcntl.flock(out, fcntl.LOCK_EX)
            # While this process waited, the other may have renamed or removed what is open here.
            if part.exists() and os.path.samestat(os.fstat(out.fileno()), part.stat()):
                yield out
                return
