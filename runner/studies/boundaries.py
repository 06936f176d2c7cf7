"""The boundaries of a sequential t test that needs the fewest values.

    found = boundaries.fewest(60, effect=0.53, level=0.05)
    found.decide[5]     # after 5 values, a t statistic of this size decides
    found.expected      # how many values are needed on average, for a mean of `effect`

A test looks at its t statistic after each value. It may decide that the mean is not zero, end
without a decision, or wait for the next value. Of all tests of this kind with the same level and
power, the one computed here needs the fewest values on average if the mean is `effect` standard
deviations. A test whose decision does not depend on the unit of the values can only depend on their
t statistics (Hall, Wijsman and Ghosh, The Relationship Between Sufficiency and Invariance, 1965).

The test minimizes a sum of three costs: of each value, of a wrong decision, and of a missed
difference. For given costs, the best action is found from the last value back to the first (Wald
and Wolfowitz, Bayes Solutions of Sequential Decision Problems, 1950; Barber and Jennison, Optimal
Asymmetric One-Sided Group Sequential Tests, 2002). The costs are those that give the level and the
power. Because a minimum over all tests is also one over those with the same errors, no other test
with the same maximum needs fewer values.

No TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from runner.studies import statistics

FIRST = 3
"""The smallest number of values that a decision is based on."""
_POINTS = 240  # of the t statistic after each number of values
_NODES = 96  # of the integral over the next value
_WIDTH = 8.0  # of both, in standard deviations
_TOLERANCE = 1e-3  # of the logarithms of costs
_COARSE = 3  # points: a smaller region at the end of the range is left out


@dataclasses.dataclass(frozen=True, slots=True)
class Boundaries:
    """When a test ends.

    Attributes:
        decide: For each number of values from 0 to the maximum, the t statistic from whose size on
            the mean is not zero. Infinite if none suffices.
        end: The t statistic up to whose size the test ends without a decision. Negative if none.
        level: The probability of a decision if the mean is zero.
        power: The probability of a decision if the mean is the effect.
        null: The expected number of values if the mean is zero.
        expected: The expected number of values if the mean is the effect.
    """

    decide: np.ndarray
    end: np.ndarray
    level: float
    power: float
    null: float
    expected: float


@functools.lru_cache(maxsize=256)
def fewest(limit: int, effect: float, level: float, *, ends: bool = True) -> Boundaries:
    """Returns the boundaries that need the fewest values for a power of `statistics.POWER`.

    Args:
        limit: The maximum number of values, more than `FIRST`.
        effect: The mean that is to be detected, in standard deviations of the values.
        level: The probability of a decision if the values are normal with a mean of zero.
        ends: Whether the test ends without a decision before the maximum. If not, the level is
            that of a test which continues there.
    """
    problem = _Problem(limit, effect, ends)

    @functools.cache
    def valid(miss: float) -> Boundaries:
        def excess(wrong: float) -> float:
            return problem.solve(math.exp(wrong), math.exp(miss)).level - level

        wrong = _root(excess, math.log(0.01 / level), math.log(3 * limit / level))
        return problem.solve(math.exp(wrong), math.exp(miss))

    def lacking(miss: float) -> float:
        return statistics.POWER - valid(miss).power

    return valid(_root(lacking, math.log(0.05 * limit), math.log(5 * limit)))


def _root(decreasing: Callable[[float], float], low: float, high: float) -> float:
    """Returns where a function is zero, or else the end of the range where it is closest to it."""
    if decreasing(low) <= 0:
        return low
    if decreasing(high) >= 0:
        return high
    return float(optimize.brentq(decreasing, low, high, xtol=_TOLERANCE))


class _Problem:
    """The tests of up to `limit` values, with the costs of their errors still to be chosen.

    The state after n values is the size of their t statistic, written as an angle whose tangent is
    `t / sqrt(n - 1)`. All expectations are computed for a mean of zero. The likelihood ratio turns
    them into those for a mean of `effect`.
    """

    def __init__(self, limit: int, effect: float, ends: bool) -> None:
        self._ends = ends
        self._angles = [
            np.linspace(0.0, min(math.pi / 2, _WIDTH / math.sqrt(n)), _POINTS)
            for n in range(1, limit + 1)
        ]
        self._ratios = [_ratio(n, effect, each) for n, each in enumerate(self._angles, 1)]
        self._steps = [_step(n, *self._angles[n - 1 : n + 1]) for n in range(1, limit)]

    def solve(self, wrong: float, miss: float) -> Boundaries:
        """Returns the boundaries with the lowest expected cost.

        Args:
            wrong: The cost of a decision if the mean is zero. A value costs 1 if the mean is the
                effect.
            miss: The cost of no decision if the mean is the effect.
        """
        limit, points = len(self._angles), np.arange(_POINTS)
        one, zero = np.ones(_POINTS), np.zeros(_POINTS)
        decide, end = np.full(limit + 1, np.inf), np.full(limit + 1, -1.0)
        # `outcome` has four rows: the probabilities of a decision, for a mean of zero, and of none,
        # for the effect, and the expected numbers of further values, for both.
        for n in range(limit, 0, -1):
            ratio = self._ratios[n - 1]
            missed = miss * ratio, np.stack([zero, ratio, zero, zero])
            if n == limit:
                cost, outcome = missed
            else:  # the test waits
                step = self._steps[n - 1]
                cost = ratio + step @ cost
                outcome = outcome @ step.T + np.stack([zero, zero, one, ratio])
            if n < FIRST:
                continue
            edge = _rise(missed[0] - cost)
            if edge > 0:
                end[n] = self._statistic(n, edge)
                share = np.clip(edge - points + 0.5, 0, 1)
                outcome[not self._ends :] += (share * (missed[1] - outcome))[not self._ends :]
                cost = np.minimum(cost, missed[0])
            edge = _POINTS - 1 - _rise((wrong - cost)[::-1])
            if edge < _POINTS - _COARSE:
                decide[n] = self._statistic(n, edge)
                share = np.clip(points - edge + 0.5, 0, 1)
                outcome += share * (np.stack([one, zero, zero, zero]) - outcome)
                cost = np.minimum(cost, wrong)
        level, none, null, expected = map(float, outcome[:, -1])  # the only state after one value
        for each in (decide, end):
            each.setflags(write=False)  # callers share them
        return Boundaries(decide, end, level, 1 - none, 1 + null, 1 + expected)

    def _statistic(self, n: int, point: float) -> float:
        """Returns the t statistic of n values at a point between those of the grid."""
        return math.tan(point * self._angles[n - 1][1]) * math.sqrt(n - 1)


def _rise(values: np.ndarray) -> float:
    """Returns the point at which the values first rise above zero, between two of them, or -1."""
    above = int(np.argmax(values > 0))
    if above == 0:
        return -1.0 if values[0] > 0 else float(len(values) - 1)
    return above - values[above] / (values[above] - values[above - 1])


def _ratio(n: int, effect: float, angle: np.ndarray) -> np.ndarray:
    """Returns the likelihood ratio of t statistics: a mean of `effect`, of either sign, or zero."""
    shift = n * effect**2 / 2
    return special.hyp1f1(n / 2, 0.5, shift * np.sin(angle) ** 2) * math.exp(-shift)


_quadrature = functools.cache(functools.partial(np.polynomial.legendre.leggauss, _NODES))


def _step(n: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the states after one more value, for a mean of zero.

    The ratio of the next value to the root of the sum of squares is `t / sqrt(n)`, where t has n
    degrees of freedom. Written as the tangent of an angle a, it has the density `cos(a)**(n - 1)`.

    Returns:
        One row per state before. Its product with a function of the state is an expectation.
    """
    nodes, weights = _quadrature()
    nodes = nodes * min(math.pi / 2, _WIDTH / math.sqrt(n))
    weights = weights * np.cos(nodes) ** (n - 1)
    size = np.abs(math.sqrt(n) * np.outer(np.sin(before), np.cos(nodes)) + np.sin(nodes))
    state = np.arcsin(np.minimum(size / math.sqrt(n + 1), 1.0)) / after[1]
    low = np.minimum(state, _POINTS - 1 - 1e-9).astype(int)
    share = np.clip(state - low, 0.0, 1.0)
    cell = (low + _POINTS * np.arange(_POINTS)[:, None]).ravel()
    below, above = (
        np.bincount(cell + n, (each * weights).ravel(), _POINTS**2)
        for n, each in enumerate((1 - share, share))
    )
    return (below + above).reshape(_POINTS, _POINTS) / weights.sum()
