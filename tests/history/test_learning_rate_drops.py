import math

import pytest
from evaluations import folded, rows

from runner import run_config
from runner.history.learning_rate_drops import PlateauRule, rollback_scale
from runner.history.records import Rollback

NAN = math.nan


def scales(*values, name="accuracy", **fields):
    """The scale after each evaluation."""
    rule = PlateauRule.of(run_config.PlateauConfig(**{"higher": ("accuracy",), **fields}))
    evaluations = rows(*values, name=name)
    return [rule.scale(folded(rule, evaluations[:number])) for number in range(1, len(values) + 1)]


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


def test_a_rule_without_metrics_drops_nothing():
    assert scales(0.5, 0.4, 0.3, higher=()) == [1, 1, 1]


def test_rollbacks_lower_the_rate():
    rollbacks = [
        Rollback(10, found=14, skipped=(13, 14), rate=0.5, reason="", time=0.0),
        Rollback(20, found=25, skipped=(25, 26), rate=0.1, reason="", time=0.0),
    ]
    assert rollback_scale(rollbacks) == pytest.approx(0.05)
    assert rollback_scale([]) == 1
