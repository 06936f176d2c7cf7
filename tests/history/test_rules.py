"""What follows from evaluations: when a run stops, when its rate drops, which one is best."""

import dataclasses
import functools
import math

import pytest

from runner import run_config
from runner.history import rules
from runner.history.records import Evaluation, Rollback

NAN = math.nan


def row(step, **metrics):
    return Evaluation(step, metrics, seconds=0.0, time=0.0, checkpoint=f"ckpt-{step}")


def rows(*values, name="accuracy"):
    """Evaluations at steps 10, 20, ...; None is one of another set."""
    return [
        row(10 * number, **({"other": 1.0} if value is None else {name: value}))
        for number, value in enumerate(values, 1)
    ]


def stopping(**fields):
    return rules.stopping(run_config.EarlyStoppingConfig(**{"higher": ("accuracy",), **fields}))


def plateau(**fields):
    return rules.plateau(run_config.PlateauConfig(**{"higher": ("accuracy",), **fields}))


def stops(*values, **fields):
    """The step at which a run with these evaluations stops, None where it does not."""
    given = rows(*values)
    rule = stopping(**fields)
    reasons = [rules.stop_reason(given[: n + 1], rule) for n in range(len(given))]
    return next((each.step for each, why in zip(given, reasons, strict=True) if why), None)


def scales(*values, name="accuracy", **fields):
    """The scale after each evaluation."""
    given, rule = rows(*values, name=name), plateau(**fields)
    return [rules.plateau_scale(given[: n + 1], rule) for n in range(len(given))]


# Stopping.


def test_a_run_stops_after_as_many_evaluations_that_are_no_better_as_its_patience():
    assert stops(0.5, 0.6, 0.6, 0.5, patience=2) == 40
    assert stops(0.5, 0.6, 0.6, 0.5, patience=3) is None
    assert stops(0.5, 0.5, patience=1) == 20


def test_a_better_evaluation_renews_the_patience():
    assert stops(0.5, 0.4, 0.6, 0.5, 0.7, 0.1, patience=2) is None


def test_better_is_better_than_ever_not_than_the_last():
    assert stops(0.9, 0.1, 0.2, 0.3, patience=3) == 40


def test_lower_may_be_better():
    assert stops(0.5, 0.4, 0.3, patience=1, higher=(), lower=("accuracy",)) is None
    assert stops(0.5, 0.6, patience=1, higher=(), lower=("accuracy",)) == 20


def test_a_gain_counts_if_it_is_above_the_minimum():
    assert stops(0.5, 0.625, 0.75, patience=1, min_delta=0.125) == 20
    assert stops(0.5, 0.75, 1.0, patience=1, min_delta=0.125) is None


def test_small_gains_add_up_until_they_count():
    assert stops(0.5, 0.55, 0.6, 0.65, patience=3, min_delta=0.125) is None
    assert stops(0.5, 0.55, 0.6, 0.62, patience=3, min_delta=0.125) == 40


def test_a_run_is_better_if_any_of_its_metrics_is():
    rule = stopping(higher=("accuracy",), lower=("loss",), patience=2)
    given = [
        row(10, accuracy=0.5, loss=1.0),
        row(20, accuracy=0.4, loss=0.9),
        row(30, accuracy=0.6, loss=1.5),
        row(40, accuracy=0.6, loss=0.9),
    ]
    assert rules.stop_reason(given, rule) is None
    assert rules.stop_reason([*given, row(50, accuracy=0.5, loss=1.0)], rule)


def test_evaluations_before_the_first_step_that_counts_are_left_out():
    assert stops(0.9, 0.5, 0.4, 0.3, patience=2, from_step=20) == 40
    assert stops(0.5, 0.4, 0.3, patience=1, from_step=21) is None


def test_nan_is_never_better():
    assert stops(0.5, NAN, NAN, patience=2) == 30
    assert stops(NAN, NAN, patience=2) == 20
    assert stops(NAN, 0.5, NAN, 0.6, patience=2) is None


def test_evaluations_without_the_metrics_do_not_count():
    assert stops(0.5, None, None, None, patience=1) is None
    assert stops(0.5, None, 0.4, patience=1) == 30


def test_what_came_after_a_stop_does_not_take_it_back():
    rule = stopping(patience=1)
    reason = rules.stop_reason(rows(0.5, 0.4), rule)
    assert reason
    assert rules.stop_reason(rows(0.5, 0.4, 0.9, 0.95), rule) == reason


