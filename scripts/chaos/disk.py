"""A disk that records each write, so that a power cut can be simulated at any moment afterwards.

    with disk.Disk(folder, "ext4") as recorded:
        ...  # programs write below recorded.path
    for position in range(len(recorded.writes)):
        with recorded.after_cut(position, "reordered", random.Random(0)) as path:
            ...  # the files that a machine finds after the power is back

The disk is a file of a FUSE file system with a file system of the kernel on top (loop device). A
real disk may keep what it is told in a volatile cache, until it is told to flush. Therefore all
writes up to the last flush before the cut survive, and of the later ones any part. This is the
method of CrashMonkey (Mohan et al., OSDI 2018) and of the kernel's dm-log-writes.

Needs root, `apt install libfuse3-3 fuse3 xfsprogs btrfs-progs` and `pip install mfusepy`.
"""

import contextlib
import errno
import itertools
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from scripts import processes

LOSSES = ("nothing", "unflushed", "reordered", "torn")
"""What a cut takes away: nothing that was written, everything since the last flush, a random part
of it, or a random part and the rest of the last write."""

_HEADER = struct.Struct("<dQQ")  # the time, the offset, the number of bytes
_FLUSH = 1 << 63  # the offset of a flush
_SECTOR = 512  # a disk writes a sector as a whole
_mounting = threading.Lock()


class FileSystem(NamedTuple):
    """How a file system is created, and mounted so that it keeps little that is not flushed."""

    mkfs: tuple[str, ...]
    options: str
    megabytes: int


SYSTEMS = {
    "ext4": FileSystem(("mkfs.ext4", "-q"), "data=writeback,noauto_da_alloc,commit=300", 128),
    "xfs": FileSystem(("mkfs.xfs", "-q"), "nouuid", 320),
    "btrfs": FileSystem(("mkfs.btrfs", "-q"), "commit=300", 128),
}


class Write(NamedTuple):
    """A recorded write, or a flush (without data)."""

    time: float  # of time.monotonic
    offset: int
    data: bytes

    @property
    def is_flush(self) -> bool:
        """Whether the disk was told to make everything before durable."""
        return self.offset == _FLUSH


