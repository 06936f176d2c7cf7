"""The lock file that names the process writing in a directory. Standard library only.

The file appears complete and already locked, through a hard link that fails if the file exists.
The operating system releases the flock when the process ends, however it ends. The file's
modification time is its holder's heartbeat.
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
    """The process that holds a directory.

    Attributes:
        host: The machine's name.
        pid: The process id.
        boot: Identifies the running kernel. Containers share it, and hosts with equal names do not.
        token: Distinguishes this lock from all others.
    """

    host: str = "an unknown host"
    pid: int = 0
    boot: str = ""
    token: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def this(cls) -> Self:
        """Returns the current process, with a new token."""
        return cls(socket.gethostname(), os.getpid(), _boot(), secrets.token_hex(8))

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, where a flock shows if it is alive."""
        return self.boot == _boot()


class Seen(NamedTuple):
    """A lock as it was found, with the time of its holder's last heartbeat."""

    holder: Holder
    heartbeat: float


def write(path: Path, holder: Holder) -> int:
    """Writes a lock file, locks it if possible, and returns its descriptor for `close`."""
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
    """Releases the flock on a file that `write` wrote."""
    _held.discard(descriptor)
    os.close(descriptor)


def publish(offer: Path, path: Path) -> bool | None:
    """Links the file `offer` as `path` too.

    Returns:
        True if this succeeded, False if `path` exists. None if the file system has no hard links,
        so that `offer` was renamed and another process may have renamed its own at the same time.
    """
    try:
        os.link(offer, path)
    except FileExistsError:
        return False
    except OSError:  # this file system has no hard links
        if path.exists():
            return False
        offer.replace(path)
        return None
    return True


def look(path: Path) -> Seen | None:
    """Returns the lock in `path`, or None if there is none."""
    try:
        with path.open(encoding="utf-8") as file:  # NFS may answer a `stat` from its cache
            return read(file)
    except FileNotFoundError:
        return None


def abandoned(path: Path) -> bool:
    """Returns whether the holder ran on this machine and is gone, as far as a flock can show."""
    try:
        # NFS locks only files opened for writing. If writing is impossible, reading is enough.
        with path.open("r+" if os.access(path, os.W_OK) else "r", encoding="utf-8") as file:
            return read(file).holder.is_here and lock(file) is True
    except OSError:
        return False


def read(file: TextIO) -> Seen:
    """Returns the lock in an open file. A damaged file belongs to an unknown process."""
    try:
        holder = Holder(**files.loads(file.read()))
    except (ValueError, TypeError):
        holder = Holder()
    return Seen(holder, os.fstat(file.fileno()).st_mtime)


def now_in(folder: Path) -> float:
    """Returns the time by the clock that stamps files there, on a share another machine's."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def lock(file: TextIO) -> bool | None:
    """Locks an open file.

    Returns:
        True if it is now locked, False if another process holds it, None if locks are unavailable.
    """
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@functools.cache
def _boot() -> str:
    """Returns the id of the running kernel, or the host's name if that is unavailable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return socket.gethostname()


_held: set[int] = set()


def _close_in_child() -> None:
    """Closes the locks in a forked child, which may outlive its parent and must not keep them."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
