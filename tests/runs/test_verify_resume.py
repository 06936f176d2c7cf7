"""The mode on real processes and real signals: each of these trains four times, in short."""

import json
import subprocess
import sys
import time
from pathlib import Path

import own_task
import pytest
import warm
from wording import saying, says

import runner
from runner.configuration import yaml_files
from runner.errors import RunnerError
from runner.run_directory.verification import child_run
from runner.runs import verify_resume
from runner.runs.call import Call

NOISY_TASK = """
import dataclasses

import tensorflow as tf
from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class NoisyConfig(image_classification.ImageClassificationConfig):
    pass


@task_factory.register_task_cls(NoisyConfig)
class NoisyTask(image_classification.ImageClassificationTask):
    def build_losses(self, labels, model_outputs, aux_losses=None):
        return super().build_losses(labels, model_outputs) * tf.random.uniform([])
"""


@pytest.fixture(autouse=True)
def warm_starts(monkeypatch):
    monkeypatch.setattr(child_run, "Child", warm.Fork)


def request(gin_file, *flags):
    arguments = [f"--gin_file={gin_file}", *flags]
    return Call(runner.load(gin_file), Path("runs/mine"), arguments=arguments)


def test_an_experiment_that_resumes_exactly_is_told_so(capsys):
    results = verify_resume.verify_resume(request("digits.gin"))

    assert results["status"] == "done"
    assert results["step"] == 200
    assert results["verdict"].startswith("resuming is bit-exact: ")
    says(results["verdict"], "10 2 evaluations no bit")
    told = capsys.readouterr().err
    says(told, "SIGTERM resumed")
    says(told, "SIGKILL resumed")
    assert "generators" in told
    assert not list(Path("runs").iterdir())  # neither the run's folder nor the scratch folder


def test_a_training_step_with_a_stateful_random_op_is_found_and_the_op_is_named():
    Path("noisy_digits.py").write_text(NOISY_TASK)
    Path("noisy.gin").write_text(own_task.digits_gin("noisy_digits", "NoisyConfig", 100))

    with pytest.raises(RunnerError, match=saying("not resume")) as error:
        verify_resume.verify_resume(request("noisy.gin"))

    verdict, difference, cause, kept = str(error.value).splitlines()
    says(verdict, "SIGKILL resumed")
    says(difference, "difference rows")
    assert cause.startswith("usual cause: ")
    assert "RandomUniform" in cause
    once = Path(kept.split()[-1], "once")
    assert (once / "train.jsonl").exists()
    assert not (once / "history.jsonl").exists()  # it has no validation data


def test_a_command_that_fails_is_quoted():
    with pytest.raises(RunnerError, match=r"exit code 2(?s:.*)'train_steps'") as e:
        verify_resume.verify_resume(request("digits.gin", "--gin.TrainerConfig.train_stepz=5"))
    kept = Path(str(e.value).split()[-1])
    assert (kept / "once.log").exists()


def test_a_killed_one_leaves_no_process_and_the_next_one_clears_its_folder():
    command = [sys.executable, "-m", "runner", "--mode=verify_resume", "--gin_file=digits.gin"]
    with subprocess.Popen([*command, "--model_dir=runs/mine"], stderr=subprocess.DEVNULL) as mine:
        left = waited_for("runs/mine-verify_resume-*/once/claim.json")
        child = json.loads(left.read_text())["pid"]
        mine.kill()
    waited_for(f"/proc/{child}/stat", gone=True)

    Path("runs/mine-verify_resume-of-my-own").mkdir()
    with pytest.raises(RunnerError, match="exit code 2"):
        verify_resume.verify_resume(request("digits.gin", "--gin.TrainerConfig.train_stepz=5"))
    assert not left.parents[1].exists()
    assert Path("runs/mine-verify_resume-of-my-own").exists()


def waited_for(pattern, *, gone=False):
    """The path, once it is there; None once it is `gone`, or a process is a zombie."""
    for _ in range(300 * 20):
        path = next(iter(Path("/").glob(str(Path(pattern).absolute())[1:])), None)
        if gone == (path is None or (gone and " Z " in path.read_text())):
            return path
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {pattern}")


def test_a_run_is_made_short_and_never_longer():
    (flag,) = verify_resume.shortening(90_000)
    values = yaml_files.read_override(flag.removeprefix("--params_override=")).values
    assert values["trainer"] == {
        "train_steps": 200,
        "validation_interval": 100,
        "checkpoint_interval": 50,
        "summary_interval": 20,
        "steps_per_loop": 10,
    }
    assert set(values["run"]["epochs"].values()) == {0}  # steps count
    (flag,) = verify_resume.shortening(5)
    assert "trainer.train_steps=5," in flag
    assert "trainer.steps_per_loop=1," in flag
