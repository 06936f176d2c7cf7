"""Evaluators and training as processes of their own, killed and started again."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import pytest
import warm
from wording import says

from runner.checkpoints import checkpoint_files
from runner.core import files


@pytest.fixture
def runners(tmp_path):
    """Starts the command; what it says is in `<label>.err`. Ends what is left."""
    with contextlib.ExitStack() as stack:

        def start(label, mode, *params):
            command = [sys.executable, "-m", "runner", f"--mode={mode}", "--gin_file=digits.gin"]
            command += ["--model_dir=run", *(f"--gin.{each}" for each in params)]
            err = stack.enter_context((tmp_path / f"{label}.err").open("a"))
            process = warm.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=err)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def wait_for(what, seconds=500):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def said(path, text):
    return lambda: path.exists() and text in path.read_text()


def steps(folder):
    return [row["step"] for row in files.read_json_lines(folder / "history.jsonl")]


def result(process):
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


def trainer(steps, every, keep=1):
    values = {"train_steps": steps, "steps_per_loop": every, "checkpoint_interval": every}
    return [
        f"TrainerConfig.{name}={value}" for name, value in (values | {"max_to_keep": keep}).items()
    ]


def test_a_slow_evaluator_misses_nothing_though_it_is_killed_and_training_keeps_one(
    runners, tmp_path
):
    run = tmp_path / "run"
    own = run / "eval-slow"
    slow = [
        "EvaluatorConfig.name='slow'",
        "EvaluatorConfig.policy='every'",
        "validation/ImageData.global_batch_size=1",  # a third of a second, many checks for signals
    ]
    first = runners("first", "continuous_eval", *slow)
    wait_for(said(tmp_path / "first.err", "waiting"))

    second = runners("second", "continuous_eval", *slow)
    assert second.wait(timeout=300) == 1
    refusal = (tmp_path / "second.err").read_text()
    says(refusal, f"eval-slow {first.pid}")
    assert "choose another EvaluatorConfig.name" in refusal

    training = runners("training", "train", *trainer(750, 25))
    wait_for(lambda: len(steps(own)) == 3)
    time.sleep(0.1)
    first.kill()  # in the middle of an evaluation
    first.wait()
    assert len(steps(own)) == 3
    assert result(training)["status"] == "done"
    assert [path.name for path in checkpoint_files.there(run)] == ["ckpt-750"]
    assert not (run / "history.jsonl").exists()

    again = result(runners("again", "continuous_eval", *slow))
    assert (again["status"], again["training"], again["step"]) == ("done", "done", 750)
    assert steps(own) == list(range(25, 751, 25))
    passing = ("ckpt-", "queue", "evaluator.json", "claim.json", ".")
    assert not [path.name for path in own.iterdir() if path.name.startswith(passing)]


def test_an_evaluator_waits_while_training_is_killed_preempted_and_started_again(runners, tmp_path):
    err, run = tmp_path / "evaluator.err", tmp_path / "run"
    evaluator = runners("evaluator", "continuous_eval")
    hasty = [
        "EvaluatorConfig.name='hasty'",
        "EvaluatorConfig.from_step=1000000000",
        "TrainerConfig.continuous_eval_timeout=15",
    ]
    long = [*trainer(10**7, 500), "CosineLrConfig.decay_steps=1000"]
    wait_for(said(err, "no training"))

    training = runners("training", "train", *long)
    gives_up = runners("hasty", "continuous_eval", *hasty)
    wait_for(lambda: len(steps(run / "eval-continuous")) > 1)
    training.kill()
    killed = training.wait()
    assert killed == -signal.SIGKILL
    wait_for(said(err, f"process {training.pid} on "))
    wait_for(said(err, "recording a status"))
    assert gives_up.wait(timeout=300) == 1
    message = (tmp_path / "hasty.err").read_text().splitlines()[-1]
    says(message, "0:15 giving process")
    assert "(TrainerConfig.continuous_eval_timeout = 15)" in message

    training = runners("training", "train", *long)
    wait_for(said(err, "training continues at step "))
    wait_for(said(tmp_path / "training.err", "resumed at step "))
    time.sleep(1)
    training.send_signal(signal.SIGTERM)
    assert training.wait(timeout=300) == 143
    wait_for(said(err, "training was preempted at step "))
    stopped = json.loads((run / "status.json").read_text())["step"]
    wait_for(lambda: steps(run / "eval-continuous")[-1] == stopped)

    training = runners("training", "train", *long)
    wait_for(lambda: err.read_text().count(f"training continues at step {stopped:,}") > 0)
    wait_for(lambda: steps(run / "eval-continuous")[-1] > stopped)
    training.send_signal(signal.SIGINT)
    assert training.wait(timeout=300) == 130
    ended = result(evaluator)
    assert ended["training"] == "stopped"
    evaluated = steps(run / "eval-continuous")
    assert evaluated == sorted(set(evaluated))
    assert ended["step"] == evaluated[-1] == json.loads((run / "status.json").read_text())["step"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_evaluator_that_waits_ends_at_once_on_a_signal(runners, tmp_path, number, code):
    evaluator = runners("evaluator", "continuous_eval")
    wait_for(said(tmp_path / "evaluator.err", "waiting"))
    evaluator.send_signal(number)
    assert evaluator.wait(timeout=300) == code
