"""Checks and fingerprints the files of a source."""

import hashlib
from pathlib import Path

from runner.errors import ConfigError

_PART = 1 << 16  # bytes read at each end


def check(path: Path) -> None:
    """Checks that a file can be read.

    Raises:
        ConfigError: if it is missing, is not a file, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def fingerprint(path: Path) -> str:
    """Returns a hash of a file's size, its start and its end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_PART))
        file.seek(max(0, size - _PART))
        digest.update(file.read(_PART))
    return digest.hexdigest()
