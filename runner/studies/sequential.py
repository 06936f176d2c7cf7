"""Decides whether two configurations differ, while the seeds of both still arrive.

    test = sequential.Test(limit=30)
    test.judge([0.01, 0.02, 0.015, 0.01]).verdict    # better, worse, equivalent, undecided or None

The method is the sequential t test, a likelihood ratio test. After each pair of seeds it compares
two hypotheses about the paired differences, which do not depend on their standard deviation: a mean
of zero, and a mean of plus or minus `effect` standard deviations. See Rushton, On a Sequential
t-Test, 1950, and Schnuerch and Erdfelder, Controlling Decision Errors With Minimal Costs: The
Sequential Probability Ratio t Test, 2020. The boundaries of the ratio are Wald's (Sequential Tests
of Statistical Hypotheses, 1945). `python -m scripts.decisions` measures the wrong decisions.

No TensorFlow.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from runner.studies import statistics

LEVEL = 0.05
FIRST = 3
"""The smallest number of pairs that a decision is based on."""
LEAST = 4
"""The smallest limit."""
_MISSED = 0.25  # Wald's second error: how often the test may miss a difference of `effect`


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
            80 %.
        level: The probability of a wrong decision between configurations without a difference. It
            is lower in simulations with normal differences. Ville's inequality bounds it by
            `level` with a margin, and by four thirds of `level` without one.
        margin: Differences up to this size do not matter. 0 if every difference matters: then
            only equal scores are equivalent.
    """

    limit: int
    level: float = LEVEL
    margin: float = 0.0

    @functools.cached_property
    def effect(self) -> float:
        """The difference that the test is tuned for, in standard deviations of the differences."""
        return statistics.detectable(max(self.limit // 2, 2), confidence=1 - self.level)

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
        missed = 0.0 if self.margin else _MISSED  # a margin: no end at a small ratio
        upper = math.log((1 - missed) / self.level)
        lower = math.log(missed / (1 - self.level)) if missed else -math.inf
        half = _half_width(n, self.effect, upper) * error if error else math.inf
        low, high = mean - half, mean + half
        share = 1 / (1 + (n - 1) * (error / mean) ** 2) if mean else 0.0
        ratio = _log_ratio(n, self.effect, share)
        verdict = None
        if ratio >= upper:
            verdict = Verdict.BETTER if mean > 0 else Verdict.WORSE
            low, high = (mean, mean) if not error else (low, high)
        elif -self.margin <= low and high <= self.margin:
            verdict = Verdict.EQUIVALENT
        elif n >= self.limit or ratio <= lower:
            verdict = Verdict.UNDECIDED
        return Judgement(verdict, n, mean, low, high)


def _log_ratio(n: int, effect: float, share: float) -> float:
    """Returns the logarithm of the likelihood ratio of n differences.

    It is the density of their t statistic if the mean is plus or minus `effect`, averaged, divided
    by its density if the mean is zero.

    Args:
        n: Their number.
        effect: As for `Test`.
        share: Of the mean in the mean square: `t**2 / (n - 1 + t**2)`.
    """
    shift = n * effect**2 / 2
    return float(np.log(special.hyp1f1(n / 2, 0.5, shift * share)) - shift)


def _half_width(n: int, effect: float, upper: float) -> float:
    """Returns the t statistic at which the likelihood ratio reaches a boundary, or infinity."""
    if _log_ratio(n, effect, 1.0) <= upper:
        return math.inf
    share = optimize.brentq(lambda each: _log_ratio(n, effect, each) - upper, 0.0, 1.0)
    return math.sqrt((n - 1) * share / (1 - share))
