"""`--mode=find_rate`: a sweep of learning rates that leaves nothing behind."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import toy
from wording import saying, says

import runner
from runner import main
from runner.core import signals
from runner.errors import ConfigError, DivergedError
from runner.runs import call, find_rate

WARM = {"warmup": {"type": "linear", "linear": {"warmup_steps": 20}}}
DIGITS = ["--mode=find_rate", "--gin_file=digits.gin", "--gin.FindRateConfig.steps=60"]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def experiment(overrides=None, **options):
    made = toy.experiment({"run": {"find_rate": {"steps": 12, **options}}})
    made.override(overrides or {})
    return made


def test_what_it_suggests_for_digits_trains_them(scratch, capsys):
    assert main.main([*DIGITS, "--output=rate.png"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert json.loads(Path("rate.json").read_text()) == found
    assert Path("rate.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in Path().iterdir()) == ["rate.json", "rate.png", "scratch"]
    assert not list(scratch.glob("runner-*"))
    assert "suggestion: " in printed.err
    made = runner.load(
        "digits.gin",
        [
            f"CosineLrConfig.initial_learning_rate = {found['suggestion']}",
            "TrainerConfig.train_steps = 300",
        ],
    )
    assert runner.run(made, "run", "train_and_eval")["metrics"]["accuracy"] > 0.93


def test_the_rates_rise_evenly_whatever_the_schedule_and_the_losses_follow_from_the_seed():
    warm = {"trainer": {"optimizer_config": WARM}}
    none = {"trainer": {"optimizer_config": {"learning_rate": {"type": None}}}}
    first, again, other = (
        runner.run(experiment(each), None, "find_rate")
        for each in (warm, none, {"run": {"seed": 1}})
    )
    assert first["rates"] == pytest.approx(np.geomspace(1e-6, 10, 12), rel=1e-4)
    assert first["losses"] == again["losses"] != other["losses"]


def test_a_dry_run_takes_ten_steps_and_writes_nothing(tmp_path):
    asked = call.Call(experiment(), Path())
    found = find_rate.find_rate(asked, tmp_path / "rate.json", dry_run=True)
    assert (found["status"], len(found["rates"])) == ("rehearsed", 10)
    assert not list(tmp_path.iterdir())


def test_a_signal_ends_it_and_leaves_nothing(scratch):
    stop = signals.Stop()
    stop.number = 15
    with pytest.raises(signals.Interrupted):
        find_rate.find_rate(call.Call(experiment(), Path(), stop=stop))
    assert not list(scratch.glob("runner-*"))


def test_a_loss_that_is_not_finite_at_once_is_said(poisoned):
    poisoned(bad_loss=(0,))
    with pytest.raises(DivergedError, match=saying("loss nan FindRateConfig")):
        runner.run(experiment(), None, "find_rate")


def test_one_that_breaks_on_the_way_ends_the_sweep(poisoned):
    poisoned(bad_loss=(7,))
    found = runner.run(experiment(), None, "find_rate")
    assert len(found["losses"]) == 7
    says(found["ended"], "became nan")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lowest": 1.0, "highest": 1.0}, "lowest 1.0 highest"),
        ({"lowest": 0.0}, "lowest 0.0 above 0"),
        ({"steps": 3}, "steps 3 10"),
    ],
)
def test_a_sweep_that_there_is_not_is_refused(options, said):
    with pytest.raises(ConfigError, match=saying(said)):
        runner.run(experiment(**options), None, "find_rate")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model_dir=run"], "--mode=find_rate --model_dir --output=FILE"),
        (["--output=rate.jpeg"], "--output=rate.jpeg png"),
        (["--output=nowhere/rate.png"], "--output=nowhere/rate.png nowhere"),
    ],
)
def test_a_place_for_what_it_does_not_write_is_refused(capsys, flags, said):
    assert main.main([*DIGITS, *flags]) == 2
    says(capsys.readouterr().err, said)


def test_other_modes_have_no_output(capsys):
    assert main.main(["--mode=train", "--gin_file=digits.gin", "--model_dir=r", "--output=a.json"])
    says(capsys.readouterr().err, "--output --mode=train predict")
