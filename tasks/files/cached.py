"""Preprocessed data, kept in a file that is used only for the same content and configuration."""

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
    """What `make` returns, or what it returned earlier for the same input.

    Args:
        folder: where results are kept; empty: nowhere.
        name: begins the file's name.
        files: what `make` reads; their content counts, not their names or dates.
        settings: what else the result depends on, as JSON holds it.
        version: of the code behind `make`; raise it when the result changes.
        make: its arrays hold numbers or strings, no Python objects.

    Raises:
        ConfigError: one of `files` is missing, or the folder cannot be written.
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
    """The arrays of a file; None where there is none, or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _write(path: Path, arrays: Arrays) -> None:
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"{key!r} of {path.name} holds Python objects, which are not kept")
    with core_files.whole(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub knows no names
