"""Files that appear whole: atomic writes, JSON lines, links. Standard library only."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO


def write_text(path: Path, text: str) -> None:
    """Writes `text` beside `path`, flushes it to the disk and renames it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
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
    """The JSON value in `path`, or None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def append_json_line(path: Path, row: Mapping[str, Any], *, flush: bool = True) -> None:
    """Appends one row and flushes it to the disk; a line cut off by a kill makes room for it.

    Without `flush`, a machine that fails may lose the row, until `flush_file` is called.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        _drop_cut_off_line(file)
        file.write((json.dumps(row) + "\n").encode())
        file.flush()
        if flush:
            os.fsync(file.fileno())


def flush_file(path: Path) -> None:
    """What was written to `path` is on the disk when this returns."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of `path`, none where it does not exist; a last line cut off by a kill is left out.

    Raises:
        ValueError: a line other than the last is not JSON; the message names file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise ValueError(f"{path}:{number}: not a line of JSON") from error


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