class Disk:
    """A mounted file system whose writes are recorded.

    Args:
        folder: A directory for its files, which must exist.
        kind: A key of `SYSTEMS`.
        image: A disk to continue with, such as one that was cut. None means an empty one.

    Attributes:
        path: The directory where it is mounted.
        writes: The writes and flushes, after it was unmounted.
    """

    def __init__(self, folder: Path, kind: str, image: Path | None = None) -> None:
        self._folder, self._system = folder.absolute(), SYSTEMS[kind]
        self._first = self._folder / "first.img"
        self.path = self._folder / "mounted"
        self.writes: list[Write] = []
        self._count = itertools.count()
        if image:
            _copy(image, self._first)
            return
        with self._first.open("wb") as file:
            file.truncate(self._system.megabytes << 20)
        subprocess.run([*self._system.mkfs, self._first], check=True, capture_output=True)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            device, server = self._folder / "device", self._folder / "disk.img"
            _copy(self._first, server)
            device.mkdir(exist_ok=True)
            self._log = self._folder / "writes.log"
            self._log.unlink(missing_ok=True)
            arguments = map(str, (server, self._log, device))
            command = [sys.executable, "-m", "scripts.chaos.disk", *arguments]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=processes.ROOT)
            stack.callback(process.wait)
            wait_for(device / "disk", process)
            stack.callback(unmount, device)
            stack.enter_context(_mounted(device / "disk", self.path, self._system.options))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.writes = list(_read(self._log))

    @property
    def position(self) -> int:
        """The number of writes so far, while it is mounted."""
        return sum(1 for _ in _read(self._log))

    @contextlib.contextmanager
    def after_cut(self, position: int, loss: str, draw: random.Random) -> Iterator[Path]:
        """Mounts what is left if the power fails after `position` writes. Yields the directory.

        Args:
            position: The number of writes and flushes before the cut.
            loss: One of `LOSSES`.
            draw: Draws what is lost.
        """
        number = next(self._count)
        image, path = (self._folder / f"cut-{number}{end}" for end in (".img", ""))
        self.cut(image, position, loss, draw)
        try:
            with _mounted(image, path, self._system.options):
                yield path
        finally:
            image.unlink()

    def cut(self, image: Path, position: int, loss: str, draw: random.Random) -> None:
        """Writes the disk that a cut leaves to `image`. The arguments are those of `after_cut`."""
        _copy(self._first, image)
        before = self.writes[:position]
        flushed = max((at for at, write in enumerate(before) if write.is_flush), default=-1)
        with image.open("r+b", buffering=0) as file:
            for at, (_, offset, data) in enumerate(before):
                if offset == _FLUSH:
                    continue
                if at > flushed and loss != "nothing":
                    if loss == "unflushed" or draw.random() < 0.5:
                        continue
                    if loss == "torn" and at == position - 1:
                        data = data[: _SECTOR * draw.randrange(len(data) // _SECTOR + 1)]
                os.pwrite(file.fileno(), data, offset)


def _copy(image: Path, copy: Path) -> None:
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)


def _read(log: Path) -> Iterator[Write]:
    with log.open("rb") as file:
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            at, offset, length = _HEADER.unpack(header)
            yield Write(at, offset, file.read(length))


@contextlib.contextmanager
def _mounted(image: Path, path: Path, options: str) -> Iterator[None]:
    """Mounts an image, and unmounts it at the end."""
    path.mkdir(exist_ok=True)
    with _mounting:  # two processes may be given the same free loop device
        made = subprocess.run(
            ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
        )
    device = made.stdout.strip()
    try:
        subprocess.run(["mount", "-o", options, device, path], check=True)
        try:
            yield
        finally:
            unmount(path)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        shutil.rmtree(path, ignore_errors=True)


def wait_for(path: Path, server: subprocess.Popen[bytes]) -> None:
    """Waits until a server has mounted its file system, which contains `path`.

    Raises:
        OSError: it ended, for example without the right to mount.
    """
    processes.until(lambda: path.exists() or server.poll() is not None)
    if server.poll() is not None:
        raise OSError(errno.EPERM, "the FUSE file system cannot be mounted")


def unmount(path: Path) -> None:
    """Unmounts a file system as soon as no process uses it."""
    for _ in range(50):
        if not subprocess.run(["umount", path], check=False, capture_output=True).returncode:
            return
        time.sleep(0.1)
    subprocess.run(["umount", path], check=True)


def _serve(image: str, log: str, folder: str) -> None:
    """Serves the file `disk` in `folder`, which has the contents of `image`, until unmounted."""
    import mfusepy

    class Recorder(mfusepy.Operations):
        use_ns = True

        def __init__(self) -> None:
            self._disk = os.open(image, os.O_RDWR)
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._size = os.fstat(self._disk).st_size

        def getattr(self, path: str, _: Any = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if path == "/disk":
                return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": self._size}
            raise mfusepy.FuseOSError(errno.ENOENT)

        def readdir(self, *_: Any) -> list[str]:
            return [".", "..", "disk"]

        def open(self, *_: Any) -> int:
            return 0

        def read(self, _path: str, size: int, offset: int, *_: Any) -> bytes:
            return os.pread(self._disk, size, offset)

        def write(self, _path: str, data: bytes, offset: int, *_: Any) -> int:
            os.write(self._log, _HEADER.pack(time.monotonic(), offset, len(data)) + data)
            return os.pwrite(self._disk, data, offset)

        def fsync(self, *_: Any) -> int:
            os.write(self._log, _HEADER.pack(time.monotonic(), _FLUSH, 0))
            return 0

        def truncate(self, *_: Any) -> int:
            return 0

    mfusepy.FUSE(Recorder(), folder, foreground=True, nothreads=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
