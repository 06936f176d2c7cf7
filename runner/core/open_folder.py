"""A directory that stays known while it is open, wherever it is moved. Standard library only."""

import contextlib
import os
from pathlib import Path

from runner.errors import LostError


class OpenFolder:
    """A directory that this process works in.

    Args:
        folder: The directory, which exists.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._identity = os.fstat(self._descriptor)

    def check(self) -> None:
        """Checks that the directory is still where it was.

        Raises:
            LostError: it was moved or deleted; the message says where it is now, if that is known.
        """
        try:
            seen = self._folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            seen = None
        if seen and os.path.samestat(seen, self._identity):
            return
        now = self.now
        where = f"moved to {now}" if now else "moved or deleted"
        new = "that path" if now else "its new path, if it was moved"
        raise LostError(
            f"{self._folder} was {where} while this process was writing there; nothing more was "
            f"written. To resume, run the same command with {new}"
        )

    @property
    def now(self) -> Path | None:
        """Where the directory is now; None if it was deleted, or if the system does not tell."""
        with contextlib.suppress(OSError):
            path = Path(self._link).readlink()
            if os.path.samestat(path.stat(), self._identity):
                return path
        return None

    @property
    def inside(self) -> Path:
        """A path that leads into the directory even after it was moved, and creates none.

        Where the system has no such path, this is the directory's name.
        """
        return Path(self._link) if Path(self._link).is_dir() else self._folder

    def close(self) -> None:
        """Closes it."""
        os.close(self._descriptor)

    @property
    def _link(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"
