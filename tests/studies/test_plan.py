import math
import pathlib

import pytest

from runner.studies import trial

NAN = math.nan


@pytest.mark.parametrize(
    ("state", "best", "last", "worth"),
    [
        ("done", {"accuracy": 0.9}, {"accuracy": 0.8}, -0.9),
        ("diverged", {"accuracy": 0.9}, {"accuracy": 0.8}, math.inf),
        ("done", {}, {"accuracy": NAN}, math.inf),
        ("done", {"accuracy": NAN}, {"accuracy": NAN}, math.inf),
        ("done", {"f1": 0.9}, {"f1": 0.9}, None),
        ("failed", {}, {}, None),
        ("failed", {"accuracy": 0.99}, {"accuracy": 0.9}, None),
    ],
)
def test_what_diverged_or_is_no_number_counts_as_the_worst(state, best, last, worth):
    objective = trial.Objective("accuracy", higher=True)
    one = trial.Trial(
        0, pathlib.Path(), {}, 0, None, state, best=best, last=last, objective=objective
    )
    assert trial.worth(one) == worth
