"""What the losses of a learning-rate range test say."""

import math

import numpy as np
import pytest
from wording import says

from runner.reporting import rate_curve

RATES = np.geomspace(1e-5, 1.0, 51)


def curve(losses, *, smoothing=0.0, divergence=4.0):
    made = rate_curve.RateCurve(smoothing=smoothing, divergence=divergence)
    for rate, loss in zip(RATES, losses, strict=False):
        made.add(float(rate), float(loss))
        if made.ended:
            break
    return made


def test_the_suggestion_is_where_the_loss_falls_fastest():
    falls = 2 - np.tanh((np.log10(RATES) + 2) * 3)
    assert curve(falls).suggestion == pytest.approx(0.01)


def test_the_average_is_that_of_the_losses_so_far():
    made = curve([1.0, 2.0, 4.0], smoothing=0.5)
    assert made.smoothed == pytest.approx([1.0, 5 / 3, 3.0])


@pytest.mark.parametrize("losses", [np.linspace(1, 2, 51), [3.0, 2.0, 1.0]])
def test_a_loss_that_never_falls_or_ends_at_once_suggests_nothing(losses):
    assert curve(losses).suggestion is None


def test_the_sweep_ends_where_the_loss_explodes():
    made = curve([2.0, 1.0, 3.9, 4.1, 2.0])
    assert len(made.losses) == 4
    says(made.ended, "rose 4 2e-05")
    says(curve([1.0, math.nan, 1.0]).ended, "became 1.26e-05")


def test_a_loss_may_be_negative():
    assert not curve(np.linspace(-1, -10, 51)).ended
    assert curve([-1.0, -2.0, 4.5]).ended
