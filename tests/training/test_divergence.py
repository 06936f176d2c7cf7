"""Training that breaks: stopped, or rolled back without the batches that broke it."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
import toy
from poisoned_runs import experiment, logs, rows, weights
from wording import saying

import runner
from runner.core import signals
from runner.errors import DivergedError
from runner.history import history
from runner.run_directory import status
from runner.runs import build
from runner.runs.call import Call


def test_by_default_a_broken_loss_stops_the_run_and_names_the_last_good_step(tmp_path, poisoned):
    poisoned(bad_loss=(33,))
    with pytest.raises(DivergedError, match=saying("loss nan 34 ckpt-20")):
        runner.run(experiment(0), tmp_path, "train_and_eval")
    assert status.read(tmp_path).state == "diverged"
    assert not list(tmp_path.glob("ckpt-40*"))


def test_a_broken_first_step_has_no_checkpoint_and_saves_none(tmp_path, poisoned):
    poisoned(bad_loss=(0,))
    with pytest.raises(DivergedError, match="no checkpoint"):
        runner.run(experiment(0), tmp_path, "train")
    assert not list(tmp_path.glob("ckpt-*"))


def test_a_rollback_leaves_out_the_one_batch_that_broke_the_loss(tmp_path, poisoned):
    poisoned(bad_loss=(33,))
    results = runner.run(experiment(2), tmp_path, "train_and_eval")
    assert (results["status"], results["step"]) == ("done", 60)
    [rollback] = history.History(tmp_path / "history.jsonl").rollbacks
    assert (rollback.step, rollback.found, rollback.skipped) == (20, 34, (33, 34))
    assert [row["step"] for row in rows(tmp_path / "train.jsonl")] == [10, 20, 30, 40, 50, 60]
    assert all(np.isfinite(row["training_loss"]) for row in rows(tmp_path / "train.jsonl"))


def test_a_first_batch_that_breaks_is_left_out_too(tmp_path, poisoned):
    poisoned(bad_loss=(0,))
    runner.run(experiment(1), tmp_path, "train")
    [rollback] = history.History(tmp_path / "history.jsonl").rollbacks
    assert (rollback.step, rollback.skipped) == (0, (0, 1))


def test_the_batch_before_is_left_out_where_it_broke_the_weights(tmp_path, poisoned):
    poisoned(bad_gradient=(32,))  # the loss is NaN from batch 33 on, whichever that is
    runner.run(experiment(3), tmp_path, "train")
    windows = history.History(tmp_path / "history.jsonl").skipped
    assert windows == [(33, 34), (32, 35)]


def test_weights_that_break_with_a_finite_loss_are_never_committed(tmp_path, poisoned):
    poisoned(bad_gradient=(39,))  # the last batch before a commit
    with pytest.raises(DivergedError, match=saying("kernel 40 ckpt-20")):
        runner.run(experiment(0), tmp_path, "train")
    assert not list(tmp_path.glob("ckpt-40*"))


def test_one_value_that_is_not_finite_is_found_and_large_ones_are_none(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    asked = Call(experiment(0), tmp_path)
    trainer, _ = build.build_trainer(asked, rows, step=0, evaluates=False)
    first, *_, last = trainer.model.trainable_variables
    for variable in (first, last):
        variable.assign(tf.fill(variable.shape, np.finfo(np.float32).max))  # their sum overflows
    assert trainer.not_finite() == []
    for value in (np.inf, -np.inf, np.nan):
        last[-1].assign(value)
        assert trainer.not_finite() == [last.name]
    first[0, 0].assign(-np.inf)
    assert trainer.not_finite() == [first.name, last.name]


def test_a_lowered_learning_rate_and_the_budget_of_rollbacks_outlast_a_restart(tmp_path, poisoned):
    poisoned(bad_loss=(33, 56))
    runner.run(experiment(1, rate=0.5, steps=40), tmp_path, "train")
    with pytest.raises(DivergedError, match="after 1 rollback"):
        runner.run(experiment(1, rate=0.5), tmp_path, "train")
    rates = [row["learning_rate"] for row in rows(tmp_path / "train.jsonl")]
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.005, 0.005])


def test_a_resume_repeats_what_was_decided(tmp_path, poisoned):
    poisoned(bad_loss=(33, 52))
    runner.run(experiment(5), tmp_path / "once", "train_and_eval")
    for steps in (50, 60):  # after the first rollback, off the grid of commits
        runner.run(experiment(5, steps=steps), tmp_path / "often", "train_and_eval")
    assert weights(tmp_path / "once", 60) == weights(tmp_path / "often", 60)


def preempted_at(step):
    """An action: a SIGTERM after the loop that ends at a step, served before the next one."""
    loops = []

    def action(logs):
        loops.append(logs)
        if 10 * len(loops) == step:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)  # until the thread that watches for signals has seen it

    return action


BAD = [
    {"bad_loss": (33, 34, 37)},
    {"bad_gradient": (29,)},  # the weights are broken at step 30, the loss is not
]


def keeping_one():
    """Rolls back to a checkpoint that is not the newest, which is to be kept nevertheless."""
    made = experiment(5, rate=0.5)
    made.override({"trainer": {"max_to_keep": 1}})
    return made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run that nothing stopped but its bad batches, trained once for each."""
    made = {}

    def folder(bad):
        key = repr(bad)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("undisturbed")
            runner.run(keeping_one(), made[key], "train_and_eval")
        return made[key]

    return folder


