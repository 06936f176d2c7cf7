"""Training that breaks: stopped, or rolled back without the batches that broke it."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
import toy
from poisoned_runs import Poisoned, experiment, logs, rows, weights
from wording import saying, says

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
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-20")
    assert not list(tmp_path.glob("ckpt-40*"))


def test_a_first_batch_that_breaks_is_left_out_too(tmp_path, poisoned):
    poisoned(bad_loss=(0,))
    runner.run(experiment(1, steps=10), tmp_path, "train")
    [rollback] = history.History(tmp_path / "history.jsonl").rollbacks
    assert (rollback.step, rollback.skipped) == (0, (0, 1))


def test_weights_that_break_with_a_finite_loss_are_never_committed(tmp_path, poisoned):
    poisoned(bad_gradient=(39,))  # the last batch before a commit
    with pytest.raises(DivergedError, match=saying("kernel 40 ckpt-20")):
        runner.run(experiment(0), tmp_path, "train")
    assert not list(tmp_path.glob("ckpt-40*"))


def test_one_value_that_is_not_finite_is_found_and_large_ones_are_none(tmp_path):
    asked = Call(experiment(0), tmp_path)
    trainer, _ = build.build_trainer(asked, step=0, evaluates=False)
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


BAD = {"bad_gradient": (29,), "bad_loss": (37,)}  # weights break at step 30, its loss does not


def keeping_one():
    """Rolls back to a checkpoint that is not the newest, which is to be kept nevertheless."""
    made = experiment(5, rate=0.5)
    made.override({"trainer": {"max_to_keep": 1}})
    return made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder and the results of a run that nothing stopped but its bad batches."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, numbers in BAD.items():
            patch.setattr(Poisoned, name, numbers)
        patch.setattr(
            "official.core.task_factory.get_task", lambda params, **kw: Poisoned(params, **kw)
        )
        return folder, runner.run(keeping_one(), folder, "train_and_eval")


def test_a_rollback_leaves_out_the_batch_that_broke_the_loss_or_the_one_before(undisturbed):
    folder, results = undisturbed
    assert (results["status"], results["step"]) == ("done", 60)
    rollbacks = history.History(folder / "history.jsonl").rollbacks
    assert [(each.step, each.found, each.skipped) for each in rollbacks[:2]] == [
        (20, 31, (30, 31)),
        (20, 31, (29, 32)),  # the loss was NaN again, whichever batch came: the weights were broken
    ]
    first, end = rollbacks[-1].skipped
    assert (len(rollbacks), first <= 37 < end) == (3, True)
    assert [row["step"] for row in rows(folder / "train.jsonl")] == [10, 20, 30, 40, 50, 60]
    assert all(np.isfinite(row["training_loss"]) for row in rows(folder / "train.jsonl"))


def preempted(folder, *, rollbacks, loop):
    """An action: a SIGTERM after a loop of those that come after so many rollbacks."""
    loops = []

    def action(logs):
        loops.append(len(history.History(folder / "history.jsonl").rollbacks))
        if loops.count(rollbacks) == loop and loops[-1] == rollbacks:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)  # until the thread that watches for signals has seen it

    return action


def test_a_run_that_is_preempted_and_killed_rolls_back_as_one_that_was_not(
    tmp_path, poisoned, undisturbed
):
    poisoned(**BAD)

    def train(*actions):
        return runner.run(keeping_one(), tmp_path, "train_and_eval", train_actions=actions)

    with pytest.raises(signals.Interrupted):
        train(preempted(tmp_path, rollbacks=0, loop=3))
    assert not (tmp_path / "ckpt-30.index").exists()  # its weights were broken
    with pytest.raises(signals.Interrupted):
        train(preempted(tmp_path, rollbacks=2, loop=1))
    assert (tmp_path / "ckpt-30.index").exists()

    def rolled_back_and_killed(logs):
        if len(history.History(tmp_path / "history.jsonl").rollbacks) == 3:
            raise KeyError

    with pytest.raises(KeyError):
        train(rolled_back_and_killed)
    assert not (tmp_path / "ckpt-30.index").exists()  # of a rate that no longer holds
    train()
    assert logs(undisturbed[0]) == logs(tmp_path)
    assert weights(undisturbed[0], 60) == weights(tmp_path, 60)


def test_commits_by_the_clock_change_nothing_of_a_run_that_is_killed(
    tmp_path, capsys, poisoned, undisturbed
):
    poisoned(**BAD)
    made = keeping_one()
    made.override({"run": {"checkpoint_seconds": 1e-9, "summary_seconds": 1e-9}})  # each loop
    with pytest.raises(KeyError):
        runner.run(made, tmp_path, "train_and_eval", train_actions=[killed(after=1)])
    runner.run(made, tmp_path, "train_and_eval")
    assert "resumed at step 10 " in capsys.readouterr().err
    assert logs(undisturbed[0]) == logs(tmp_path)
    assert weights(undisturbed[0], 60) == weights(tmp_path, 60)


def killed(after):
    """An action: breaks off in the loop after so many."""
    loops = []

    def action(logs):
        loops.append(logs)
        if len(loops) > after:
            raise KeyError

    return action


def test_a_loss_above_its_bound_counts_as_broken(tmp_path):
    wild = toy.experiment({"trainer": {"loss_upper_bound": 0.01, "recovery_begin_steps": 12}})
    said = r"TrainerConfig.loss_upper_bound.* step 1[23]"
    with pytest.raises(DivergedError, match=said) as error:
        runner.run(wild, tmp_path, "train")
    says(str(error.value), "no checkpoint")
    assert not list(tmp_path.glob("ckpt-*"))


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

    made = experiment(1, steps=40)
    made.override({"trainer": RARE})
    results = runner.run(made, tmp_path / "b", "train", train_actions=[stop_at_nan])
    assert (results["status"], results["step"]) == ("stopped", 0)
    assert [path.name for path in (tmp_path / "b").glob("ckpt-*.index")] == ["ckpt-0.index"]


def test_a_loop_on_the_host_breaks_at_the_same_step_and_leaves_out_the_same(tmp_path, poisoned):
    poisoned(bad_loss=(13,))
    for name, host in (("graph", {}), ("host", HOST)):
        made = experiment(1, steps=20)
        made.override({"trainer": {**RARE, **host}})
        runner.run(made, tmp_path / name, "train")
        [rollback] = history.History(tmp_path / name / "history.jsonl").rollbacks
        assert (rollback.found, rollback.skipped) == (14, (13, 14))
    assert weights(tmp_path / "graph", 20) == weights(tmp_path / "host", 20)
