"""How sure some numbers make us: intervals, differences, what to expect of more seeds.

    spread([0.91, 0.93, 0.92])        # mean 0.92, 95 % interval 0.8952 to 0.9448
    difference({0: 0.91, 1: 0.93}, {0: 0.90, 1: 0.92}).mean

All functions take and return finite numbers; NaN stands for what cannot be told, such as the
standard deviation of one value.

A mean has the interval of Student's t. Studies have three to ten seeds, where a bootstrap of the
mean, which draws from so few values, covers far less than it claims, and the normal interval does
too. The t interval keeps its 95 % for values that are about normal, however few they are.

No TensorFlow.
"""

import dataclasses
import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from scipy import special

Key = TypeVar("Key", bound=Hashable)
Bounds: TypeAlias = tuple[float, float]
"""The lowest and the highest value that a quantity can have."""
UNBOUNDED: Bounds = (-math.inf, math.inf)

CONFIDENCE = 0.95
POWER = 0.8
MOST = 1000
"""Where `needed` ends its search."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Some values of one quantity.

    Attributes:
        n: How many.
        mean: Their mean.
        std: The standard deviation, of n - 1 degrees of freedom.
        low: Where the interval of the mean begins, within the metric's bounds.
        high: Where it ends.
        minimum: The lowest.
        maximum: The highest.
    """

    n: int
    mean: float = math.nan
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan


def spread(
    values: Sequence[float],
    *,
    overlap: float = 0.0,
    confidence: float = CONFIDENCE,
    bounds: Bounds = UNBOUNDED,
) -> Spread:
    """The mean of some values with the interval of Student's t, their deviation and extremes.

    Args:
        values: Finite numbers.
        overlap: For values that are not independent because their training data overlap: the test
            data's size over the training data's, `1 / (k - 1)` for k folds. The variance of the
            mean becomes `std**2 * (1 / n + overlap)`, after Nadeau and Bengio, Inference for the
            Generalization Error, 2003.
        confidence: How often the interval is to contain the true mean.
        bounds: The lowest and the highest value that the quantity can have. The true mean lies
            between them, so cutting the interval there does not change how often it is right.
    """
    n = len(values)
    if not n:
        return Spread(0)
    if n == 1:
        return Spread(1, values[0], minimum=values[0], maximum=values[0])
    mean = float(statistics.mean(values))
    low, high = min(values), max(values)
    std = float(statistics.stdev(values))
    half = _quantile(n - 1, confidence) * std * math.sqrt(1 / n + overlap)
    ends = (max(mean - half, bounds[0]), min(mean + half, bounds[1]))
    return Spread(n, mean, std, *ends, low, high)


def without_interval(values: Spread) -> Spread:
    """The same without what values that are not the quantity's own say nothing about."""
    return dataclasses.replace(values, std=math.nan, low=math.nan, high=math.nan)


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """How much more one configuration scores than another.

    Attributes:
        n: The number of pairs; unpaired, of values on the side with fewer.
        mean: The mean difference.
        low: Where its interval begins.
        high: Where it ends.
        paired: Whether values of the same seed were compared.
        needed: About how many seeds show a true difference of this size with a probability of
            `POWER`; None if that is unknown, or more than `MOST`.
    """

    n: int
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    paired: bool = True
    needed: int | None = None

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def difference(
    ours: Mapping[Key, float],
    theirs: Mapping[Key, float],
    *,
    overlap: float = 0.0,
    comparisons: int = 1,
    bounds: Bounds = UNBOUNDED,
) -> Difference:
    """The difference of two means: paired by what both have, else by Welch's interval.

    Pairing takes out what a seed does to both sides, such as an easy split of the data.

    Args:
        ours: Values by what is shared, such as the seed.
        theirs: The same of the other side.
        overlap: As of `spread`.
        comparisons: How many differences are looked at. Each interval is widened (Bonferroni) so
            that all of them hold together with a probability of `CONFIDENCE`; otherwise one of
            twenty equal configurations would seem worse.
        bounds: As of `spread`, for the values. No difference is larger than their distance.
    """
    confidence = 1 - (1 - CONFIDENCE) / comparisons
    most = bounds[1] - bounds[0]
    shared = [key for key in ours if key in theirs]
    if len(shared) > 1 or min(len(ours), len(theirs)) < 2:
        gaps = [ours[key] - theirs[key] for key in shared]
        found = spread(gaps, overlap=overlap, confidence=confidence, bounds=(-most, most))
        enough = needed(found.mean, found.std, confidence=confidence) if not overlap else None
        return Difference(found.n, found.mean, found.low, found.high, needed=enough)
    gap = _unpaired([*ours.values()], [*theirs.values()], overlap, confidence)
    return dataclasses.replace(gap, low=max(gap.low, -most), high=min(gap.high, most))


