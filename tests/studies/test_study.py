import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
import yaml
from wording import says

from runner import main
from runner.core import layout
from runner.history import history, records
from runner.run_directory.verification import comparison
from runner.studies import trial

SHORT = [
    "--gin_file=digits.gin",
    *(
        f"--gin.TrainerConfig.{name}={value}"
        for name, value in {
            "train_steps": 40,
            "steps_per_loop": 10,
            "summary_interval": 20,
            "validation_interval": 20,
            "checkpoint_interval": 20,
        }.items()
    ),
    "--gin.RunConfig.tensorboard=False",
]
RATE = "CosineLrConfig.initial_learning_rate"
RATE_PATH = "trainer.optimizer_config.learning_rate.cosine.initial_learning_rate"
STUDY = ["--mode=study", *SHORT, "--jobs=2"]


def said(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def is_bit_equal_to_a_run_by_hand(one, folder):
    """In a process of its own, since its threads are a trial's."""
    command = [sys.executable, "-m", "runner", "--mode=train_and_eval"]
    own = [f"--gin_file={one.folder / layout.GIN}", f"--model_dir={folder}"]
    assert warm.Popen([*command, *own]).wait(600) == 0
    return not comparison.differing(comparison.compare(one.folder, folder))


TEST = [
    "--gin_params=TestConfig.data = @test/ImageData()",
    "--gin.test/ImageData.is_training=False",
    "--gin.test/ImageData.global_batch_size=360",
]


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Two rates, of which one diverges, with one seed, and test data."""
    folder = tmp_path_factory.mktemp("studies") / "rate"
    assert main.main([*STUDY, *TEST, f"--vary={RATE}=0.005,1e30", f"--model_dir={folder}"]) == 0
    return folder


def test_each_trial_is_a_run_and_a_diverged_one_stops_no_other(studied):
    good, bad = trial.all_of(studied)
    assert (good.state, good.step, good.parameters, good.seed) == ("done", 40, {RATE: 0.005}, 0)
    assert good.best["accuracy"] > 0.2
    assert bad.state == "diverged"
    threads = yaml.safe_load((good.folder / layout.PARAMS).read_text())["run"]["intra_op_threads"]
    assert threads == max(len(os.sched_getaffinity(0)) // 2, 1)
    assert good.folder.name == "0000-initial_learning_rate=0.005,seed=0"
    assert (good.folder / layout.GIN).exists()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("MLPConfig.dropout=0.5", "dropout 0.5 --gin.MLPConfig.dropout=0.5"),
        ("TrainerConfig.train_steps=60", "train_steps 40 60"),
    ],
)
def test_trials_of_another_configuration_are_not_added(studied, changed, named, capsys):
    more = [f"--vary={RATE}=0.005,1e30", "--seeds=2", f"--model_dir={studied}"]
    assert main.main([*STUDY, *TEST, *more, f"--gin.{changed}"]) == 2
    error = capsys.readouterr().err
    says(error, "trials another configuration")
    says(error, named)
    assert len(trial.all_of(studied)) == 2


def test_a_finished_trial_without_a_readable_configuration_stops_no_study(studied, tmp_path):
    folder = shutil.copytree(studied, tmp_path / "rate")
    for one in trial.all_of(folder):
        (one.folder / layout.PARAMS).write_text("a: [")
    assert main.main([*STUDY, *TEST, f"--vary={RATE}=0.005,1e30", f"--model_dir={folder}"]) == 0


def test_a_run_is_not_mixed_with_a_study(studied, capsys):
    before = sorted(path.name for path in studied.iterdir())
    assert main.main(["--mode=train", *SHORT, f"--model_dir={studied}"]) == 2
    says(capsys.readouterr().err, "directory study --mode=study")
    assert sorted(path.name for path in studied.iterdir()) == before


def test_the_tables_have_the_states_as_they_are(studied):
    with (studied / "trials.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["done", "diverged"]


def test_a_trial_is_bit_equal_to_a_run_by_hand(studied, tmp_path):
    (good, _) = trial.all_of(studied)
    assert is_bit_equal_to_a_run_by_hand(good, tmp_path / "run")


def test_a_trial_does_not_test_and_the_study_tests_what_it_has_chosen(studied):
    good, bad = trial.all_of(studied)
    assert not history.History(good.folder / layout.HISTORY).of(records.Test)
    assert (good.tests, bad.tests) == (1, 0)
    assert good.test["test/accuracy"] == pytest.approx(good.best["accuracy"])  # the same data
    (first, _) = json.loads((studied / layout.STUDY).read_text())["configurations"]
    assert first["test"]["test/accuracy"]["mean"] == good.test["test/accuracy"]


def test_the_same_command_starts_nothing_and_one_with_more_only_what_is_new(studied, capsys):
    accuracy = trial.all_of(studied)[0].best["accuracy"]
    before = {path: path.stat().st_mtime_ns for path in studied.rglob(layout.RUN)}
    same = [*STUDY, *TEST, f"--model_dir={studied}"]
    assert main.main([*same, f"--vary={RATE}=0.005,1e30"]) == 0
    result = said(capsys)
    assert result["trials"] == {"done": 1, "diverged": 1}
    assert result["test"]["test/accuracy"] == {"mean": pytest.approx(accuracy), "interval": None}
    assert main.main([*same, f"--vary={RATE}=0.005,1e30,0.01"]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out.splitlines()[-1])
    assert result["trials"] == {"done": 2, "diverged": 1}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert result["best"]["parameters"] == {RATE: 0.01}
    says(output.err, "used 2 configurations")
    assert [each.tests for each in trial.all_of(studied)] == [1, 0, 1]
    assert [each.parameters[RATE] for each in trial.all_of(studied)] == [0.005, 1e30, 0.01]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vary=CosineLrConfig.initial_rate=1,2"], "initial_rate"),
        (["--vary=TrainerConfig.train_steps=10,-3"], "must 1"),
        (["--vary=TrainerConfig.train_steps='a','b'"], "train_steps"),
        (["--seeds=3,3"], "3 once"),
        (["--seeds=x"], "--seeds=x expected list"),
        ([], "nothing varies"),
        (["--vary=SGDConfig.momentum=0.1,0.9"], "SGDConfig.momentum"),
        ([f"--vary={RATE}=1,2", f"--vary=learning_rate_config.{RATE}=1,2"], "configure same"),
        ([f"--vary={RATE}=-1,2"], "must 0"),
        ([f"--vary={RATE}=1,1.0"], "configure same"),
        (["--folds=2000"], "1797 examples"),
        (["--vary=MLPConfig.dropout=uniform(0, 0.5)"], "needs lists"),
        (["--seeds=2000", "--vary=MLPConfig.dropout=0.1,0.2,0.3,0.4,0.5,0.6"], "12,000 trials"),
        ([f"--vary={RATE}=1,2", f"--params_override={RATE_PATH}=3"], "configure same"),
    ],
)
def test_what_cannot_be_configured_is_refused_before_anything_starts(
    tmp_path, capsys, flags, message
):
    assert main.main([*STUDY, *flags, f"--model_dir={tmp_path / 'study'}"]) == 2
    says(capsys.readouterr().err, message)
    assert not (tmp_path / "study").exists()


def started(folder, log):
    command = [sys.executable, "-m", "runner", *STUDY, "--seeds=2", f"--model_dir={folder}"]
    longer = ["--gin.TrainerConfig.train_steps=300", "--gin.TrainerConfig.validation_interval=100"]
    with log.open("a") as file:
        return warm.Popen([*command, *longer], stdin=subprocess.PIPE, stdout=file, stderr=file)


def wait_for(moment, seconds=600):
    end = time.monotonic() + seconds
    while not moment():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A study with two seeds: SIGTERM, then SIGKILL, then to its end; and its exit codes."""
    folder = tmp_path_factory.mktemp("interrupted") / "study"
    log = Path(f"{folder}.log")
    codes = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        seen = len(list(folder.rglob("ckpt-*.index")))
        process = started(folder, log)
        wait_for(lambda seen=seen: len(list(folder.rglob("ckpt-*.index"))) > seen)
        process.send_signal(number)
        codes.append(process.wait(600))
    codes.append(started(folder, log).wait(600))
    return folder, codes


def test_an_interrupted_study_goes_on_and_has_the_same_bits(interrupted, tmp_path):
    folder, codes = interrupted
    assert codes == [143, -signal.SIGKILL, 0]
    trials = trial.all_of(folder)
    assert [(each.state, each.seed) for each in trials] == [("done", 0), ("done", 1)]
    assert is_bit_equal_to_a_run_by_hand(trials[1], tmp_path / "run")
