"""Decides whether two configurations differ, while the seeds of both still arrive.

    test = sequential.Test(limit=30)
    test.judge([0.01, 0.02, 0.015, 0.01]).verdict    # better, worse, equivalent, undecided or None

The method is a sequential t test of the paired differences. After each pair of seeds, it compares
their t statistic with two boundaries: from the upper one on, the difference is decided, and below
the lower one, the comparison ends without a decision. `boundaries` computes those that need the
fewest seeds. `python -m scripts.decisions` measures the wrong decisions.

No TensorFlow.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Sequence

import numpy as np

from runner.studies import boundaries, statistics
from runner.studies.boundaries import FIRST, Boundaries

LEVEL = 0.05
LEAST = 4
"""The smallest limit."""
_LARGEST = 3.0  # standard deviations: the largest difference that a test is tuned for


class Verdict(enum.StrEnum):
    """How the candidate compares with the baseline."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """The state of a comparison.

    Attributes:
        verdict: None while more pairs are needed.
        n: The number of pairs used.
        mean: The mean difference, where a positive one is better.
        low: The lower end of its interval, which allows for a look after every pair. It excludes
            zero if and only if the verdict is better or worse.
        high: The upper end.
    """

    verdict: Verdict | None
    n: int
    mean: float = math.nan
    low: float = -math.inf
    high: float = math.inf


@dataclasses.dataclass(frozen=True)
class Test:
    """A comparison of two configurations.

    Attributes:
        limit: The maximum number of pairs, at least `LEAST`. The test is tuned for the difference
            that half as many pairs, all trained in advance, would detect with a probability of
            80 %. It has the same power, except for very small limits and levels.
        level: The probability of a wrong decision between configurations without a difference, for
            normal differences.
        margin: Differences up to this size do not matter. 0 if every difference matters: then
            only equal scores are equivalent.
    """

    limit: int
    level: float = LEVEL
    margin: float = 0.0

    @functools.cached_property
    def effect(self) -> float:
        """The difference that the test is tuned for, in standard deviations of the differences."""
        planned = statistics.detectable(max(self.limit // 2, 2), confidence=1 - self.level)
        return min(planned, _LARGEST)

    @functools.cached_property
    def boundaries(self) -> Boundaries:
        """When the test ends. With a margin, equivalence ends it instead of the lower boundary."""
        ends = not self.margin
        return boundaries.fewest(self.limit, self.effect, self.level, ends=ends)

    def judge(self, differences: Sequence[float]) -> Judgement:
        """Returns the decision after the earliest pair that allows one.

        Args:
            differences: The finite differences of each seed, candidate minus baseline, in the
                order of the seeds. A positive one is better.
        """
        found = Judgement(None, 0)
        for n in range(1, min(len(differences), self.limit) + 1):
            found = self.after(differences[:n])
            if found.verdict:
                break
        return found

    def after(self, differences: Sequence[float]) -> Judgement:
        """Returns the decision after these pairs, if there was none after fewer of them."""
        n, mean = len(differences), float(np.mean(differences))
        if n < FIRST:
            return Judgement(None, n, mean)
        error = float(np.std(differences, ddof=1)) / math.sqrt(n)
        if not error and not mean:
            return Judgement(Verdict.EQUIVALENT, n, 0.0, 0.0, 0.0)
        decide, end = float(self.boundaries.decide[n]), float(self.boundaries.end[n])
        half = decide * error if math.isfinite(decide) else math.inf
        low, high = mean - half, mean + half
        verdict = None
        if low > 0 or high < 0:
            verdict = Verdict.BETTER if mean > 0 else Verdict.WORSE
        elif -self.margin <= low and high <= self.margin:
            verdict = Verdict.EQUIVALENT
        elif n == self.limit or (not self.margin and abs(mean) <= end * error):
            verdict = Verdict.UNDECIDED
        return Judgement(verdict, n, mean, low, high)