@pytest.mark.parametrize("bad", BAD)
def test_a_run_that_was_preempted_rolls_back_as_one_that_was_not(
    tmp_path, poisoned, undisturbed, bad
):
    poisoned(**bad)
    with pytest.raises(signals.Interrupted):
        runner.run(keeping_one(), tmp_path, "train_and_eval", train_actions=[preempted_at(30)])
    runner.run(keeping_one(), tmp_path, "train_and_eval")
    assert logs(undisturbed(bad)) == logs(tmp_path)
    assert weights(undisturbed(bad), 60) == weights(tmp_path, 60)


@pytest.mark.parametrize(("bad", "loops"), zip(BAD, [1, 2], strict=True))
def test_commits_by_the_clock_change_nothing_of_the_run_wherever_it_is_killed(
    tmp_path, capsys, poisoned, undisturbed, bad, loops
):
    poisoned(**bad)
    made = keeping_one()
    made.override({"run": {"checkpoint_seconds": 1e-9, "summary_seconds": 1e-9}})  # each loop
    with pytest.raises(KeyError):
        runner.run(made, tmp_path, "train_and_eval", train_actions=[killed(loops)])
    runner.run(made, tmp_path, "train_and_eval")
    assert f"resumed at step {10 * loops} " in capsys.readouterr().err
    assert logs(undisturbed(bad)) == logs(tmp_path)
    assert weights(undisturbed(bad), 60) == weights(tmp_path, 60)


def killed(after):
    """An action: breaks off in the loop after so many."""
    loops = []

    def action(logs):
        loops.append(logs)
        if len(loops) > after:
            raise KeyError

    return action


def test_what_was_committed_before_a_rollback_is_not_gone_on_from(tmp_path, poisoned, undisturbed):
    bad = {"bad_loss": (33, 34, 37)}
    poisoned(**bad)
    made = experiment(5, rate=0.5)
    with pytest.raises(signals.Interrupted):
        runner.run(made, tmp_path, "train_and_eval", train_actions=[preempted_at(30)])
    assert (tmp_path / "ckpt-30.index").exists()

    def rolled_back_and_killed(logs):
        if history.History(tmp_path / "history.jsonl").rollbacks:
            raise KeyError

    with pytest.raises(KeyError):
        runner.run(made, tmp_path, "train_and_eval", train_actions=[rolled_back_and_killed])
    assert not (tmp_path / "ckpt-30.index").exists()  # of a rate that no longer holds
    runner.run(made, tmp_path, "train_and_eval")
    assert logs(undisturbed(bad)) == logs(tmp_path)
    assert weights(undisturbed(bad), 60) == weights(tmp_path, 60)


def test_a_loss_above_its_bound_counts_as_broken(tmp_path):
    wild = toy.experiment({"trainer": {"loss_upper_bound": 0.01, "recovery_begin_steps": 12}})
    with pytest.raises(DivergedError, match=r"TrainerConfig.loss_upper_bound.* step 1[23]"):
        runner.run(wild, tmp_path, "train")


RARE = {"summary_interval": 40, "checkpoint_interval": 40, "validation_interval": 40}
HOST = {"train_tf_while_loop": False}


def stop_at_nan(logs):
    return "the loss is NaN" if np.isnan(logs["training_loss"]) else None


def test_an_action_that_stops_a_broken_run_has_nothing_broken_committed(tmp_path, poisoned):
    poisoned(bad_loss=(3,))
    made = experiment(0)
    made.override({"trainer": RARE})  # it breaks where neither a row nor a commit is due
    with pytest.raises(DivergedError, match=saying("step 4 no checkpoint")):
        runner.run(made, tmp_path / "a", "train", train_actions=[stop_at_nan])
    assert not list((tmp_path / "a").glob("ckpt-*"))

    made = experiment(1)
    made.override({"trainer": RARE})
    results = runner.run(made, tmp_path / "b", "train", train_actions=[stop_at_nan])
    assert (results["status"], results["step"]) == ("stopped", 0)
    assert [path.name for path in (tmp_path / "b").glob("ckpt-*.index")] == ["ckpt-0.index"]


def test_a_loop_on_the_host_breaks_at_the_same_step_and_leaves_out_the_same(tmp_path, poisoned):
    poisoned(bad_loss=(13,))
    for name, host in (("graph", {}), ("host", HOST)):
        made = experiment(1)
        made.override({"trainer": {**RARE, **host}})
        runner.run(made, tmp_path / name, "train")
        [rollback] = history.History(tmp_path / name / "history.jsonl").rollbacks
        assert (rollback.found, rollback.skipped) == (14, (13, 14))
    assert weights(tmp_path / "graph", 60) == weights(tmp_path / "host", 60)
