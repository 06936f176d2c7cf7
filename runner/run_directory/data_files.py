"""Fingerprints of the data files that a configuration names. No TensorFlow.

Data may consist of many large files. A fingerprint covers the names and sizes of all files, and the
beginnings and ends of some of them. It ignores times, so a copy of a file has the same fingerprint.
"""

import contextlib
import glob
import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import RunnerError
from runner.storage import data_copies

_FIELDS = ("path", "paths", "file", "files")  # suffixes of field names
_MOST = 10_000  # entries to look at
_READ = 32  # files to read from
_PART = 1 << 16  # bytes


def fingerprints(configuration: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the number of files, their bytes and a digest for each name in a configuration.

    Args:
        configuration: The experiment as plain values. The function considers these names in the
            task and in the evaluation sets: paths and patterns of local files, URLs of files and
            directories in buckets, and TFDS data sets, through the files that describe them.
    """
    run = configuration.get("run", {})
    sections = [configuration.get("task", {}), run.get("evaluation_sets", []), run.get("test", {})]
    found = {}
    for name in dict.fromkeys(each for section in sections for each in _named(section)):
        with contextlib.suppress(OSError, RunnerError):
            if facts := data_copies.facts(name) if "://" in name else _facts(_files(name)):
                found[name] = facts
    return found


def _named(values: Any, field: str = "") -> Iterator[str]:
    """Yields the paths and patterns among the values."""
    if isinstance(values, Mapping):
        if name := values.get("tfds_name"):
            root = values.get("tfds_data_dir") or os.environ.get("TFDS_DATA_DIR")
            yield f"{root or '~/tensorflow_datasets'}/{name}/**/dataset_info.json"
        for each, value in values.items():
            if each != "tfds_data_dir":
                yield from _named(value, each)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _named(value, field)
    elif isinstance(values, str) and values and field.endswith(_FIELDS):
        yield values


def _files(name: str) -> list[tuple[str, Path]]:
    """Returns the files that a path or pattern matches, with their relative names, sorted."""
    given = Path(name).expanduser()
    tops = [given] if given.exists() else map(Path, glob.iglob(str(given), recursive=True))  # noqa: PTH207
    inside = ((top, path) for top in tops for path in (top.rglob("*") if top.is_dir() else [top]))
    return sorted(
        (path.relative_to(top.parent).as_posix(), path)
        for top, path in itertools.islice(inside, _MOST)
        if path.is_file()
    )


def _facts(files: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """Returns the number of files, their size in bytes and a digest, or an empty dict."""
    if not files:
        return {}
    sizes = [path.stat().st_size for _, path in files]
    digest = hashlib.sha256()
    for (name, _), size in zip(files, sizes, strict=True):
        digest.update(f"{name} {size}\n".encode())
    apart = max(1, len(files) // _READ)
    for (_, path), size in list(zip(files, sizes, strict=True))[::apart]:
        with path.open("rb") as file:
            digest.update(file.read(_PART))
            file.seek(max(size - _PART, 0))
            digest.update(file.read(_PART))
    return {"files": len(files), "bytes": sum(sizes), "digest": digest.hexdigest()[:16]}
