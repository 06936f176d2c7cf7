"""Caches preprocessed data in a file, which is reused only for the same content and settings."""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.core import console
from runner.core import files as core_files
from runner.errors import ConfigError

Arrays = Mapping[str, np.ndarray]


def cached(
    folder: str,
    name: str,
    *,
    files: Sequence[Path],
    settings: Any,
    version: int,
    make: Callable[[], Arrays],
) -> dict[str, np.ndarray]:
    """Returns the result of `make`, from the cache if it ran before with the same input.

    Args:
        folder: the cache. If empty, results are not cached.
        name: a prefix for the file's name.
        files: the files that `make` reads. Their content matters, not their names or dates.
        settings: everything else that the result depends on, as JSON types.
        version: the version of the code behind `make`. Raise it when its results change.
        make: must return arrays of numbers or strings, not Python objects.

    Raises:
        ConfigError: one of `files` is missing, or the directory cannot be written.
    """
    if not folder:
        return dict(make())
    path = Path(folder) / f"{name}-{_key(files, settings, version)}.npz"
    kept = _read(path)
    if kept is None:
        console.announce(f"preparing {path} ...")
        kept = dict(make())
        try:
            _write(path, kept)
        except OSError as error:
            raise ConfigError(f"the cache {path} cannot be written: {error.strerror}") from error
    return kept


def _key(files: Sequence[Path], settings: Any, version: int) -> str:
    contents = []
    for path in files:
        try:
            with path.open("rb") as file:
                contents.append(hashlib.file_digest(file, "sha256").hexdigest())
        except FileNotFoundError as error:
            raise ConfigError(f"there is no file {path}") from error
    parts = json.dumps([contents, settings, version], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """Reads the arrays in a file. Returns None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _write(path: Path, arrays: Arrays) -> None:
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(
                f"{key!r} of {path.name} contains Python objects, which cannot be cached"
            )
    with core_files.whole(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub lacks keywords
