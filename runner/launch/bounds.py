"""How many workers a run may have: what `--workers` says. Standard library only."""

import dataclasses
import re
from collections.abc import Collection
from typing import Self

from runner.errors import ConfigError

_MOST = 4096


@dataclasses.dataclass(frozen=True)
class Bounds:
    """From `least` to `most` workers."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `--workers` says: `4`, or `2..4`.

        Raises:
            ConfigError: it is neither.
        """
        found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text)
        if not found:
            raise ConfigError(f"--workers={text}: expected a number, or a range as in 2..4")
        least, most = int(found[1]), int(found[2] or found[1])
        if least > most:
            raise ConfigError(f"--workers={text}: did you mean {most}..{least}?")
        if not 1 <= least <= most <= _MOST:
            raise ConfigError(f"--workers={text}: a run has 1 to {_MOST:,} workers")
        return cls(least, most)

    def best(self, available: int, refused: Collection[int] = ()) -> int:
        """How many of the available workers to take, but not a number that was refused; 0: none."""
        sizes = range(min(available, self.most), self.least - 1, -1)
        return next((size for size in sizes if size not in refused), 0)

    @property
    def given(self) -> str:
        """As `--workers` says it."""
        return str(self.most) if self.least == self.most else f"{self.least}..{self.most}"

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
