"""Writes files atomically, appends JSON lines, copies and links. No TensorFlow."""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runner.core import open_folder, sizes
from runner.core import text as words
from runner.errors import RunnerError

_TAIL = 1 << 16  # bytes at the end of a file in which its last rows are searched first
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # some file systems cannot flush directories
_TEMPORARY = re.compile(r"\..+\.(?P<pid>\d+)\.tmp")  # see `beside`

_checks: dict[object, tuple[str, Callable[[], None]]] = {}  # a directory may have several


@contextlib.contextmanager
def guarded(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Calls `check` before this module writes or removes a file in `folder` within the block.

    A suspended process may be taken for dead and wake up in the middle of its work. Therefore the
    check runs before every write. If `folder` is moved or deleted, this module never recreates it.

    Args:
        folder: The directory, which must exist. Everything below it is included.
        check: Raises if this process may not write there.
    """
    below = os.path.join(os.path.abspath(folder), "")  # noqa: PTH100, PTH118
    key = object()
    _checks[key] = below, check
    try:
        yield
    finally:
        del _checks[key]


@contextlib.contextmanager
def staying(folder: Path) -> Iterator[None]:
    """Makes this module write in `folder` only while it stays at its path, within the block.

    For a process that writes in a directory without holding its lock.

    Args:
        folder: The directory, which must exist.
    """
    with contextlib.closing(open_folder.OpenFolder(folder)) as held, guarded(folder, held.check):
        yield


def check(path: Path) -> None:
    """Raises if the check of a directory that contains `path` forbids writing or removing it."""
    for _, ask in _guards(path):
        ask()


def _guards(path: Path) -> list[tuple[Path, Callable[[], None]]]:
    """Returns the guarded directories that contain or equal `path`, with their checks."""
    text = os.path.join(os.path.abspath(path), "")  # noqa: PTH100, PTH118, which resolves `..`
    every = list(_checks.values())
    return [(Path(below), ask) for below, ask in every if text.startswith(below)]


def make_folder(folder: Path) -> None:
    """Creates a directory and its missing parents.

    A guarded directory is never recreated: if it is missing, it was moved or deleted.
    """
    check(folder)
    roots = {root for root, _ in _guards(folder)}
    missing: list[Path] = []
    at = Path(os.path.abspath(folder))  # noqa: PTH100
    while not at.is_dir() and at not in roots and not (missing and at.exists()):
        missing.append(at)
        at = at.parent
    with naming(folder):
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            with contextlib.suppress(PermissionError):  # it may be writable, but not readable
                flush_file(each.parent)


def remove(path: Path) -> None:
    """Removes a file if it exists. After a power cut, it may be back."""
    check(path)
    path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Removes a directory and its contents if it exists."""
    check(folder)
    if folder.is_dir():
        shutil.rmtree(folder)


def cache() -> Path:
    """Returns the runner's directory in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runner"


def is_temporary(name: str) -> bool:
    """Returns whether `beside` yields such a name for a file until it is complete."""
    return _TEMPORARY.fullmatch(name) is not None


def is_leftover(name: str) -> bool:
    """Returns whether it is a temporary name of another process."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match["pid"] != str(os.getpid())


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that becomes `path` when the block ends: it is flushed to disk, then renamed.

    The rename is also flushed to disk before the block returns.

    If the block raises, `path` is unchanged. Several processes may write the same path.

    Raises:
        OSError: it cannot be written. The error names `path`.
    """
    make_folder(path.parent)
    with naming(path), beside(path) as part:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check(path)
        part.replace(path)
        _flush(path.parent)


@contextlib.contextmanager
def beside(path: Path, *, writer: int | None = None) -> Iterator[Path]:
    """Yields a temporary name in the same directory, and removes leftovers.

    Args:
        path: The final name.
        writer: A number that no other writer of `path` has. The default, the number of this
            process, is enough if one thread on one machine writes `path`.
    """
    part = path.with_name(f".{path.name}.{os.getpid() if writer is None else writer}.tmp")
    part.unlink(missing_ok=True)
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):  # the next start removes it, and an error before counts
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` atomically."""
    with whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes `value` atomically, as indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def loads(content: str | bytes) -> Any:
    """Parses a JSON value.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path) -> Any | None:
    """Returns the JSON value in `path`, or None if there is no such file.

    Raises:
        RunnerError: it is damaged.
    """
    try:
        if (size := path.stat().st_size) > sizes.LONGEST_STORED:
            raise RunnerError(f"{path} has {words.size(size)}, more than any such file: remove it")
        return loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunnerError(f"{path} is not valid JSON ({error}): repair it or delete it") from error


def append_json_line(path: Path, row: Mapping[str, Any]) -> None:
    """Appends one row and flushes it to disk. Drops a partial last line that a kill left."""
    append_json_lines(path, [row])
    flush_file(path)


def append_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends rows. Until `flush_file` is called, a machine crash may lose them."""
    make_folder(path.parent)
    with naming(path), path.open("a+b") as file:
        is_new = not file.seek(0, os.SEEK_END)
        _drop_cut_off_line(file)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        file.write(lines.encode())
        if is_new:
            _flush(path.parent)


def flush_file(path: Path) -> None:
    """Flushes a file or a directory to disk."""
    with naming(path):
        _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def forget_cached(path: Path) -> None:
    """Lets the next reader of a file that was flushed read the disk, if the system allows it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def flush_all(folder: Path) -> None:
    """Flushes a directory and everything in it to disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        flush_file(path)
    flush_file(folder)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an OSError without one, such as that of a full disk.

    If the directory has just been moved or deleted, its check raises instead.
    """
    try:
        yield
    except OSError as error:
        check(path)
        error.filename = error.filename or str(path)
        raise


def read_json_lines(path: Path) -> list[Any]:
    """Returns the rows of `path`, without a last line cut off by a kill, or [] without a file.

    Raises:
        ValueError: a line other than the last is not JSON. The message names file and line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    if lines and not _is_json(lines[-1]):
        lines.pop()
    return parse_json_lines(lines, name=str(path))


def last_json_lines(path: Path, size: int = _TAIL) -> list[Any]:
    """Returns the last complete rows of a file of any size, at least one if there is any.

    Raises:
        ValueError: one of them is not JSON.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - size, 0))
            content = file.read()
    except FileNotFoundError:
        return []
    lines = content.split(b"\n")[(1 if len(content) < end else 0) : -1]
    if not lines and len(content) < end:
        return last_json_lines(path, 8 * size)
    try:
        return parse_json_lines(lines, name=str(path))
    except ValueError as error:
        raise ValueError(f"{path}: one of its last lines is not JSON") from error


def parse_json_lines(lines: Sequence[bytes], *, name: str, first: int = 1) -> list[Any]:
    """Parses lines of JSON and skips empty ones. The first line has the number `first`.

    Raises:
        ValueError: a line is damaged. The message contains `name` and the line's number.
    """
    import orjson  # only here, because most commands read no log

    with contextlib.suppress(ValueError):  # it takes less than half the time of `loads`
        return [orjson.loads(line) for line in lines if line.strip()]
    rows = []
    for number, line in enumerate(lines, start=first):
        try:
            rows += [loads(line)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"{name}:{number}: not a line of JSON") from error
    return rows


def _is_json(line: bytes) -> bool:
    try:
        loads(line)
    except ValueError:
        return False
    return True


def cut_json_lines(path: Path, keep: Callable[[Any], bool]) -> Any | None:
    """Cuts the file after the newest row to keep, and returns that row.

    Older rows are not parsed. Lines that are incomplete or not JSON are dropped. Returns None if
    there is no such row, or no file.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    size, row = sum(map(len, lines)), None
    while lines and row is None:
        if lines[-1].endswith(b"\n") and _is_json(lines[-1]) and keep(json.loads(lines[-1])):
            row = json.loads(lines[-1])
        else:
            lines.pop()
    if (end := sum(map(len, lines))) < size:
        check(path)
        os.truncate(path, end)
        flush_file(path)
    return row


def _drop_cut_off_line(file: BinaryIO) -> None:
    """Cuts the file after its last complete line."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces the file's contents with `rows`."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def copy(source: Path, target: Path) -> None:
    """Copies `source`, including its times, to `target` atomically."""
    check(target)
    with beside(target) as part:
        shutil.copy2(source, part)
        flush_file(part)
        part.replace(target)
        flush_file(target.parent)


def link(source: Path, target: Path) -> None:
    """Makes `target` a hard link to `source`, or a copy if links are impossible.

    A power cut may undo the link until `flush_file` is called for its directory.
    """
    make_folder(target.parent)
    with beside(target) as part:
        try:
            os.link(source, part)
        except OSError:
            copy(source, target)
        else:
            part.replace(target)  # does nothing if both are links to one file
