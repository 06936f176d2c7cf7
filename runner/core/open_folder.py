"""A directory that stays known while it is open, wherever it is moved. Standard library only."""

import contextlib
import os
from pathlib import Path

from runner.errors import LostError


class OpenFolder:
    """A directory in which this process works.

    Args:
        folder: The directory, which must exist.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._identity = os.fstat(self._descriptor)

    def check(self) -> None:
        """Checks that the directory is still at its path.

        Raises:
            LostError: it was moved or deleted. The message contains its new path if that is known.
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
        """The current path of the directory, or None if it was deleted or the path is unknown."""
        with contextlib.suppress(OSError):
            path = Path(self._link).readlink()
            if os.path.samestat(path.stat(), self._identity):
                return path
        return None

    @property
    def inside(self) -> Path:
        """A path into the directory that stays valid after a move and never creates a directory.

        On systems without such paths, this is the directory's original path.
        """
        return Path(self._link) if Path(self._link).is_dir() else self._folder

    def close(self) -> None:
        """Closes the directory."""
        os.close(self._descriptor)

    @property
    def _link(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"
