"""Downloads files that a configuration names by URL if they are missing, and verifies them.

    glove = fetching.RemoteFile(
        path="data/glove.6B.50d.txt",
        url="zip://glove.6B.50d.txt::https://nlp.stanford.edu/data/glove.6B.zip",
    )
    fetching.fetch([glove])

A file is written to `<path>.part`, which is locked, flushed, verified and renamed. `path` is
therefore either complete or missing, even if several processes fetch it at once.
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
from runner.storage import urls
from tasks.files import receiving


@dataclasses.dataclass
class RemoteFile(base_config.Config):
    """A file, and the URL it is downloaded from if it is missing.

    Attributes:
        path: the local path.
        url: any URL that fsspec supports: https://, s3://, gs://, file://, or a chained one such as
            zip://member::https://host/archive.zip. Object stores need packages such as s3fs or
            gcsfs.
        size: in bytes. 0: not checked.
        sha256: the checksum in hexadecimal. Empty: not checked. A partial download of an earlier
            process is resumed only if the checksum is set, because only the checksum can show that
            both parts belong to the same file.
        attempts: give up after this many attempts in a row without progress.
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
    """Fetches the files that are missing, and verifies those that exist.

    Raises:
        ConfigError: a file does not match its description, or `receiving.receive` raises it.
        RunnerError: raised by `receiving.receive`.
    """
    for file in files:
        _check(file)
    for file in files:
        path = Path(file.path)
        if not path.exists():
            _fetch(file, path, sleep, screen)
        elif problem := _problem(path, file):
            raise ConfigError(
                f"{path} {problem}; remove it to fetch it again from {urls.shown(file.url)}"
            )


def _check(file: RemoteFile) -> None:
    problem = ""
    if not file.path or not file.url:
        problem = f"path={file.path!r}, url={file.url!r}: give both"
    elif Path(file.path).is_dir():
        problem = f"path={file.path!r} is a directory; name the file in it"
    elif file.attempts < 1:
        problem = f"attempts={file.attempts}: must be above 0"
    elif file.size < 0:
        problem = f"size={file.size}: must be 0 or more (bytes)"
    elif file.sha256 and not re.fullmatch("[0-9a-fA-F]{64}", file.sha256):
        problem = f"sha256={file.sha256!r}: expected 64 hexadecimal digits"
    if problem:
        raise ConfigError(f"RemoteFile.{problem}")


def _problem(path: Path, file: RemoteFile) -> str:
    """Describes how a file differs from its description. Empty if it matches."""
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
    """A file's checksum, cached until the file's size or modification time changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(
    file: RemoteFile, path: Path, sleep: Callable[[float], object], screen: console.Console
) -> None:
    """Fetches one file, unless another process does so first."""
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with _alone(part, screen) as out:
        if path.exists():  # fetched by the process that held the lock
            part.unlink()
            return
        if not file.sha256:
            out.truncate(0)
        screen.say(f"fetching {urls.shown(file.url)} to {path}")
        receiving.receive(file.url, out, attempts=file.attempts, sleep=sleep, screen=screen)
        os.fsync(out.fileno())
        if problem := _problem(part, file):
            part.unlink()
            raise ConfigError(f"{urls.shown(file.url)}: the download {problem}; it was removed")
        part.rename(path)


@contextlib.contextmanager
def _alone(part: Path, screen: console.Console) -> Iterator[BinaryIO]:
    """Opens the part file for appending, with exclusive access."""
    while True:
        with part.open("ab", buffering=0) as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                screen.say(f"waiting for another process that is fetching {part}")
                fcntl.flock(out, fcntl.LOCK_EX)
            # During the wait, the other process may have renamed or removed the open file.
            if part.exists() and os.path.samestat(os.fstat(out.fileno()), part.stat()):
                yield out
                return
