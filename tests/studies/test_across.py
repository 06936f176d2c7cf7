"""Configurations over several data sets, from made trials."""

from pathlib import Path

import pytest

from runner.errors import ConfigError
from runner.studies import across, pictures, summary, trial


@pytest.fixture
def found():
    """Rate 0.1 is good on one data set; rate 0.2 is fair on both."""
    means = {
        (0.1, "laptop"): 0.5,
        (0.1, "restaurant"): 0.9,
        (0.2, "laptop"): 0.76,
        (0.2, "restaurant"): 0.75,
    }
    return summary.of(
        [
            trial.Trial(
                4 * n + seed, Path("x"), {"A.rate": rate, "Data.source": source}, seed, None,
                "done", 100, best={"accuracy": mean + seed / 100},
                objective=trial.Objective("accuracy"),
            )
            for n, ((rate, source), mean) in enumerate(means.items())
            for seed in range(4)
        ]
    )  # fmt: skip


def test_configurations_are_one_over_all_data_sets_and_ranked_by_the_middle_half(found):
    first, second = across.of(found, "Data.source")
    assert (first.name, second.name) == ("0.2", "0.1")
    assert sorted(first.scores) == ["laptop", "restaurant"]
    assert [len(runs) for runs in first.scores.values()] == [4, 4]
    assert first.middle.low < first.middle.value < first.middle.high


def test_a_misspelt_parameter_is_named(found):
    with pytest.raises(ConfigError, match=r"did you mean 'Data\.source'"):
        across.of(found, "Data.sourc")


def test_profiles_are_drawn(found):
    svg, png = pictures.draw_profiles(Path("profile"), across.of(found, "Data.source"), "accuracy")
    assert ">share of runs above<" in svg.read_text()
    assert png.stat().st_size > 1000