def test_the_reason_says_what_did_not_get_better_and_since_when():
    rule = stopping(lower=("loss",), patience=2, source="gpu")
    given = [row(1000, accuracy=0.912345, loss=1.0), *rows(0.1, 0.2)]
    assert rules.stop_reason(given, rule) == (
        "early stopping: accuracy or loss of eval-gpu no better in 2 evaluations, "
        "since step 1,000 (accuracy 0.9123, loss 1)"
    )
    assert rules.stop_reason(rows(NAN), stopping(patience=1)).endswith("1 evaluation, at all")


def test_a_rule_without_metrics_decides_nothing():
    assert stops(0.5, 0.4, 0.3, patience=1, higher=()) is None
    assert scales(0.5, 0.4, 0.3, higher=()) == [1, 1, 1]


# Plateaus.


def test_the_rate_drops_when_its_tolerance_is_used_up_and_again_and_again():
    given = (0.5, 0.5, 0.4, 0.3, 0.2, 0.1)
    assert scales(*given, tolerance=1) == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert scales(*given, tolerance=2, factor=0.1) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_a_better_evaluation_renews_the_tolerance_and_keeps_the_drops():
    assert scales(0.5, 0.4, 0.4, 0.6, 0.5, 0.7, tolerance=2) == [1, 1, 0.5, 0.5, 0.5, 0.5]


def test_evaluations_of_the_cooldown_do_not_count():
    given = (0.5, 0.4, 0.4, 0.4, 0.4, 0.4)
    assert scales(*given, tolerance=1, cooldown=2) == [1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_better_evaluations_are_remembered_in_the_cooldown_and_use_it_up():
    given = (0.5, 0.4, 0.9, 0.4, 0.8)
    assert scales(*given, tolerance=1, cooldown=2) == [1, 0.5, 0.5, 0.5, 0.25]


def test_the_rate_drops_on_nan_and_not_on_what_has_no_metric():
    assert scales(0.5, NAN, None, None) == [1, 0.5, 0.5, 0.5]


def test_the_rate_may_follow_a_metric_of_which_lower_is_better():
    watched = {"higher": (), "lower": ("loss",), "min_delta": 0.5}
    assert scales(3.0, 2.0, 1.75, 1.0, name="loss", **watched) == [1, 1, 0.5, 0.5]


# Folds.


@pytest.mark.parametrize("rule", [stopping(patience=2), plateau(tolerance=2, cooldown=1)])
def test_folding_row_by_row_is_folding_at_once(rule):
    given = rows(0.5, 0.4, NAN, None, 0.6, 0.6, 0.7, 0.1, 0.2, 0.3, 0.4)
    state = rules.Trend()
    for number, each in enumerate(given, 1):
        state = rule.step(state, each)
        assert state == functools.reduce(rule.step, given[:number], rules.Trend())
        if isinstance(rule, rules.StoppingRule):
            assert rule.reason(state) == rules.stop_reason(given[:number], rule)
        else:
            assert rule.scale(state) == rules.plateau_scale(given[:number], rule)


def test_a_step_leaves_the_state_before_it_as_it_was():
    rule = stopping()
    before = rule.step(rules.Trend(), row(10, accuracy=0.5))
    rule.step(before, row(20, accuracy=0.9))
    assert before == rules.Trend({"accuracy": 0.5}, 10)


# The best, and rollbacks.


def test_the_best_row_is_the_first_of_equals_and_never_nan():
    given = rows(NAN, 0.5, 0.9, None, 0.9, NAN)
    assert rules.best(given, rules.BestRule("accuracy")).step == 30
    assert rules.best(given, rules.BestRule("accuracy", higher=False)).step == 20
    assert rules.best(rows(NAN, None), rules.BestRule("accuracy")) is None


def best_few(given, rule, among=lambda _: True):
    return [each.step for each in rules.Ranking(rule, given).first(3, among=among)]


@pytest.mark.parametrize(("higher", "steps"), [(True, [30, 50, 20]), (False, [10, 20, 30])])
def test_the_best_few_are_in_their_order_of_equals_the_earliest_first(higher, steps):
    given = rows(0.1, 0.5, 0.9, NAN, 0.9, None)
    assert best_few(given, rules.BestRule("accuracy", higher=higher)) == steps


def test_a_step_that_was_evaluated_twice_is_one_of_the_best_few_once():
    given = [row(10, accuracy=0.9), row(20, accuracy=0.8), row(10, accuracy=0.7)]
    assert best_few(given, rules.BestRule("accuracy")) == [10, 20]


@pytest.mark.parametrize(
    "rule",
    [
        rules.BestRule("accuracy"),
        rules.BestRule("accuracy", higher=False),
        rules.BestRule("accuracy", or_higher=("f1",)),
    ],
)
def test_ranking_row_by_row_is_ranking_at_once(rule):
    given = rows(0.5, NAN, 0.7, 0.5, None, 0.9, 0.7, 0.1, 0.9)
    ranking = rules.Ranking(rule)
    for number in range(1, len(given) + 1):
        ranking.take(given[:number])
        ranking.take(given[:number])
        at_once = rules.Ranking(rule, given[:number])
        assert ranking.best == at_once.best == rules.best(given[:number], rule)
        few = [every.first(3, among=lambda _: True) for every in (ranking, at_once)]
        assert few[0] == few[1]


def test_what_is_gone_is_looked_for_once():
    looked = []

    def there(each):
        looked.append(each.step)
        return each.step == 10

    ranking = rules.Ranking(rules.BestRule("accuracy"), rows(0.1, 0.2, 0.3, 0.4))
    for _ in range(2):
        assert [each.step for each in ranking.first(1, among=there)] == [10]
    assert looked == [40, 30, 20, 10, 10]


EITHER = rules.BestRule("accuracy", or_higher=("f1",))


def scored(*pairs):
    """Evaluations at steps 10, 20, ... of accuracy and F1."""
    return [row(10 * n, accuracy=each, f1=f1) for n, (each, f1) in enumerate(pairs, 1)]


def bests(given, rule):
    """The best step after each evaluation."""
    found = [rules.best(given[: n + 1], rule) for n in range(len(given))]
    return [each and each.step for each in found]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(0.5, 0.5), (0.6, 0.4), (0.4, 0.6)], [10, 20, 30]),  # either will do
        ([(0.5, 0.5), (0.6, 0.4), (0.55, 0.45)], [10, 20, 20]),  # better than the best, not ever
        ([(0.5, 0.5), (0.5, 0.5)], [10, 10]),
        ([(0.5, NAN), (NAN, 0.1), (NAN, 0.05), (NAN, NAN)], [10, 20, 20, 20]),
        ([(NAN, NAN), (0.1, NAN)], [None, 20]),
    ],
)
def test_by_several_metrics_the_best_is_the_last_that_beat_all_before_it_in_any(pairs, expected):
    assert bests(scored(*pairs), EITHER) == expected


