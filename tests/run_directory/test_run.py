"""`runner.Run`: what a run's directory says, whatever became of the run."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import finished
import folders_of_runs
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import toy

import runner
from runner.errors import ConfigError, RunnerError
from runner.inspection import outcome, rows
from runner.run_directory import claim
from runner.run_directory.state import State
from runner.studies import trial


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "toy"
    finished.run(toy.experiment(), folder)
    return folder


def ending(folder, *, act=None, overrides=None, step=2):
    """The run in `folder` after `act` was called in its loop number `step`."""
    calls = []

    def action(_):
        calls.append(None)
        return act() if act and len(calls) == step else None

    with contextlib.suppress(RunnerError, KeyboardInterrupt, ZeroDivisionError):
        runner.run(toy.experiment(overrides), folder, "train_and_eval", train_actions=[action])
    return runner.Run(folder)


def test_a_finished_run(done):
    run = runner.Run(done)
    assert (run.state, run.step, run.train_steps) == ("done", 40, 40)
    assert run.best.metrics["accuracy"] == max(row.metrics["accuracy"] for row in run.evaluations)
    assert [row.step for row in run.evaluations] == [20, 40]
    assert run.params["trainer"]["steps_per_loop"] == run.param("trainer.steps_per_loop") == 10
    assert [row["state"] for row in run.attempts] == ["done"]
    assert run.time.parts["training"] > 0
    assert (run.system, run.problems) == ({}, [])


def test_pandas_accepts_the_training_rows(done):
    table = pd.DataFrame(runner.Run(done).training)
    assert list(table["step"]) == [10, 20, 30, 40]
    assert table["training_loss"].dtype == np.float64


def test_a_row_without_a_value_has_none(tmp_path):
    folders_of_runs.make(tmp_path)
    folders_of_runs.lines(tmp_path / "train.jsonl", [{"step": 1, "a": 1}, {"step": 2, "b": "nan"}])
    run = runner.Run(tmp_path)
    assert run.training["a"] == [1.0, None]
    assert np.isnan(run.training["b"][1])


def test_repr_says_how_far_and_how_good_it_is(done):
    said = repr(runner.Run(done))
    assert "toy" in said
    assert "done at step 40" in said
    assert f"accuracy {runner.Run(done).best.metrics['accuracy']:.4g}" in said


def test_the_loaded_model_scores_as_the_run_says(done):
    run = runner.Run(done)
    points, labels = toy.data(17)
    scores = run.load_model()(points, training=False)
    accuracy = np.mean(np.argmax(scores, axis=-1) == labels)
    assert accuracy == pytest.approx(run.best.metrics["accuracy"])


def test_the_loaded_model_has_the_averages_that_were_evaluated(tmp_path):
    ema = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}
    finished.run(toy.experiment(ema), tmp_path)
    run, policy = runner.Run(tmp_path), tf.keras.mixed_precision.global_policy()
    points, labels = toy.data(17)
    for which, row in (("latest", run.evaluations[-1]), ("best", run.best)):
        scores = run.load_model(which)(points, training=False)
        assert np.mean(np.argmax(scores, axis=-1) == labels) == pytest.approx(
            row.metrics["accuracy"]
        )
    assert tf.keras.mixed_precision.global_policy() is policy


@pytest.mark.parametrize(
    ("number", "stored"), [(signal.SIGINT, State.STOPPED), (signal.SIGTERM, State.PREEMPTED)]
)
def test_a_run_that_a_signal_has_stopped_is_preempted(tmp_path, number, stored):
    run = ending(tmp_path / "run", act=lambda: os.kill(os.getpid(), number))
    assert (run.state, run.status.state) == (State.PREEMPTED, stored)
    assert run.reason


def test_a_run_that_pauses_and_one_that_its_own_rules_stop(tmp_path):
    paused = ending(tmp_path / "a", overrides={"run": {"pause_at": 20}})
    assert (paused.state, paused.step) == (State.PAUSED, 20)
    stopped = ending(tmp_path / "b", act=lambda: "paused at step 20, says an action")
    assert stopped.state == State.STOPPED


def test_a_run_that_diverges_and_one_that_fails(tmp_path):
    rate = {"learning_rate": {"type": "constant", "constant": {"learning_rate": 1e38}}}
    trainer = {"recovery_max_trials": 0, "optimizer_config": rate}
    assert ending(tmp_path / "a", overrides={"trainer": trainer}).state == State.DIVERGED
    assert ending(tmp_path / "b", act=lambda: 1 / 0).state == State.FAILED


def test_a_run_that_was_killed_is_preempted(tmp_path):
    code = (
        "import os, sys; sys.path[:0] = sys.argv[2:]\n"
        "from runner.run_directory import claim, status\n"
        "from pathlib import Path\n"
        "folder = Path(sys.argv[1])\n"
        "with claim.claimed(folder, note=print), status.StatusFile(folder) as file:\n"
        "    file.beat(7)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    run = runner.Run(tmp_path)
    assert (run.state, run.status.state) == (State.PREEMPTED, State.RUNNING)


def test_a_run_of_a_process_without_a_heartbeat_is_unresponsive(tmp_path):
    folders_of_runs.make(tmp_path, state="running")
    with claim.claimed(tmp_path, note=print):
        assert runner.Run(tmp_path).state == State.RUNNING
        os.utime(tmp_path / "claim.json", (1e9, 1e9))
        assert runner.Run(tmp_path).state == State.UNRESPONSIVE


def test_trials_that_have_not_begun_or_were_rejected(tmp_path):
    for name in ("a", "b"):
        trial.write(tmp_path / name, {"number": 0, "parameters": {}, "seed": 0})
    trial.note(tmp_path / "b", ConfigError.exit_code, "no such value", "host")
    assert runner.Run(tmp_path / "a").state == State.PENDING
    run = runner.Run(tmp_path / "b")
    assert (run.state, run.reason) == (State.REJECTED, "no such value")


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("paused at step 20", State.PAUSED),
        ("stopped by SIGINT", State.PREEMPTED),
        ("no gain", State.STOPPED),
    ],
)
def test_a_status_of_an_older_version_has_only_the_reason(tmp_path, reason, state):
    folders_of_runs.make(tmp_path, state="stopped")
    stored = json.loads((tmp_path / "status.json").read_text())
    assert "stopped_by" not in stored
    (tmp_path / "status.json").write_text(json.dumps({**stored, "reason": reason}))
    assert runner.Run(tmp_path).state == state


def test_the_evaluations_of_an_evaluator_count_if_the_run_has_none(tmp_path):
    folders_of_runs.make(tmp_path)
    (tmp_path / "eval-continuous").mkdir()
    (tmp_path / "history.jsonl").rename(tmp_path / "eval-continuous" / "history.jsonl")
    assert runner.Run(tmp_path).best.metrics == {"accuracy": 0.9}


def test_parts_of_the_last_evaluation_in_several_rows_count_together(tmp_path):
    folder = folders_of_runs.make(tmp_path / "run")
    row = {"kind": "evaluation", "seconds": 1.0, "time": 1060.0, "checkpoint": "ckpt-40"}
    part = {**row, "step": 40, "metrics": {"part/accuracy": 0.25}}
    with (folder / "history.jsonl").open("a") as file:
        file.write(f"{json.dumps(part)}\n")
    run = runner.Run(folder)
    assert run.last.metrics == {"accuracy": 0.9, "part/accuracy": 0.25}
    assert "final accuracy 0.9" in outcome.sentence(run)
    assert rows.of(run).last == run.last.metrics


def test_a_damaged_run_says_which_file_is_damaged_or_shows_the_rest(tmp_path):
    folders_of_runs.make(tmp_path)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write("{\n\n{}\n")
    (tmp_path / "status.json").write_text("{")
    run = runner.Run(tmp_path)
    assert run.state == State.DAMAGED
    with pytest.raises(RunnerError, match=r"history\.jsonl:3"):
        _ = run.best
    lenient = runner.Run(tmp_path, strict=False)
    assert (lenient.best.step, lenient.state) == (40, State.DAMAGED)
    assert any("status.json" in problem for problem in lenient.problems)


def test_a_directory_without_a_run_is_rejected_with_what_is_in_it(tmp_path):
    folders_of_runs.make(tmp_path / "runs" / "a")
    for directory, named in (("runs", "runs/a"), ("none", "none")):
        with pytest.raises(ConfigError, match=named):
            runner.Run(tmp_path / directory)


def test_reading_a_run_loads_no_tensorflow(tmp_path):
    folders_of_runs.make(tmp_path)
    code = (
        "import sys, runner; run = runner.Run(sys.argv[1]); repr(run); run.training; run.time\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
