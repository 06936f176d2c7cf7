import dataclasses
import math
import random

import pytest
from evaluations import row, rows

from runner.history.best_evaluation import BestRule, Ranking

NAN = math.nan


def test_the_best_row_is_the_first_of_equals_and_never_nan():
    given = rows(NAN, 0.5, 0.9, None, 0.9, NAN)
    assert BestRule("accuracy").best(given).step == 30
    assert BestRule("accuracy", higher=False).best(given).step == 20
    assert BestRule("accuracy").best(rows(NAN, None)) is None


def ranked(given, rule):
    return [each.step for each in rule.ranked(given)]


@pytest.mark.parametrize(("higher", "steps"), [(True, [30, 50, 20, 10]), (False, [10, 20, 30, 50])])
def test_the_best_few_are_in_their_order_of_equals_the_earliest_first(higher, steps):
    given = rows(0.1, 0.5, 0.9, NAN, 0.9, None)
    assert ranked(given, BestRule("accuracy", higher=higher)) == steps


EITHER = BestRule("accuracy", or_higher=("f1",))


def scored(*pairs):
    """Evaluations at steps 10, 20, ... of accuracy and F1."""
    return [row(10 * n, accuracy=each, f1=f1) for n, (each, f1) in enumerate(pairs, 1)]


def bests(given, rule):
    """The best step after each evaluation."""
    found = [rule.best(given[: n + 1]) for n in range(len(given))]
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
    rule = BestRule("accuracy", higher=False, or_lower=("f1",))
    assert bests(scored((0.5, 0.5), (0.6, 0.4), (0.7, 0.45), (0.4, 0.9)), rule) == [10, 20, 20, 40]


def test_a_row_of_another_set_may_be_the_best_by_the_metric_that_it_has():
    given = [row(10, accuracy=0.5), row(20, f1=0.5), row(30, loss=0.1), row(40, f1=0.4)]
    assert bests(given, EITHER) == [10, 20, 20, 20]


@pytest.mark.parametrize("rule", [BestRule("accuracy"), EITHER])
def test_evaluations_before_the_first_step_that_counts_are_not_best_and_set_no_mark(rule):
    rule = dataclasses.replace(rule, from_step=20)
    given = scored((0.9, 0.9), (0.5, 0.5), (0.4, 0.4), (0.6, 0.6))
    assert bests(given, rule) == [None, 20, 20, 40]
    assert ranked(given[:1], rule) == []
    assert ranked(given, rule)[:2] == [40, 20]


def test_by_several_metrics_the_best_few_are_the_newest_that_were_better():
    given = scored((0.5, 0.5), (0.6, 0.4), (0.55, 0.45), (0.1, 0.6), (0.7, 0.1))
    assert ranked(given, EITHER) == [50, 40, 20, 10]


@pytest.mark.parametrize("rule", [BestRule("accuracy"), BestRule("accuracy", higher=False), EITHER])
def test_a_ranking_follows_rows_that_are_added_removed_and_replaced(rule):
    draw = random.Random(0)
    choices = (0.1, 0.2, 0.3, NAN)
    given, ranking = [], Ranking(rule)
    for _ in range(200):
        change = draw.random()
        if change < 0.1:
            given = given[: draw.randrange(len(given) + 1)]  # as after a rollback
        elif change < 0.2 and given:
            given = [*given[:-1], *scored((draw.choice(choices), 0.2))]
        else:
            given = [*given, *scored((draw.choice(choices), draw.choice(choices)))]
        ranking.update(given)
        assert list(ranking) == rule.ranked(given)
