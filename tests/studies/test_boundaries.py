import dataclasses
import math

import numpy as np
import pytest

from runner.studies import boundaries, statistics

STUDIES = 40_000


def simulated(found, effect):
    """The share of studies with a decision, and the mean number of values."""
    limit = len(found.decide) - 1
    values = np.random.default_rng(0).normal(effect, 1.0, (STUDIES, limit))
    n = np.arange(1, limit + 1)
    mean = values.cumsum(axis=1) / n
    squares = (values**2).cumsum(axis=1) - n * mean**2
    t = np.abs(mean) / np.sqrt(np.maximum(squares, 1e-12) / (n * np.maximum(n - 1, 1)))
    decided, ended = t >= found.decide[1:], t <= found.end[1:]
    ended[:, -1] = True
    last = np.argmax(decided | ended, axis=1)
    return np.mean(decided[np.arange(STUDIES), last]), np.mean(last + 1)


def share(expected):
    return pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / STUDIES))


@pytest.mark.parametrize(
    ("limit", "level"), [(4, 0.05), (6, 0.005), (10, 0.05), (20, 0.2), (20, 0.001), (60, 0.05)]
)
def test_level_power_and_expected_numbers_are_those_of_simulated_studies(limit, level):
    effect = min(statistics.detectable(limit // 2, confidence=1 - level), 3.0)
    found = boundaries.fewest(limit, effect, level)
    wrong, null = simulated(found, 0.0)
    assert wrong == share(found.level)
    assert null == pytest.approx(found.null, rel=0.02)
    power, expected = simulated(found, effect)
    assert power == share(found.power)
    assert expected == pytest.approx(found.expected, rel=0.02)


@pytest.mark.parametrize(("limit", "level"), [(6, 0.05), (20, 0.2), (20, 0.001), (60, 0.05)])
def test_the_level_and_the_power_are_those_asked_for(limit, level):
    effect = min(statistics.detectable(limit // 2, confidence=1 - level), 3.0)
    found = boundaries.fewest(limit, effect, level)
    assert found.level == pytest.approx(level, rel=1e-3)
    assert found.power == pytest.approx(statistics.POWER, abs=1e-3)


def test_a_test_that_cannot_have_the_power_keeps_its_level():
    found = boundaries.fewest(4, 1.0, 0.05)
    assert found.power < 0.5
    assert found.level == pytest.approx(0.05, rel=1e-3)


def test_a_higher_maximum_never_needs_more_values():
    expected = [boundaries.fewest(limit, 1.0, 0.05).expected for limit in (14, 20, 60)]
    assert sorted(expected, reverse=True) == expected
    fixed = statistics.needed(1.0, 1.0)
    assert expected[-1] < 0.8 * fixed


def test_without_an_early_end_the_level_holds_for_tests_that_continue():
    found = boundaries.fewest(20, 1.0, 0.05, ends=False)
    wrong, _ = simulated(dataclasses.replace(found, end=np.full(21, -1.0)), 0.0)
    assert wrong == share(found.level)
    assert found.level == pytest.approx(0.05, rel=1e-3)
