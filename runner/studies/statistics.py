"""Statistics of scores: intervals, differences, and the number of seeds needed.

    spread([0.91, 0.93, 0.92])        # mean 0.92, 95 % interval 0.8952 to 0.9448
    difference({0: 0.91, 1: 0.93}, {0: 0.90, 1: 0.92}).mean

All functions take and return finite numbers. NaN marks an undefined result, such as the standard
deviation of one value.

The interval of a mean is Student's t interval. Studies have three to ten seeds. For so few values,
a bootstrap of the mean and the normal interval cover far less than their nominal level. The t
interval keeps its 95 % for roughly normal values, however few there are.

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
"""The largest result of `needed`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Some values of one quantity.

    Attributes:
        n: The number of values.
        mean: Their mean.
        std: The standard deviation, with n - 1 degrees of freedom.
        low: The lower end of the mean's interval, within the metric's bounds.
        high: The upper end.
        minimum: The lowest value.
        maximum: The highest value.
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
    """Returns the mean of some values with Student's t interval, their deviation and extremes.

    Args:
        values: Finite numbers.
        overlap: The size of the test data divided by that of the training data, if values are
            not independent because their training data overlap: `1 / (k - 1)` for k folds. The
            variance of the mean becomes `std**2 * (1 / n + overlap)`, after Nadeau and Bengio,
            Inference for the Generalization Error, 2003.
        confidence: The probability that the interval contains the true mean.
        bounds: The lowest and the highest value that the quantity can have. The true mean lies
            between them, so clipping the interval does not change its coverage.
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
    """Removes the deviation and the interval, for values that include replaced scores."""
    return dataclasses.replace(values, std=math.nan, low=math.nan, high=math.nan)


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The difference between the scores of two configurations.

    Attributes:
        n: The number of pairs, or without pairs the number of values on the smaller side.
        mean: The mean difference.
        low: The lower end of its interval.
        high: The upper end.
        paired: Whether values of the same seed were compared.
        needed: About how many seeds are needed to detect a true difference of this size with a
            probability of `POWER`, or None if that is unknown, or more than `MOST`.
    """

    n: int
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    paired: bool = True
    needed: int | None = None

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def difference(
    ours: Mapping[Key, float],
    theirs: Mapping[Key, float],
    *,
    overlap: float = 0.0,
    comparisons: int = 1,
    bounds: Bounds = UNBOUNDED,
) -> Difference:
    """Returns the difference of two means, paired by shared keys or else with Welch's interval.

    Pairing removes the effects that a seed has on both sides, such as an easy split of the data.

    Args:
        ours: Values by the shared key, such as the seed.
        theirs: The values of the other side.
        overlap: See `spread`.
        comparisons: The number of differences in the report. Each interval is widened (Bonferroni)
            so that all of them hold together with a probability of `CONFIDENCE`. Otherwise one of
            twenty equal configurations would seem worse.
        bounds: See `spread`, for the values. No difference exceeds their distance.
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
    """Returns Welch's interval for sides of unequal variance, with Satterthwaite's degrees."""
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
    """Returns how many values a t test needs to detect a difference with a probability of `POWER`.

    The power is that of the noncentral t distribution (Cohen, Statistical Power Analysis, 1988).

    Args:
        gap: The true difference.
        std: The standard deviation of the differences, or of the values for two groups.
        confidence: One minus the test's level.
        groups: 1 for pairs. 2 for independent groups, where the result is the size of each group.

    Returns:
        At least 2, or None if it is more than `MOST`, or if the deviation or difference is zero.
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


def detectable(n: int, *, confidence: float = CONFIDENCE) -> float:
    """Returns the mean that a t test of n values detects with a probability of `POWER`.

    Args:
        n: The number of values, at least 2.
        confidence: One minus the test's level.

    Returns:
        The mean, in standard deviations of the values.
    """
    low, high = 0.0, 1.0
    while _power(high, n, confidence, 1) < POWER:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        if _power(middle, n, confidence, 1) < POWER:
            low = middle
        else:
            high = middle
    return high


def _power(effect: float, n: int, confidence: float, groups: int) -> float:
    """Returns the power of n values (per group) for an effect in standard deviations."""
    degrees, shift = groups * (n - 1), abs(effect) * math.sqrt(n / groups)
    edge = _quantile(degrees, confidence)
    if shift > edge + 10:  # the noncentral distribution's series may not converge here
        return 1.0
    return float(1 - special.nctdtr(degrees, shift, edge))  # the far side is negligible


def _quantile(degrees: float, confidence: float) -> float:
    """Returns the half-width of Student's t interval in standard errors."""
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


def share(count: int, n: int) -> tuple[float, float]:
    """Returns the interval of a proportion, such as the share of diverged trials (Wilson, 1927).

    It stays within 0 and 1, and keeps its coverage for few trials and for proportions of 0 and 1,
    where the normal interval has no width.
    """
    z = float(special.ndtri((1 + CONFIDENCE) / 2))
    rate, extra = count / n, z**2 / n
    middle = (rate + extra / 2) / (1 + extra)
    half = z / (1 + extra) * math.sqrt(rate * (1 - rate) / n + extra / n / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)
