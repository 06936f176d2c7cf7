"""Evaluations of a made-up run."""

import functools

from runner.history.improvement import Trend
from runner.history.records import Evaluation


def row(step, **metrics):
    return Evaluation(step, metrics, seconds=0.0, time=0.0, checkpoint=f"ckpt-{step}")


def rows(*values, name="accuracy"):
    """Evaluations at steps 10, 20, ...; None is one of another set."""
    return [
        row(10 * number, **({"other": 1.0} if value is None else {name: value}))
        for number, value in enumerate(values, 1)
    ]


def folded(rule, evaluations):
    """What a rule knows after these evaluations."""
    return functools.reduce(rule.step, evaluations, Trend())
