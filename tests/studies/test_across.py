"""Configurations over several data sets, from made trials."""

import json
from pathlib import Path

import pytest
from wording import says

from runner import main
from runner.errors import ConfigError
from runner.studies import across, pictures, publish, summary, trial


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


def test_a_configuration_without_results_on_some_data_sets_comes_last(found):
    left = [each for each in found.trials if each.number not in range(4)]  # 0.1 on its hard set
    first, second = across.of(summary.of(left), "Data.source")
    assert (first.name, second.name, second.missing) == ("0.2", "0.1", ["laptop"])
    assert second.middle.value > first.middle.value
    lines = across.render([first, second], "accuracy").splitlines()
    says(lines[0], "2 sets")
    says(lines[-1], "0.1 1 2 sets")


def test_a_misspelt_parameter_is_named(found):
    with pytest.raises(ConfigError, match=r"did you mean 'Data\.source'"):
        across.of(found, "Data.sourc")


def test_profiles_are_drawn(found):
    svg, png = pictures.draw_profiles(Path("profile"), across.of(found, "Data.source"), "accuracy")
    assert ">share of runs" in svg.read_text()
    assert png.stat().st_size > 1000


def test_a_study_over_data_sets_says_and_writes_it(found, tmp_path, capsys):
    result = publish.publish(tmp_path, found.trials, "Data.source")
    shown = capsys.readouterr().err
    says(shown, "accuracy 2 sets")
    assert [row["name"] for row in result["across"]] == ["0.2", "0.1"]
    assert json.loads((tmp_path / "study.json").read_text())["across"] == result["across"]
    assert (tmp_path / "plots" / "accuracy-profile.svg").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ImageData.fold_sed", "vary mean ImageData.fold_seed"),
        ("ImageData.folds", "not vary"),
    ],
)
def test_what_does_not_vary_names_no_data_set(given, said, capsys, tmp_path):
    flags = ["--mode=study", "--gin_file=digits.gin", "--vary=ImageData.fold_seed=1,2"]
    flags += [f"--params_override=run.study.across={given}", f"--model_dir={tmp_path}/study"]
    assert main.main(flags) == 2
    says(capsys.readouterr().err, said)
