"""Results of several rounds: medians, paired ratios and their spread, as Markdown and JSON."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The ratio of two contenders' figures.

    Attributes:
        ours: The numerator.
        others: The denominator. With several contenders, the one with the highest median.
        least: The minimum that the median should reach, or None.
        most: The maximum that the median should not exceed, or None.
    """

    ours: str
    others: tuple[str, ...]
    least: float | None = None
    most: float | None = None

    @property
    def name(self) -> str:
        """The name, such as `runner / bare`."""
        return f"{self.ours} / {self.others[0] if len(self.others) == 1 else 'best other'}"

    def reached(self, median: float) -> bool:
        """Whether a median meets the goal."""
        return (self.least or -math.inf) <= median <= (self.most or math.inf)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The contenders' figures, round by round.

    Attributes:
        what: What was measured.
        unit: The unit of the figures, or empty if their names contain it.
        rounds: One figure per round, by contender.
        ratios: The ratios to compute in each round.
    """

    what: str
    unit: str
    rounds: dict[str, list[float]]
    ratios: Sequence[Ratio] = ()

    def paired(self, ratio: Ratio) -> list[float]:
        """The ratio of each round."""
        measured = [name for name in ratio.others if name in self.rounds]
        other = max(measured, key=lambda name: statistics.median(self.rounds[name]))
        pairs = zip(self.rounds[ratio.ours], self.rounds[other], strict=True)
        return [ours / theirs for ours, theirs in pairs]

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON types."""
        return {
            "what": self.what,
            "unit": self.unit,
            "rounds": self.rounds,
            "ratios": [self._described(ratio) for ratio in self.ratios],
        }

    def _described(self, ratio: Ratio) -> dict[str, Any]:
        paired = self.paired(ratio)
        median = statistics.median(paired)
        low, high = quartiles(paired)
        return {
            "name": ratio.name,
            "median": median,
            "lower_quartile": low,
            "upper_quartile": high,
            "least": ratio.least,
            "most": ratio.most,
            "reached": ratio.reached(median),
        }

    def cells(self) -> dict[str, str]:
        """Medians and ratios by column. Ratios that miss their goal are bold."""
        shown = {name: number(statistics.median(values)) for name, values in self.rounds.items()}
        for ratio in self.ratios:
            pairs = self._described(ratio)
            mark = "" if pairs["reached"] else "**"
            spread = f"({pairs['lower_quartile']:.2f} to {pairs['upper_quartile']:.2f})"
            shown[ratio.name] = f"{mark}{pairs['median']:.2f}{mark} {spread}"
        return {"": ", ".join(filter(None, [self.what, self.unit])), **shown}


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Formats one table, with a column for each contender and ratio of any comparison."""
    lines = [comparison.cells() for comparison in comparisons]
    names = list(dict.fromkeys(name for line in lines for name in line))
    plain = [name for name in names if " / " not in name]
    columns = [*plain, *(name for name in names if name not in plain)]
    rows = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    rows += [[line.get(name, "") for name in columns] for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def number(value: float) -> str:
    """Formats a number with three significant digits, or all digits of its integer part."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"
