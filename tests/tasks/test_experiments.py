"""Every experiment that travels along builds, and opens with what a reader wants to know."""

import re
from pathlib import Path

import pytest

import runner
from runner import config
from runner.errors import ConfigError

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.gin"))
NEED_FILES = [
    path for path in FILES if path.stem.startswith(("chinese", "cifar", "restaurant", "squad"))
]
WITHOUT_FILES = [path for path in FILES if path not in NEED_FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_experiment_opens_with_command_duration_and_score(path):
    header = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    assert re.search(rf"runner --mode=\w+ --gin_file={path.name} --model_dir=\S+", header)
    assert re.search(r"\d+ (s|min|h) on ", header)
    assert re.search(r"(accuracy \d\.\d+|F1 \d+)", header)


@pytest.mark.parametrize("path", WITHOUT_FILES, ids=lambda path: path.stem)
def test_an_experiment_that_needs_no_files_trains_by_its_name_from_any_folder(path, tmp_path):
    short = [
        "TrainerConfig.train_steps=4",
        "TrainerConfig.steps_per_loop=2",
        "EpochsConfig.train=0",
    ]
    experiment = runner.load(path.name, short)
    assert isinstance(experiment, config.Experiment)
    assert runner.run(experiment, tmp_path, "train_and_eval")["step"] == 4


@pytest.mark.parametrize("path", NEED_FILES, ids=lambda path: path.stem)
def test_an_experiment_whose_files_are_missing_names_one_of_them(path, tmp_path):
    with pytest.raises(ConfigError, match=r"\bdata/[\w./-]+"):
        runner.run(runner.load(path.name), tmp_path, "train_and_eval")


def test_there_are_experiments():
    assert {path.stem for path in WITHOUT_FILES} >= {"digits", "digits_cnn"}
