import math

from evaluations import folded, row, rows
from wording import says

from runner import run_config
from runner.history.early_stopping import StoppingRule
from runner.history.improvement import Trend

NAN = math.nan


def stopping(**fields):
    return StoppingRule.of(run_config.EarlyStoppingConfig(**{"higher": ("accuracy",), **fields}))


def reason(rule, evaluations):
    return rule.reason(folded(rule, evaluations))


def stops(*values, **fields):
    """The step at which a run with these evaluations stops, None where it does not."""
    evaluations, rule = rows(*values), stopping(**fields)
    for number, each in enumerate(evaluations, 1):
        if reason(rule, evaluations[:number]):
            return each.step
    return None


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
    assert reason(rule, given) is None
    assert reason(rule, [*given, row(50, accuracy=0.5, loss=1.0)])


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
    said = reason(rule, rows(0.5, 0.4))
    assert said
    assert reason(rule, rows(0.5, 0.4, 0.9, 0.95)) == said


def test_the_reason_says_what_did_not_get_better_and_since_when():
    rule = stopping(lower=("loss",), patience=2, source="gpu")
    given = [row(1000, accuracy=0.912345, loss=1.0), *rows(0.1, 0.2)]
    says(reason(rule, given), "accuracy gpu 2 1,000 0.9123 1")
    assert reason(stopping(patience=1), rows(NAN)).endswith("1 evaluation, at all")


def test_a_rule_without_metrics_decides_nothing():
    assert stops(0.5, 0.4, 0.3, patience=1, higher=()) is None


def test_a_step_leaves_the_state_before_it_as_it_was():
    rule = stopping()
    before = rule.step(Trend(), row(10, accuracy=0.5))
    rule.step(before, row(20, accuracy=0.9))
    assert before == Trend({"accuracy": 0.5}, 10)
