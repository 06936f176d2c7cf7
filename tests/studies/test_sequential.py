import math

import numpy as np
import pytest

from runner.studies import race, sequential, series, statistics
from runner.studies.sequential import Verdict

DECIDED = (Verdict.BETTER, Verdict.WORSE)
CHANCE = 2.5 * math.sqrt(0.05 * 0.95 / 1000)  # by which a share of 1,000 studies may exceed 5 %


def judged(size, limit, studies=1000, **options):
    """The judgements of simulated studies with a true difference, in standard deviations."""
    test = sequential.Test(limit, **options)
    draws = np.random.default_rng(0).normal(size, 1.0, (studies, limit))
    return [test.judge(each) for each in draws.tolist()]


@pytest.mark.parametrize("limit", [10, 30, 60])
def test_few_decisions_are_wrong_without_a_difference(limit):
    found = judged(0.0, limit)
    assert np.mean([each.verdict in DECIDED for each in found]) <= 0.05 + CHANCE
    assert all(each.verdict for each in found)


def test_a_detectable_difference_is_found_with_fewer_seeds_than_a_fixed_plan():
    limit = 60
    size = sequential.Test(limit).effect
    found = judged(size, limit)
    assert np.mean([each.verdict == Verdict.BETTER for each in found]) > 0.75
    assert not any(each.verdict == Verdict.WORSE for each in found)
    both = [*found, *judged(0.0, limit)]
    assert np.mean([each.n for each in found]) < 0.72 * limit / 2
    assert np.mean([each.n for each in both]) < 0.65 * limit / 2


def test_what_half_of_the_limit_detects_is_what_the_test_is_tuned_for():
    effect = sequential.Test(60).effect
    assert statistics.needed(effect, 1.0) == 30


def test_the_intervals_hold_at_whatever_number_of_seeds_the_study_stops():
    found = judged(0.3, 40)
    assert np.mean([each.low <= 0.3 <= each.high for each in found]) >= 0.95
    for each in found:
        assert (each.low > 0 or each.high < 0) == (each.verdict in DECIDED)


def test_a_decision_does_not_change_with_the_unit_and_turns_with_the_sign():
    values = [0.35, 0.45, 0.3, 0.4, 0.5, 0.3]
    test = sequential.Test(20)
    ours = test.judge(values)
    assert ours.verdict == Verdict.BETTER
    scaled = test.judge([1000 * each for each in values])
    assert (scaled.verdict, scaled.n) == (ours.verdict, ours.n)
    turned = test.judge([-each for each in values])
    assert (turned.verdict, turned.n, turned.low) == (Verdict.WORSE, ours.n, -ours.high)


def test_small_differences_are_equivalent_within_a_margin_only():
    values = np.random.default_rng(1).normal(0, 0.001, 30).tolist()
    assert sequential.Test(30, margin=0.01).judge(values).verdict == Verdict.EQUIVALENT
    assert sequential.Test(30).judge(values).verdict == Verdict.UNDECIDED


def test_equal_scores_are_equivalent():
    found = sequential.Test(30).judge([0.0] * 30)
    assert (found.verdict, found.n) == (Verdict.EQUIVALENT, 3)


def test_a_constant_difference_is_decided():
    assert sequential.Test(30).judge([0.1] * 30).verdict == Verdict.BETTER


def test_a_margin_that_equal_configurations_exceed_is_rarely_called_equivalent():
    found = judged(0.5, 30, margin=0.5)
    assert np.mean([each.verdict == Verdict.EQUIVALENT for each in found]) <= 0.05


def test_at_the_limit_it_stays_undecided():
    values = [1.0, -0.2] * 3
    found = sequential.Test(6, margin=1e-6).judge(values)
    assert (found.verdict, found.n) == (Verdict.UNDECIDED, 6)


def test_the_budgets_of_a_series_sum_to_its_level():
    total = math.fsum(series.share(number, 0.05) for number in range(1, 10_000))
    assert 0.0499 < total <= 0.05


def test_a_series_without_differences_rarely_promotes_anything():
    draws = np.random.default_rng(2)
    tests = [sequential.Test(20, series.share(number, 0.05)) for number in range(1, 21)]
    promoted = [
        any(test.judge(draws.normal(size=20).tolist()).verdict == Verdict.BETTER for test in tests)
        for _ in range(300)
    ]
    assert np.mean(promoted) <= 0.05


def test_a_race_keeps_what_may_be_best():
    draws = np.random.default_rng(3).normal(size=(3, 30))
    scores = (draws + np.array([[0.0], [4.0], [4.0]])).tolist()
    found = race.Race(30).standing(scores)
    assert found.is_over
    assert list(found.remaining) == [1, 2]
    assert found.judged[0, 1].n < 10


def test_a_race_asks_only_for_the_seeds_that_it_needs_next():
    rules = race.Race(30)
    assert rules.standing([[], []]).seeds == 3
    assert rules.standing([[0.1, 0.2, 0.3], [0.1]]).seeds == 3
    found = rules.standing([[0.1, 0.2, 0.3], [0.15, 0.1, 0.5]])
    assert (found.seeds, found.is_over) == (4, False)


def test_a_race_does_not_depend_on_seeds_after_the_decision():
    draws = np.random.default_rng(4).normal(size=(3, 30))
    scores = (draws + np.array([[0.0], [3.0], [0.5]])).tolist()
    whole = race.Race(30).standing(scores)
    assert max(each.n for each in whole.judged.values()) < 30
    used = max(each.n for each in whole.judged.values())
    assert race.Race(30).standing([each[:used] for each in scores]) == whole


def test_a_configuration_without_a_result_leaves_the_race():
    found = race.Race(10).standing([[0.1, -math.inf], [0.2, 0.3, 0.4], [0.2, 0.2, 0.5]])
    assert list(found.remaining) == [1, 2]
    assert not any(0 in pair for pair in found.judged)
