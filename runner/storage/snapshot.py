"""Captures the state of a directory while a run writes in it.

The run writes each file under a temporary name and renames it, so a hard link preserves a file's
content. Files that refer to checkpoints are read first, because the files they name are already
written. If a file was removed meanwhile, the directory is read again.
"""

import contextlib
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from runner.core import files as disk
from runner.core import layout
from runner.storage import manifest

FOLDER = ".mirror"
"""The data that copying must remember, in the copied directory."""

_LINKS = "links"
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05
_TEMPORARY = re.compile(r"\..*|.*_temp|.*\.tmp")
_LISTED = re.compile(r'^all_model_checkpoint_paths: (".*")$', re.MULTILINE)

Stamp = tuple[int, int, int]
"""Size, time and inode of a file. If one of them changes, the file has changed."""


class Snapshot(NamedTuple):
    """The files of a directory.

    Attributes:
        files: The files by their path within it, with `/` between names.
        texts: The contents of files that refer to others.
        sources: Where to read the files that have changed.
    """

    files: Mapping[str, Stamp]
    texts: Mapping[str, bytes]
    sources: Mapping[str, Path]


def take(
    folder: Path, known: Mapping[str, Stamp], leaves_out: Callable[[str], bool] = lambda _: False
) -> Snapshot:
    """Returns the state of a directory.

    Args:
        folder: The run's directory.
        known: Files that need not be read if they are unchanged.
        leaves_out: Returns whether a file or directory, given its path, belongs to another process.
    """
    links = folder / FOLDER / _LINKS
    for _ in range(_ATTEMPTS):
        shutil.rmtree(links, ignore_errors=True)
        disk.make_folder(links)
        texts = _texts(folder, leaves_out)
        listed = {path: _names(text) for path, text in texts.items() if _lists(path)}
        files: dict[str, Stamp] = {}
        sources: dict[str, Path] = {}
        whole = True
        for path, stamp in sorted(_walk(folder, "", leaves_out)):
            if manifest.points(path) or not _is_committed(path, listed):
                continue
            files[path] = stamp
            if known.get(path) != stamp:
                source = folder / path
                if not manifest.grows(path):
                    try:
                        source = _link(source, links / str(len(sources)))
                    except FileNotFoundError:
                        whole = False
                sources[path] = source
        files |= {path: (len(text), zlib.crc32(text), 0) for path, text in texts.items()}
        if whole and _has_all(listed, files):
            break
        time.sleep(_PAUSE_SECONDS)  # a checkpoint is being removed, or was removed by someone else
    return Snapshot(files, texts, sources)


def clear(folder: Path) -> None:
    """Removes the links."""
    shutil.rmtree(folder / FOLDER / _LINKS, ignore_errors=True)


def listed(text: bytes) -> list[str]:
    """Returns the checkpoints that TensorFlow's file `checkpoint` lists."""
    return sorted(_names(text))


def _walk(
    folder: Path, below: str, leaves_out: Callable[[str], bool]
) -> Iterator[tuple[str, Stamp]]:
    """Yields the paths of all files, with their stamps."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if _is_private(entry.name) or leaves_out(path):
                continue
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir():
                    if entry.name != layout.QUEUE:
                        yield from _walk(Path(entry.path), f"{path}/", leaves_out)
                elif entry.is_file():
                    found = entry.stat()
                    yield path, (found.st_size, found.st_mtime_ns, found.st_ino)


def _is_private(name: str) -> bool:
    """Returns whether a file is a lock, part of the copying, or unfinished."""
    return name in (layout.CLAIM, manifest.NAME) or _TEMPORARY.fullmatch(name) is not None


def _texts(folder: Path, leaves_out: Callable[[str], bool]) -> dict[str, bytes]:
    found = {}
    for path, _ in _walk(folder, "", leaves_out):
        if manifest.points(path):
            with contextlib.suppress(FileNotFoundError):
                found[path] = (folder / path).read_bytes()
                if path.endswith(layout.EVALUATOR):  # its mtime is the evaluator's heartbeat
                    found[path] = _with_time(folder / path, found[path])
    return found


def _with_time(path: Path, text: bytes) -> bytes:
    """Returns a registration including the time of its last change, which copies lose."""
    with contextlib.suppress(ValueError, TypeError):
        return json.dumps({**json.loads(text), "beat": path.stat().st_mtime}).encode()
    return text


def _lists(path: str) -> bool:
    return path.rpartition("/")[2] == layout.CHECKPOINT


def _names(text: bytes) -> set[str]:
    found = _LISTED.findall(text.decode(errors="replace"))
    with contextlib.suppress(ValueError):
        return {Path(json.loads(name)).name for name in found}
    return set()


def _is_committed(path: str, listed: Mapping[str, set[str]]) -> bool:
    """Returns whether a file may be copied. Only listed checkpoints are complete."""
    name = manifest.checkpoint_of(path)
    if not name:
        return True
    folder = path.rpartition("/")[0]
    places = [folder, folder.rpartition("/")[0]] if folder else [""]
    lists = [f"{place}/{layout.CHECKPOINT}".lstrip("/") for place in places]
    nearest = next((each for each in lists if each in listed), None)
    return nearest is not None and name in listed[nearest]


def _has_all(listed: Mapping[str, set[str]], files: Mapping[str, Stamp]) -> bool:
    """Returns whether every listed checkpoint exists."""
    return all(
        f"{path.rpartition('/')[0]}/{name}.index".lstrip("/") in files
        for path, names in listed.items()
        for name in names
    )


def _link(source: Path, link: Path) -> Path:
    """Returns a hard link, or the file itself if links are unavailable."""
    try:
        os.link(source, link)
    except FileNotFoundError:
        raise
    except OSError:
        return source
    return link