def _unpaired(
    ours: Sequence[float], theirs: Sequence[float], overlap: float, confidence: float
) -> Difference:
    """The interval of Welch, whose sides may differ in variance, with Satterthwaite's degrees."""
    sides = [spread(ours), spread(theirs)]
    gap = sides[0].mean - sides[1].mean
    parts = [side.std**2 * (1 / side.n + overlap) for side in sides]
    n, error = min(side.n for side in sides), math.sqrt(sum(parts))
    if not error:
        return Difference(n, gap, gap, gap, paired=False)
    degrees = sum(parts) ** 2 / sum(
        part**2 / (side.n - 1) for part, side in zip(parts, sides, strict=True)
    )
    half = _quantile(degrees, confidence) * error
    std = math.sqrt(statistics.mean(side.std**2 for side in sides))
    enough = needed(gap, std, confidence=confidence, groups=2) if not overlap else None
    return Difference(n, gap, gap - half, gap + half, paired=False, needed=enough)


def needed(
    gap: float, std: float, *, confidence: float = CONFIDENCE, groups: int = 1
) -> int | None:
    """How many values a t test needs to find a true difference with a probability of `POWER`.

    The power is that of the noncentral t distribution (Cohen, Statistical Power Analysis, 1988).

    Args:
        gap: The true difference.
        std: The standard deviation of the differences; for two groups, of the values.
        confidence: One minus the test's level.
        groups: 1 for pairs, 2 for independent groups; then the number is for each group.

    Returns:
        At least 2; None if it is more than `MOST`, or if there is no spread to tell it from.
    """
    if not (std > 0 and gap) or _power(gap / std, MOST, confidence, groups) < POWER:
        return None
    few, enough = 1, MOST
    while enough - few > 1:
        middle = (few + enough) // 2
        if _power(gap / std, middle, confidence, groups) < POWER:
            few = middle
        else:
            enough = middle
    return enough


def _power(effect: float, n: int, confidence: float, groups: int) -> float:
    """How probably n values (of each group) show an effect, given in standard deviations."""
    degrees, shift = groups * (n - 1), abs(effect) * math.sqrt(n / groups)
    edge = _quantile(degrees, confidence)
    if shift > edge + 10:  # where the series of the noncentral distribution need not converge
        return 1.0
    return float(1 - special.nctdtr(degrees, shift, edge))  # the far side adds nothing to see


def _quantile(degrees: float, confidence: float) -> float:
    """How many standard errors the interval of Student's t reaches to each side."""
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


def share(count: int, n: int) -> tuple[float, float]:
    """The interval of a share, such as that of the trials which diverged, after Wilson (1927).

    It stays within 0 and 1 and keeps its promise for few trials and for shares of 0 and 1, where
    the normal interval has no width.
    """
    z = float(special.ndtri((1 + CONFIDENCE) / 2))
    rate, extra = count / n, z**2 / n
    middle = (rate + extra / 2) / (1 + extra)
    half = z / (1 + extra) * math.sqrt(rate * (1 - rate) / n + extra / n / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)
