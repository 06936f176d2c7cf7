"""Numbers computed from data files, kept in the user's cache until the files change."""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runner.core import files


def folder(kind: str) -> Path:
    """Returns the directory in the cache for numbers of one kind."""
    return files.cache() / kind


def place(kind: str, name: str) -> Path:
    """Returns the file for the numbers of one kind that were computed from one data file."""
    return folder(kind) / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"


def read(path: Path, head: Sequence[int]) -> np.ndarray | None:
    """Returns the stored numbers, int64, memory-mapped. None unless they start with `head`."""
    try:
        numbers: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    fits = numbers.ndim == 1 and numbers.dtype == np.int64
    return numbers if fits and numbers[: len(head)].tolist() == list(head) else None


def write(path: Path, numbers: np.ndarray) -> None:
    """Stores numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        np.save(file, numbers)
    Path(file.name).replace(path)
