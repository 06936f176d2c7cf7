"""An incomplete file of predictions: its parts, and a record of their progress.

They are in a directory next to the file, `<name>.partial`. Each part is written before the record
includes it. Whenever the process ends, the record therefore describes a state from which the same
command continues. The provenance of the finished file is in `<name>.info.json`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from runner.core import files
from runner.errors import ConfigError
from runner.evaluation.prediction import writers

_MADE_OF = "made_of"


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of the parts.

    Attributes:
        parts: Their number.
        rows: The number of their rows.
        batch: The batch to continue with. All examples of earlier batches are in the parts.
        first: The index of its first example.
        done: How many of its examples are in the parts, too.
        inputs: A checksum of its inputs.
        strange: The number of rows with a number that is not finite.
        example: One of these.
    """

    parts: int = 0
    rows: int = 0
    batch: int = 0
    first: int = 0
    done: int = 0
    inputs: int = 0
    strange: int = 0
    example: str = ""


class Partial:
    """The parts of a file.

    Args:
        output: The file.

    Attributes:
        output: The file.
        folder: The directory of the parts.
        info: Records the provenance of the file, once it is complete.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.partial")
        self.info = output.with_name(f"{output.name}.info.json")
        self._record = self.folder / "progress.json"

    @property
    def is_begun(self) -> bool:
        """Whether there are parts."""
        return self._record.exists()

    @property
    def made_of(self) -> Mapping[str, Any]:
        """The provenance of the parts, or else of the complete file, or empty without either."""
        return self._found.get(_MADE_OF, {})

    @property
    def results(self) -> dict[str, Any] | None:
        """The results of the command that completed the file, or None if none did."""
        return self._found.get("results")

    @property
    def progress(self) -> Progress:
        """The progress of the parts."""
        return Progress(**self._found.get("progress", {}))

    def check(self, *, overwrite: bool) -> None:
        """Raises ConfigError if another file or directory is in the way."""
        if self.output.is_dir():
            raise ConfigError("{output} is a directory: name a file", output=str(self.output))
        parent = next(path for path in self.output.absolute().parents if path.exists())
        if not parent.is_dir():
            raise ConfigError(
                f"{{output}}: {parent} is a file, not a directory", output=str(self.output)
            )
        if self.output.exists() and not self.made_of and not overwrite:
            raise ConfigError(
                f"{self.output} exists, and nothing says what it was made of: choose another "
                "{output}, or replace it with {overwrite}",
                output=None,
                overwrite=True,
            )

    def clear(self) -> None:
        """Removes the parts, the record first."""
        files.remove(self._record)
        for path in self.folder.glob("*.arrow"):
            files.remove(path)

    def add(self, rows: pa.Table, progress: Progress, made_of: Mapping[str, Any]) -> None:
        """Writes a part, then the record that includes it."""
        with files.whole(self._part(progress.parts - 1)) as file:
            writers.write_part(rows, file)
        record = {_MADE_OF: made_of, "progress": dataclasses.asdict(progress)}
        files.write_json(self._record, record)

    def join(self, writer: writers.Writer) -> None:
        """Joins all parts to the file. They are kept until `complete`."""
        joined = self.folder / "joined"
        with files.whole(joined) as file:
            writer.write([self._part(number) for number in range(self.progress.parts)], file)
        files.check(joined)
        joined.replace(self.output)
        files.flush_file(self.output.parent)

    def complete(self, results: Mapping[str, Any]) -> None:
        """Records the provenance of the file, and removes the parts."""
        files.check(self._record)
        files.write_json(self.info, {_MADE_OF: self.made_of, "results": results})
        self.clear()

    @property
    def _found(self) -> dict[str, Any]:
        """The record of the parts, or else the information about the complete file."""
        if self.is_begun:
            return files.read_json(self._record) or {}
        return (files.read_json(self.info) or {}) if self.output.exists() else {}

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:05}.arrow"


@contextlib.contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Removes `folder` after the block if it is empty."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
