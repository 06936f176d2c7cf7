"""A directory in which one file operation fails.

    with faulty.Faulty(folder) as faulty_folder:
        faulty_folder.arm(faulty.Fault(number=17, error="ENOSPC", lasts=True))
        ...  # programs write below faulty_folder.path
        print(faulty_folder.operations)

A FUSE file system passes each operation on to a directory. It counts the operations, and lets one
of them fail, or all that follow too. `short` writes only half of the bytes.

Needs root, `apt install libfuse3-3 fuse3` and `pip install mfusepy`.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

from scripts import processes
from scripts.chaos import disk

READS = ("getattr", "readdir", "open", "read")
WRITES = (
    *("create", "write", "truncate", "flush", "fsync", "fsyncdir", "rename", "link", "unlink"),
    *("mkdir", "rmdir", "utimens", "symlink", "chmod"),
)
ERRORS = {"ENOSPC": WRITES, "EDQUOT": WRITES, "EROFS": WRITES, "EIO": READS + WRITES}
"""The errors, with the operations that can fail with them."""
SHORT = "short"  # a write of half of the bytes

_CONTROL = ".control"  # a file that only the server has: writing to it controls the server
_TELL = "tell"


class Fault(NamedTuple):
    """The operation to fail.

    Attributes:
        number: Its number, from 0, among all operations since the fault was armed.
        error: A key of `ERRORS`, or `SHORT`.
        lasts: Whether the operations after it also fail.
    """

    number: int
    error: str
    lasts: bool = False


class Faulty:
    """A mounted directory whose operations can fail.

    Args:
        folder: An existing directory for its files.

    Attributes:
        path: The directory that is mounted.
        behind: The directory that holds its files and never fails.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.absolute()
        self.path, self.behind = folder / "faulty", folder / "behind"
        self._told = folder / "operations.json"

    def __enter__(self) -> Self:
        for each in (self.path, self.behind):
            each.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "scripts.chaos.faulty"]
        command += map(str, (self.behind, self.path, self._told))
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=processes.ROOT)
        disk.wait_for(self.path / _CONTROL, self._server)
        return self

    def __exit__(self, *_: object) -> None:
        disk.unmount(self.path)
        self._server.wait()

    def arm(self, fault: Fault | None) -> None:
        """Counts operations from 0 again, and lets one fail. None lets none fail."""
        self._send(fault)

    @property
    def operations(self) -> list[tuple[str, str]]:
        """The names and paths of the operations since `arm`."""
        self._send(_TELL)
        return [tuple(each) for each in json.loads(self._told.read_text())]

    def _send(self, value: Any) -> None:
        with (self.path / _CONTROL).open("r+b", buffering=0) as file:
            file.write(json.dumps(value).encode())


def can_fail(operation: str, error: str) -> bool:
    """Returns whether an operation can fail in this way."""
    return operation == "write" if error == SHORT else operation in ERRORS[error]


def _serve(behind: str, folder: str, told: str) -> None:
    """Serves the directory `behind` in `folder`, until unmounted.

    If it is asked to, it writes the names and paths of the operations to the file `told`.
    """
    import mfusepy

    class Server(mfusepy.Operations):
        use_ns = True

        def __init__(self) -> None:
            self._fault: Fault | None = None
            self._seen: list[tuple[str, str]] = []
            self._has_failed = False

        def next(self, operation: str, path: str) -> str:
            """Counts an operation. Returns the error that it fails with, or ""."""
            number, fault = len(self._seen), self._fault
            self._seen.append((operation, path))
            if not fault or not can_fail(operation, fault.error) or number < fault.number:
                return ""
            if self._has_failed and not fault.lasts:
                return ""
            self._has_failed = True
            return fault.error

        def control(self, operation: str, *more: Any) -> Any:
            if operation == "getattr":
                return {"st_mode": 0o100600, "st_nlink": 1, "st_size": 0}
            if operation != "write":
                return 0
            value = json.loads(more[0])
            if value == _TELL:
                Path(told).write_text(json.dumps(self._seen))
            else:
                self._fault = Fault(*value) if value else None
                self._seen, self._has_failed = [], False
            return len(more[0])

        def getattr(self, path: str, *_: Any) -> dict[str, int]:
            found = os.lstat(path)
            names = ("atime_ns", "ctime_ns", "mtime_ns", "gid", "mode", "nlink", "size", "uid")
            stat = {f"st_{name}": getattr(found, f"st_{name}") for name in names}
            return {name.removesuffix("_ns"): value for name, value in stat.items()}

        def readdir(self, path: str, *_: Any) -> list[str]:
            return [".", "..", *(entry.name for entry in os.scandir(path))]

        def open(self, path: str, flags: int) -> int:
            return os.open(path, flags & ~os.O_APPEND)  # the kernel passes offsets

        def create(self, path: str, mode: int, *_: Any) -> int:
            return os.open(path, os.O_RDWR | os.O_CREAT, mode)

        def read(self, _path: str, size: int, offset: int, number: int) -> bytes:
            return os.pread(number, size, offset)

        def write(self, _path: str, data: bytes, offset: int, number: int) -> int:
            return os.pwrite(number, data, offset)

        def truncate(self, path: str, length: int, *_: Any) -> None:
            os.truncate(path, length)

        def flush(self, *_: Any) -> int:
            return 0

        def fsync(self, *_: Any) -> int:
            return 0

        def fsyncdir(self, *_: Any) -> int:
            return 0

        def release(self, _path: str, number: int) -> int:
            os.close(number)
            return 0

        def rename(self, old: str, new: str, *_: Any) -> None:
            Path(old).rename(behind + new)

        def link(self, new: str, old: str) -> None:
            os.link(behind + old, new)

        def symlink(self, new: str, target: str) -> None:
            Path(new).symlink_to(target)

        def readlink(self, path: str) -> str:
            return str(Path(path).readlink())

        def unlink(self, path: str) -> None:
            Path(path).unlink()

        def mkdir(self, path: str, mode: int) -> None:
            Path(path).mkdir(mode)

        def rmdir(self, path: str) -> None:
            Path(path).rmdir()

        def chmod(self, path: str, mode: int) -> None:
            Path(path).chmod(mode)

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
            os.utime(path, ns=times) if times else os.utime(path)

    def counted(operation: str) -> Any:
        """Returns the method that counts an operation, and lets it fail or passes it on."""
        passed_on = getattr(Server, operation)

        def method(self: Server, path: str, *more: Any) -> Any:
            if path == f"/{_CONTROL}":
                return self.control(operation, *more)
            error = self.next(operation, path)
            if error == SHORT:
                data, *others = more
                more = (data[: len(data) // 2], *others)
            elif error:
                raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
            return passed_on(self, behind + path, *more)

        return method

    names = (*READS, *WRITES, "release", "readlink")
    counting = type("Counting", (Server,), {name: counted(name) for name in names})
    mfusepy.FUSE(counting(), folder, foreground=True, nothreads=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
