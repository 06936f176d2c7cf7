"""The allowed number of workers of a run, as given by `--workers`. Standard library only."""

import dataclasses
import re
from collections.abc import Collection
from typing import Self

from runner.errors import ConfigError

_MOST = 4096


@dataclasses.dataclass(frozen=True)
class Bounds:
    """A range of `least` to `most` workers."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a value of `--workers`: `4` or `2..4`.

        Raises:
            ConfigError: the text has another form, or the range is not valid.
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
        """Returns the largest possible number of workers that was not rejected, or 0."""
        sizes = range(min(available, self.most), self.least - 1, -1)
        return next((size for size in sizes if size not in refused), 0)

    @property
    def given(self) -> str:
        """The value as written for `--workers`."""
        return str(self.most) if self.least == self.most else f"{self.least}..{self.most}"

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
