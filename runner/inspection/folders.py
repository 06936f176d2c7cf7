"""Finds the runs below a directory, at any depth. No TensorFlow."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.core import layout
from runner.run_directory import run, submitted


class Found(NamedTuple):
    """The directory of a run.

    Attributes:
        folder: The directory.
        files: Size and modification time in ns of the files in it, by name.
        folders: The names of its subdirectories.
        problem: Why its files are unknown, or empty if they are known.
    """

    folder: Path
    files: dict[str, tuple[int, int]]
    folders: list[str]
    problem: str = ""


def runs(root: Path) -> Iterator[Found]:
    """Yields the directories of runs at and below `root`, by name.

    A directory is a run's if it has params.yaml, run.json, status.json or trial.json, or if a job
    has been submitted for it. Links to directories outside `root` are followed, each once.
    """
    seen = {os.path.realpath(root)}
    waiting = [str(root)]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                there = list(entries)
        except OSError as error:
            yield Found(Path(path), {}, [], error.strerror or str(error))
            continue
        names = {each.name for each in there}
        is_run = not names.isdisjoint(run.MARKS)
        is_run = is_run or (layout.LAUNCH in names and submitted.is_all(Path(path)))
        below = [each for each in there if _is_folder(each)]
        if is_run:
            yield Found(Path(path), _stamps(there), sorted(each.name for each in below))
        inside = [
            each.path
            for each in sorted(below, key=lambda each: each.name)
            if not (each.name.startswith(".") or (is_run and layout.is_part(each.name)))
            and _is_new(each, seen)
        ]
        waiting += reversed(inside)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _stamps(entries: list[os.DirEntry[str]]) -> dict[str, tuple[int, int]]:
    """Returns the stamps of files that describe a run, which excludes checkpoints."""
    found = {}
    for each in entries:
        if each.name.endswith((".json", ".jsonl", ".yaml", ".txt")):
            try:
                facts = each.stat()
            except OSError:
                continue
            found[each.name] = facts.st_size, facts.st_mtime_ns
    return found


def _is_new(entry: os.DirEntry[str], seen: set[str]) -> bool:
    """Returns whether to search a directory. A link is searched only if its target is new."""
    if not entry.is_symlink():
        return True
    path = os.path.realpath(entry.path)
    if any(path == each or path.startswith(f"{each}{os.sep}") for each in seen):
        return False
    seen.add(path)
    return True
