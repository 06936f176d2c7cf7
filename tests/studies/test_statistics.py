"""Intervals and sample sizes, beside published values, scipy's own, and simulations."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from runner.studies import across, metric_bounds, statistics


def normal(n, *, seed):
    return np.random.default_rng(seed).normal(0.9, 0.01, n).tolist()


def half(spread):
    return spread.high - spread.mean


def test_the_interval_of_a_mean_is_scipys():
    values = normal(7, seed=1)
    found = statistics.spread(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert (found.n, found.mean) == (7, pytest.approx(np.mean(values)))
    assert found.std == pytest.approx(np.std(values, ddof=1))
    assert (found.minimum, found.maximum) == (min(values), max(values))


def test_one_value_has_no_interval_and_none_has_nothing():
    one = statistics.spread([0.5])
    assert (one.n, one.mean, one.minimum) == (1, 0.5, 0.5)
    assert math.isnan(one.std)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert statistics.spread([]).n == 0


def test_equal_values_have_no_spread_at_all():
    same = statistics.spread([0.1, 0.1, 0.1])
    assert (same.mean, same.std, same.low, same.high) == (0.1, 0.0, 0.1, 0.1)


def test_the_interval_contains_the_true_mean_as_often_as_it_says():
    rows = np.random.default_rng(0).normal(0.9, 0.01, (4000, 5)).tolist()
    spreads = [statistics.spread(row) for row in rows]
    assert np.mean([each.low < 0.9 < each.high for each in spreads]) == pytest.approx(
        0.95, abs=0.01
    )


def test_an_interval_stays_within_the_bounds_and_is_right_as_often():
    found = statistics.spread([0.97, 0.99, 1.0], bounds=(0, 1))
    free = statistics.spread([0.97, 0.99, 1.0])
    assert free.high > 1
    assert (found.low, found.high) == (free.low, 1)
    gap = statistics.difference({0: 0.9, 1: 0.1}, {0: 0.2, 1: 0.8}, bounds=(0, 1))
    assert (gap.low, gap.high) == (-1, 1)
    apart = statistics.difference({0: 1.0, 1: 0.1}, {2: 0.0, 3: 0.9}, bounds=(0, 1))
    assert (apart.low, apart.high) == (-1, 1)


@pytest.mark.parametrize(
    ("name", "values", "bounds"),
    [
        ("accuracy", [0.5, 1.0], (0, 1)),
        ("test/top_5_accuracy", [], (0, 1)),
        ("macro_f1", [0.2], (0, 1)),
        ("f1", [0.9, 53.7], (0, 100)),
        ("exact_match", [41.6, math.nan], (0, 100)),
        ("expected_calibration_error", [0.01], (0, 1)),
        ("accuracy", [-0.1], (-math.inf, math.inf)),
        ("accuracy", [150.0], (-math.inf, math.inf)),
        ("loss", [0.5], (-math.inf, math.inf)),
        ("accuracy_drop", [0.5], (-math.inf, math.inf)),
    ],
)
def test_a_metric_is_known_to_be_bounded_by_its_name_and_its_values(name, values, bounds):
    assert metric_bounds.of(name, values) == bounds


def test_folds_are_not_taken_for_independent():
    """Ten folds: the variance is (1/10 + 1/9) instead of 1/10 times that of the values."""
    values = normal(10, seed=2)
    plain, folds = statistics.spread(values), statistics.spread(values, overlap=1 / 9)
    assert half(folds) / half(plain) == pytest.approx(math.sqrt((1 / 10 + 1 / 9) / (1 / 10)))
    assert folds.std == plain.std


def test_differences_are_paired_by_seed_whatever_their_order():
    ours, theirs = normal(6, seed=3), normal(6, seed=4)
    seeds = random.Random(0).sample(range(6), 6)
    found = statistics.difference(dict(enumerate(ours)), {seed: theirs[seed] for seed in seeds})
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert (found.n, found.paired) == (6, True)


def test_pairing_sees_what_the_seeds_noise_hides():
    noise = normal(5, seed=5)
    ours = {seed: value + 0.001 + 0.0001 * seed for seed, value in enumerate(noise)}
    theirs = dict(enumerate(noise))
    assert statistics.difference(ours, theirs).is_told_apart
    others = {seed + 100: value for seed, value in theirs.items()}
    assert not statistics.difference(ours, others).is_told_apart


def test_without_shared_seeds_it_is_welchs_interval():
    ours, theirs = normal(6, seed=6), normal(4, seed=7)
    found = statistics.difference(dict(enumerate(ours)), dict(enumerate(theirs, start=100)))
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert (found.n, found.paired) == (4, False)


def test_one_shared_seed_tells_nothing_about_the_spread():
    found = statistics.difference({0: 0.9}, {0: 0.8})
    assert (found.n, found.mean, found.needed) == (1, pytest.approx(0.1), None)
    assert not found.is_told_apart


def test_many_comparisons_of_equals_find_one_in_a_twentieth_of_the_studies():
    """Ten equal configurations beside another: without widening about 30 % would find one."""
    generator, wrong = np.random.default_rng(1), 0
    for _ in range(400):
        ours, *others = (dict(enumerate(row)) for row in generator.normal(size=(11, 5)))
        wrong += any(
            statistics.difference(ours, each, comparisons=10).is_told_apart for each in others
        )
    assert 0.01 < wrong / 400 < 0.08


@pytest.mark.parametrize(
    ("effect", "pairs", "each"), [(0.2, 199, 394), (0.5, 34, 64), (0.8, 15, 26)]
)
def test_the_number_needed_is_the_published_one(effect, pairs, each):
    """Cohen's small, medium and large effects at 5 % and a power of 80 %, as in G*Power."""
    assert statistics.needed(effect, 1.0) == pairs
    assert statistics.needed(-effect, 1.0, groups=2) == each