def test_of_a_further_metric_lower_may_be_better():
    rule = rules.BestRule("accuracy", higher=False, or_lower=("f1",))
    assert bests(scored((0.5, 0.5), (0.6, 0.4), (0.7, 0.45), (0.4, 0.9)), rule) == [10, 20, 20, 40]


def test_a_row_of_another_set_may_be_the_best_by_the_metric_that_it_has():
    given = [row(10, accuracy=0.5), row(20, f1=0.5), row(30, loss=0.1), row(40, f1=0.4)]
    assert bests(given, EITHER) == [10, 20, 20, 20]


@pytest.mark.parametrize("rule", [rules.BestRule("accuracy"), EITHER])
def test_evaluations_before_the_first_step_that_counts_are_not_best_and_set_no_mark(rule):
    rule = dataclasses.replace(rule, from_step=20)
    given = scored((0.9, 0.9), (0.5, 0.5), (0.4, 0.4), (0.6, 0.6))
    assert bests(given, rule) == [None, 20, 20, 40]
    assert best_few(given[:1], rule) == []
    assert best_few(given, rule)[:2] == [40, 20]


def test_by_several_metrics_the_best_few_are_the_newest_that_were_better():
    given = scored((0.5, 0.5), (0.6, 0.4), (0.55, 0.45), (0.1, 0.6), (0.7, 0.1))
    assert best_few(given, EITHER) == [50, 40, 20]


def test_what_beat_nothing_is_not_best_because_what_it_did_not_beat_is_gone():
    given = scored((0.5, 0.5), (0.6, 0.4), (0.55, 0.45))
    assert best_few(given, EITHER, among=lambda each: each.step > 10) == [20]
    assert best_few(given, EITHER, among=lambda each: each.step > 20) == []


def test_rollbacks_leave_batches_out_and_lower_the_rate():
    given = [
        Rollback(10, found=14, skipped=(13, 14), rate=0.5, reason="", time=0.0),
        Rollback(20, found=25, skipped=(25, 26), rate=0.1, reason="", time=0.0),
    ]
    assert rules.skipped(given) == [(13, 14), (25, 26)]
    assert rules.rollback_scale(given) == pytest.approx(0.05)
    assert rules.rollback_scale([]) == 1
