"""The directories of exported versions, `export/<format>/<step>/`, which appear atomically."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner.checkpoints import checkpoint_files
from runner.core import files, layout
from runner.errors import ConfigError

_CARDS = (layout.EXPORT_FACTS, layout.MODEL_CARD)


class Version(NamedTuple):
    """The version of one format at one step."""

    root: Path
    format: str
    step: int

    @property
    def accepted(self) -> Path:
        """Its directory. TensorFlow Serving accepts only numbers as versions."""
        return self.root / self.format / str(self.step)

    @property
    def rejected(self) -> Path:
        """Its directory if export validation rejects it."""
        return self.root / self.format / f"{layout.REJECTED}{self.step}"

    def facts(self) -> dict[str, Any] | None:
        """Returns the recorded facts of the accepted version, or None if there is none."""
        if not self.accepted.exists():
            return None
        found = files.read_json(self.accepted / layout.EXPORT_FACTS)
        return found if isinstance(found, dict) else {}

    def check_same(self, checkpoint: str, limit: int) -> None:
        """Raises ConfigError if the accepted version has another checkpoint or evaluation limit.

        Args:
            checkpoint: Its digest.
            limit: `RunConfig.limit_evaluation`.
        """
        facts = self.facts()
        if facts is None:
            return
        if (was := facts.get("limited", 0)) and was != limit:
            raise ConfigError(
                f"{self.accepted} was scored with RunConfig.limit_evaluation = {was}, now {limit}; "
                "remove it first"
            )
        if facts.get("digest") != checkpoint:
            raise ConfigError(
                f"{self.accepted} was exported from another checkpoint of step {self.step:,}; "
                "remove it first, if no server uses it"
            )

    def publish(self, made: Path, *, accepted: bool) -> Path:
        """Publishes a finished directory as the version, flushed to disk. Returns its new path."""
        place = self.accepted if accepted else self.rejected
        files.make_folder(place.parent)
        files.flush_all(made)
        files.remove_folder(self.rejected)
        made.rename(place)
        files.flush_file(place.parent)
        return place


def digest(checkpoint: Path) -> str:
    """Identifies a checkpoint by the SHA-256 of its index, which has a checksum of each tensor."""
    return hashlib.sha256(checkpoint_files.index(checkpoint).read_bytes()).hexdigest()


def size(path: Path) -> int:
    """Returns the bytes of a file, or of a version's directory without its card and facts."""
    return sum(file.stat().st_size for file in _files(path) if file.name not in _CARDS)


def size_of_checkpoint(path: Path) -> int:
    """Returns the bytes of a checkpoint's files."""
    parts = [*checkpoint_files.data(path), checkpoint_files.index(path)]
    return sum(part.stat().st_size for part in parts)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in path.rglob("*") if file.is_file())