def test_the_number_needed_finds_the_difference_four_times_in_five():
    n = statistics.needed(0.01, 0.015)
    gaps = np.random.default_rng(2).normal(0.01, 0.015, (4000, n))
    assert np.mean(stats.ttest_1samp(gaps, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)


def test_no_number_is_enough_without_a_difference_or_known_without_a_spread():
    assert statistics.needed(0.0, 1.0) is None
    assert statistics.needed(1e-6, 1.0) is None
    assert statistics.needed(0.1, 0.0) is None
    assert statistics.needed(1e6, 1.0) == 2
    assert statistics.needed(7.25, 1.0) == 3  # at two, the far tail is not a number


@pytest.mark.parametrize(("count", "n"), [(0, 8), (3, 20), (5, 5)])
def test_the_interval_of_a_share_is_scipys(count, n):
    expected = stats.binomtest(count, n).proportion_ci(method="wilson")
    assert statistics.share(count, n) == pytest.approx(tuple(expected))


def runs(*, sets=4, n=6):
    generator = np.random.default_rng(8)
    return {str(each): generator.normal(0.5 + each / 10, 0.05, n) for each in range(sets)}


def test_the_interquartile_mean_is_that_of_all_runs_with_a_stratified_interval():
    scores = runs()
    found = across.interquartile_mean(scores)
    assert found.value == pytest.approx(stats.trim_mean(np.concatenate([*scores.values()]), 0.25))
    expected = stats.bootstrap(
        [*scores.values()],
        lambda *each, axis: stats.trim_mean(np.concatenate(each, axis=axis), 0.25, axis=axis),
        n_resamples=2000, method="percentile", rng=1,
    ).confidence_interval  # fmt: skip
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.003)
    assert across.interquartile_mean(scores) == found


def test_a_profile_is_the_share_of_runs_above_and_never_rises():
    scores = runs()
    thresholds = np.linspace(0, 1.5, 31)
    found = across.profile(scores, thresholds)
    joined = np.concatenate([*scores.values()])
    assert [each.value for each in found] == pytest.approx(
        [np.mean(joined > t) for t in thresholds]
    )
    assert found[0].value == 1
    assert found[-1].value == 0
    assert all(each.low <= each.value <= each.high for each in found)


def test_a_data_set_with_more_runs_counts_no_more_than_another():
    assert across.profile({"a": [1, 1, 1, 1], "b": [0, 0]}, [0.5])[0].value == 0.5


def test_a_data_set_with_one_run_leaves_no_interval():
    found = across.interquartile_mean({"a": [0.5, 0.6], "b": [0.7]})
    assert found.value == pytest.approx(0.6)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
