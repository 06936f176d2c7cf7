"""Files that appear whole: atomic writes, JSON lines, links. Standard library only."""

import contextlib
import gc
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runner.errors import RunnerError

Hook = Callable[[dict[str, Any]], Any]
"""Makes something of each object of JSON, the inner ones first: that of `json.loads`."""


_checks: dict[str, Callable[[], None]] = {}  # by folder


@contextlib.contextmanager
def guarded(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Inside, nothing here writes or removes a file in `folder` without asking `check` first.

    A process that was suspended may have been taken for dead, and wakes up in the middle of its
    work: so it is asked before each write, not now and then.

    Args:
        folder: And all below it.
        check: Raises where this process may not write there.
    """
    below = os.path.join(os.path.abspath(folder), "")  # noqa: PTH100, PTH118
    _checks[below] = check
    try:
        yield
    finally:
        del _checks[below]


def check(path: Path) -> None:
    """Asks whether `path` may be written or removed; raises where its folder's check does."""
    text = os.path.abspath(path)  # noqa: PTH100, a Path's parents would be kept by Python
    for below, ask in list(_checks.items()):
        if text.startswith(below):
            ask()


def write_text(path: Path, text: str) -> None:
    """Writes `text` beside `path`, flushes it to the disk and renames it into place."""
    check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path), beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any | None:
    """The JSON value in `path`, or None where there is no such file.

    Raises:
        RunnerError: it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunnerError(f"{path} is not JSON ({error}): mend it, or remove it") from error


def append_json_line(path: Path, row: Mapping[str, Any]) -> None:
    """Appends one row and flushes it to the disk; a line cut off by a kill makes room for it."""
    append_json_lines(path, [row])
    flush_file(path)


def append_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends rows; a machine that fails may lose them until `flush_file` is called."""
    check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), path.open("a+b") as file:
        _drop_cut_off_line(file)
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def flush_file(path: Path) -> None:
    """What was written to `path` is on the disk when this returns."""
    with naming(path), path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file's name in an OSError that has none, as of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def read_json_lines(path: Path, hook: Hook | None = None) -> list[Any]:
    """The rows of `path`, none where it does not exist; a last line cut off by a kill is left out.

    Raises:
        ValueError: a line other than the last is not JSON; the message names file and line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    if _parsed(lines[-1:]) is None:
        lines.pop()
    return parse_json_lines(lines, hook, name=str(path))


def parse_json_lines(lines: Sequence[bytes], hook: Hook | None = None, *, name: str) -> list[Any]:
    """What lines of JSON hold; empty ones are left out.

    Raises:
        ValueError: one is damaged; the message says which, after `name`.
    """
    rows = _parsed(lines, hook)
    if rows is None:
        damaged = next(n for n, line in enumerate(lines, start=1) if _parsed([line], hook) is None)
        raise ValueError(f"{name}:{damaged}: not a line of JSON")
    return rows


def _parsed(lines: Sequence[bytes], hook: Hook | None = None) -> list[Any] | None:
    """What lines of JSON hold, None where one is damaged. At once they take half the time."""
    given = [line for line in lines if line.strip()]
    try:
        with no_collection():
            rows = json.loads(b"[%s]" % b",".join(given), object_hook=hook)
    except ValueError:
        return None
    return rows if len(rows) == len(given) else None


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Inside, Python looks for no cycles; beside TensorFlow's objects that takes a while each time.

    Of many objects that are made at once and all stay, it would be a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def cut_json_lines(path: Path, keep: Callable[[Any], bool]) -> Any | None:
    """Ends the file after the newest row to keep, and returns that; those before are not read.

    What is no whole line of JSON is not kept. None where there is no such row, or no file.
    """
    if not path.exists() or not path.stat().st_size:
        return None
    check(path)
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as text:
            size, end, row = len(text), text.rfind(b"\n") + 1, None
            while end and row is None:
                start = text.rfind(b"\n", 0, end - 1) + 1
                found = _parsed([text[start:end]])
                if found and keep(found[0]):
                    row = found[0]
                else:
                    end = start
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
    return row


def _drop_cut_off_line(file: BinaryIO) -> None:
    """Ends the file after its last whole line."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces the whole file by `rows`."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def link(source: Path, target: Path) -> None:
    """Makes `target` the same file as `source`: a hard link where possible, else a copy."""
    check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    try:
        try:
            os.link(source, beside)
        except OSError:
            shutil.copy2(source, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)  # renaming onto a link of the same file does nothing
