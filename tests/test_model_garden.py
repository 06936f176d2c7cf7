"""Model Garden's own end-to-end cases, on `runner.run_experiment`."""

import inspect
import json

import orbit
import pytest
import tensorflow as tf
import toy
from official.core import base_trainer, exp_factory, task_factory, train_lib
from official.utils.testing import mock_task

import runner
from runner.errors import ConfigError, DivergedError

SMALL = {
    "trainer": {
        "checkpoint_interval": 10,
        "steps_per_loop": 10,
        "summary_interval": 10,
        "train_steps": 10,
        "validation_steps": 5,
        "validation_interval": 10,
        "continuous_eval_timeout": 1,
        "validation_summary_subdir": "validation",
        "optimizer_config": {
            "optimizer": {"type": "sgd"},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
        },
    }
}


def mock():
    """The configuration and the task of official's test experiment."""
    params = exp_factory.get_exp_config("mock")
    params.override(SMALL)
    params.lock()
    return params, task_factory.get_task(params.task)


def mirrored():
    """Two logical CPUs; TensorFlow's collectives mix up two strategies of one process."""
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduction)


def experiment(folder, mode, *, made=None, **more):
    params, task = made or mock()
    strategy = tf.distribute.get_strategy()
    return runner.run_experiment(strategy, task, mode, params, str(folder), **more)


def test_it_takes_model_gardens_parameters_with_their_defaults():
    ours = inspect.signature(runner.run_experiment).parameters
    theirs = inspect.signature(train_lib.run_experiment).parameters
    assert list(ours) == list(theirs)
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name


@pytest.mark.parametrize(("mode", "run_post_eval"), [("train", True), ("train_and_eval", False)])
def test_training_leaves_what_model_gardens_does(tmp_path, mode, run_post_eval):
    model, logs = experiment(tmp_path, mode, run_post_eval=run_post_eval)
    assert isinstance(model, tf.Module)
    assert bool(logs) == run_post_eval
    assert (tmp_path / "params.yaml").exists()
    assert (tmp_path / "checkpoint").exists()
    assert (tmp_path / "validation").exists()
    _, logs = experiment(tmp_path, "continuous_eval", run_post_eval=run_post_eval)
    assert bool(logs) == run_post_eval


def test_train_and_post_eval_returns_the_results_of_the_trained_model(tmp_path):
    made = toy.experiment()
    task = toy.ToyTask(made.task)
    model, logs = experiment(tmp_path, "train_and_post_eval", made=(made, task))
    points, labels = toy.data(17)
    right = tf.argmax(model(points), axis=1, output_type=tf.int32) == labels
    assert logs["accuracy"] == pytest.approx(float(tf.reduce_mean(tf.cast(right, tf.float32))))
    assert set(logs) == {"accuracy", "validation_loss", "best_accuracy"}
    assert logs["best_accuracy"] == logs["accuracy"]


def test_the_best_value_so_far_is_returned_as_model_garden_does(tmp_path):
    made = toy.experiment()
    task = toy.ToyTask(made.task)
    _, logs = experiment(tmp_path, "train_and_eval", made=(made, task), run_post_eval=True)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert logs["best_accuracy"] == max(row["metrics"]["accuracy"] for row in rows)


def test_a_strategy_and_a_task_of_the_callers_are_used(tmp_path):
    strategy = mirrored()
    made = toy.experiment()
    with strategy.scope():
        task = toy.ToyTask(made.task)
    built = []
    task.build_model = lambda: built.append(1) or toy.ToyTask.build_model(task)
    model, _ = runner.run_experiment(strategy, task, "train", made, str(tmp_path))
    assert built == [1]
    assert len(strategy.experimental_local_results(model.variables[0])) == 2


def test_evaluating_without_a_checkpoint_is_refused_where_model_garden_scores_noise(tmp_path):
    with pytest.raises(ConfigError, match="there is no checkpoint"):
        experiment(tmp_path, "eval")


def test_an_unknown_mode_is_answered_with_what_the_function_takes(tmp_path):
    with pytest.raises(ConfigError) as error:
        experiment(tmp_path / "run", "predict")
    assert "mode='predict'" in str(error.value)
    assert "continuous_eval" in str(error.value)
    assert "find_rate" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_nan_raises_a_runtime_error_and_saves_nothing(tmp_path):
    params, _ = mock()
    task = mock_task.MockTask(params.task)
    task.build_losses = lambda labels, model_outputs, aux_losses=None: (
        tf.constant([float("nan")]) + aux_losses
    )
    with pytest.raises(RuntimeError) as caught:
        experiment(tmp_path, "train", made=(params, task))
    assert isinstance(caught.value, DivergedError)
    assert not list(tmp_path.glob("ckpt-*"))


def test_the_callers_lists_are_not_changed_and_runs_do_not_see_each_other(tmp_path):
    seen = []
    train_actions, eval_actions = [seen.append], [seen.append]
    for name in ("a", "b"):
        more = {"train_actions": train_actions, "eval_actions": eval_actions}
        experiment(tmp_path / name, "train_and_eval", **more)
    assert (len(train_actions), len(eval_actions), len(seen)) == (1, 1, 4)


def test_summary_managers_are_told_and_summaries_can_be_left_out(tmp_path):
    manager = orbit.utils.SummaryManager(
        str(tmp_path / "mine"), tf.summary.scalar, global_step=tf.Variable(3, dtype=tf.int64)
    )
    experiment(tmp_path / "run", "train", summary_manager=manager, save_summary=False)
    assert list((tmp_path / "mine").glob("events*"))
    assert not (tmp_path / "run" / "train").exists()


def test_a_trainer_or_controller_of_the_callers_runs_its_own_loop_and_that_is_said(
    tmp_path, capsys
):
    params, task = mock()

    class Mine(orbit.Controller):
        pass

    experiment(tmp_path / "a", "train", made=(params, task), controller_cls=Mine)
    assert "Mine runs Model Garden's own loop: no exact resume" in capsys.readouterr().err
    theirs = base_trainer.Trainer(
        params,
        task,
        task.build_model(),
        task.create_optimizer(params.trainer.optimizer_config),
        train=True,
        evaluate=False,
    )
    model, _ = experiment(tmp_path / "b", "train", made=(params, task), trainer=theirs)
    assert model is theirs.model
    assert "a trainer of your own runs Model Garden's own loop" in capsys.readouterr().err
    assert not (tmp_path / "b" / "history.jsonl").exists()


def test_params_stay_locked_and_unchanged(tmp_path):
    params, task = mock()
    before = params.as_dict()
    experiment(tmp_path, "train", made=(params, task))
    assert params.as_dict() == before
    with pytest.raises(ValueError, match="locked"):
        params.override({"task": {"init_checkpoint": "a"}})


def test_inputs_that_take_no_context_are_shared_out(tmp_path):
    strategy = mirrored()
    params, _ = mock()
    with strategy.scope():
        task = mock_task.MockTask(params.task)
    assert "input_context" not in inspect.signature(task.build_inputs).parameters
    _, logs = runner.run_experiment(
        strategy, task, "train", params, str(tmp_path), run_post_eval=True
    )
    assert logs
