"""What the command says last where there are no results."""

import json
from pathlib import Path

from runner import main

DIGITS = [
    "--mode=train",
    "--gin_file=digits.gin",
    "--model_dir=run",
    "--gin.TrainerConfig.train_steps=20",
    "--gin.TrainerConfig.steps_per_loop=10",
]

BROKEN = """
import dataclasses

from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class BrokenConfig(image_classification.ImageClassificationConfig):
    pass


@task_factory.register_task_cls(BrokenConfig)
class BrokenTask(image_classification.ImageClassificationTask):
    def build_losses(self, labels, model_outputs, aux_losses=None):
        return scale(super().build_losses(labels, model_outputs))


def scale(loss):
    return loss * [1.0, 2.0].mean()
"""

BROKEN_GIN = """
from __gin__ import dynamic_registration
import broken
from tasks.images import image_data
include 'base.gin'

Experiment.task = @broken.BrokenConfig()
BrokenConfig.train_data = @train/image_data.ImageData()
train/ImageData.is_training = True
train/ImageData.global_batch_size = 64
TrainerConfig.train_steps = 20
OptimizerConfig.type = 'adam'
LrConfig.type = 'constant'
"""


def status():
    found = json.loads(Path("run/status.json").read_text())
    return {"status": found["state"], "step": found["step"], "reason": found["reason"]}


def test_a_run_that_diverges_ends_with_json_that_agrees_with_its_status(capsys):
    assert main.main([*DIGITS, "--gin.TrainerConfig.loss_upper_bound=0.001"]) == 3
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    last = json.loads(out)
    assert last["status"] == "diverged"
    assert last["model_dir"] == "run"
    assert last == {**status(), "model_dir": "run"}
    assert err.splitlines()[-1] == f"runner: {last['reason']}"


def test_an_error_in_the_users_code_shows_the_users_lines_and_keeps_the_rest(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("broken.py").write_text(BROKEN)
    Path("broken.gin").write_text(BROKEN_GIN)
    assert main.main(["--mode=train", "--gin_file=broken.gin", "--model_dir=run"]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "runner: in your code:",
        "    broken.py:16, in build_losses",
        "        return scale(super().build_losses(labels, model_outputs))",
        "    broken.py:20, in scale",
        "        return loss * [1.0, 2.0].mean()",
        "    AttributeError: 'list' object has no attribute 'mean'",
        "    the whole traceback is in run/traceback.txt",
    ]
    reason = "AttributeError: 'list' object has no attribute 'mean' (broken.py:20)"
    assert json.loads(out) == {"status": "failed", "step": 0, "reason": reason, "model_dir": "run"}
    assert json.loads(out) == {**status(), "model_dir": "run"}
    whole = Path("run/traceback.txt").read_text()
    assert "runner/trainer.py" in whole
    assert "autograph" in whole


def test_an_error_of_the_runners_own_keeps_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr("runner.build.build_overview", int)
    assert main.main(DIGITS) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "failed"
    assert "Traceback (most recent call last)" in err
    assert err.endswith("the whole traceback is in run/traceback.txt\n")
