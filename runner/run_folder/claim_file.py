"""The file that says who writes in a folder. Standard library only.

It appears whole and already locked, by a link that fails if the file exists. The lock (flock) goes
away with the process, however it ends. The file's modification time is its holder's heartbeat.
"""

import dataclasses
import fcntl
import functools
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple, Self, TextIO

from runner.core import files


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who holds a folder.

    Attributes:
        host: The machine's name.
        pid: The process.
        boot: Identifies the running kernel, which containers share and hosts of equal name do not.
        token: Tells this claim from all others.
    """

    host: str = "an unknown host"
    pid: int = 0
    boot: str = ""
    token: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def this(cls) -> Self:
        """The present process, with a new token."""
        return cls(socket.gethostname(), os.getpid(), _boot(), secrets.token_hex(8))

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that a lock tells whether it is alive."""
        return self.boot == _boot()


class Seen(NamedTuple):
    """A claim as it was found, and when its holder last gave a sign of life."""

    holder: Holder
    heartbeat: float


def write(path: Path, holder: Holder) -> int:
    """Writes a claim, locks it if possible, and returns its descriptor for `close`."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            json.dump(dataclasses.asdict(holder), file)
            file.write("\n")
            lock(file)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        path.unlink()
        raise
    _held.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Drops the lock of a claim that `write` wrote."""
    _held.discard(descriptor)
    os.close(descriptor)


def publish(offer: Path, path: Path) -> bool:
    """Gives the file `offer` the name `path` too; False if that file exists."""
    try:
        os.link(offer, path)
    except FileExistsError:
        return False
    except OSError:  # this file system has no hard links
        if path.exists():
            return False
        offer.replace(path)
    return True


def look(path: Path) -> Seen | None:
    """The claim in `path`, if there is one."""
    try:
        with path.open(encoding="utf-8") as file:  # NFS may answer a mere `stat` from its cache
            return read(file)
    except FileNotFoundError:
        return None


def abandoned(path: Path) -> bool:
    """Whether the claim's holder ran on this machine and is gone, as far as a lock can tell."""
    try:
        # NFS locks only what can be written; where nothing can be, a lock needs no more than this.
        with path.open("r+" if os.access(path, os.W_OK) else "r", encoding="utf-8") as file:
            return read(file).holder.is_here and lock(file) is True
    except OSError:
        return False


def read(file: TextIO) -> Seen:
    """The claim in an open file; a damaged one counts as an unknown process's."""
    try:
        holder = Holder(**files.loads(file.read()))
    except (ValueError, TypeError):
        holder = Holder()
    return Seen(holder, os.fstat(file.fileno()).st_mtime)


def now_in(folder: Path) -> float:
    """The time of the clock that stamps files there; on a share that is another machine's."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def lock(file: TextIO) -> bool | None:
    """Locks an open file: True if now locked, False if another holds it, None without locks."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@functools.cache
def _boot() -> str:
    """What identifies the running kernel; the host's name if that is unavailable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return socket.gethostname()


_held: set[int] = set()


def _close_in_child() -> None:
    """A forked child may outlive its parent, and must not keep its locks."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
