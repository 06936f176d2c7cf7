"""Model Garden's own end-to-end cases, on `runner.run_experiment`."""

import inspect
import json
import shutil

import numpy as np
import orbit
import pytest
import tensorflow as tf
import toy
from official.core import base_trainer, exp_factory, task_factory, train_lib, train_utils
from official.core import config_definitions as cfg
from official.modeling import hyperparams
from official.utils.testing import mock_task
from wording import saying, says

import runner
from runner import config, main
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
    assert list(ours)[: len(theirs)] == list(theirs)
    more = list(ours.values())[len(theirs) :]
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in more)
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
    made = toy.experiment({"trainer": {"best_checkpoint_export_subdir": "best_ckpt"}})
    task = toy.ToyTask(made.task)
    model, logs = experiment(tmp_path, "train_and_post_eval", made=(made, task))
    points, labels = toy.data(17)
    right = tf.argmax(model(points), axis=1, output_type=tf.int32) == labels
    assert logs["accuracy"] == pytest.approx(float(tf.reduce_mean(tf.cast(right, tf.float32))))
    assert set(logs) == {"accuracy", "validation_loss", "best_accuracy"}
    assert logs["best_accuracy"] == logs["accuracy"]


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
    with pytest.raises(ConfigError, match=saying("no checkpoint")):
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
    says(capsys.readouterr().err, "Mine Model Garden's loop")
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
    says(capsys.readouterr().err, "trainer Model Garden's loop")
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


def with_theirs(folder, steps, *, made=None, mode="train", **more):
    """What Model Garden leaves after so many steps of the toy experiment; the model it returns."""
    made = made or to_continue(steps)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")  # averages need one
    with strategy.scope():
        task = toy.ToyTask(made.task)
    return train_lib.run_experiment(strategy, task, mode, made, str(folder), **more)


def with_ours(folder, steps, *, made=None, mode="train", **more):
    made = made or to_continue(steps)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = toy.ToyTask(made.task)
    return runner.run_experiment(strategy, task, mode, made, str(folder), **more)


def to_continue(steps, *, ema=None, rate=0.1, examples=30, **trainer):
    """Model Garden's own configuration of the toy task, for so many steps."""
    adam = {
        "optimizer": {"type": "adam"},
        "ema": ema,
        "learning_rate": {"type": "constant", "constant": {"learning_rate": rate}},
    }
    params = cfg.ExperimentConfig(task=toy.ToyConfig(dropout=0.0, examples=examples))
    every = dict.fromkeys(("checkpoint_interval", "summary_interval", "steps_per_loop"), 3)
    more = {"train_steps": steps, "validation_steps": 3, "validation_interval": 3, **trainer}
    params.override({"trainer": {**every, "optimizer_config": adam, **more}})
    return params


def tensors(folder, step):
    """The weights, the optimizer's variables and the step in a checkpoint."""
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    parts = ("model/", "optimizer/", "global_step/")
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith(parts)]
    return {name: reader.get_tensor(name) for name in names}


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_run_that_model_garden_began_continues(tmp_path, capsys):
    more = {"ema": {"average_decay": 0.9}, "examples": 8}  # all of them in each batch
    with_theirs(tmp_path / "a", 6, made=to_continue(6, **more))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name, last in (("a", with_ours), ("b", with_theirs)):
        last(tmp_path / name, 12, made=to_continue(12, **more))
    said = capsys.readouterr().err
    assert "Model Garden" in said
    assert "position" in said
    assert_close(tensors(tmp_path / "a", 12), tensors(tmp_path / "b", 12))
    with_ours(tmp_path / "a", 15, made=to_continue(15, **more))
    assert "position" not in capsys.readouterr().err  # it is known now


@pytest.mark.parametrize("ema", [None, {"average_decay": 0.9}])
def test_model_garden_continues_a_run_that_began_here(tmp_path, ema):
    more = {"ema": ema, "examples": 8}  # all of them in each batch
    with_ours(tmp_path / "a", 6, made=to_continue(6, **more))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name, last in (("a", with_theirs), ("b", with_ours)):
        last(tmp_path / name, 12, made=to_continue(12, **more))
    assert_close(tensors(tmp_path / "a", 12), tensors(tmp_path / "b", 12))


def test_what_model_garden_wrote_of_the_configuration_is_compared(tmp_path):
    made = to_continue(6)
    with_theirs(tmp_path, 6, made=made)
    train_utils.serialize_config(made, str(tmp_path))
    with pytest.raises(ConfigError) as error:
        with_ours(tmp_path, 12, made=to_continue(12, rate=0.2))
    assert "learning_rate" in str(error.value)
    assert "run." not in str(error.value)
    with_ours(tmp_path, 12)
    assert (tmp_path / "ckpt-12.index").exists()


def test_another_optimizer_than_model_gardens_is_still_a_mistake(tmp_path):
    with_theirs(tmp_path, 6)
    other = to_continue(12)
    other.override({"trainer": {"optimizer_config": {"optimizer": {"type": "sgd"}}}})
    with pytest.raises(ConfigError, match="optimizer"):
        with_ours(tmp_path, 12, made=other)
    assert not (tmp_path / "ckpt-12.index").exists()


def test_the_best_checkpoint_of_model_garden_stays_the_best(tmp_path):
    ema = {"average_decay": 0.9}
    rules = {
        "best_checkpoint_export_subdir": "best_ckpt",
        "best_checkpoint_eval_metric": "accuracy",
        "best_checkpoint_metric_comp": "higher",
    }
    made = to_continue(6, ema=ema, rate=0.0, **rules)
    _, theirs = with_theirs(tmp_path, 6, made=made, mode="train_and_eval", run_post_eval=True)
    made = to_continue(9, ema=ema, rate=0.0, **rules)
    _, logs = with_ours(tmp_path, 9, made=made, mode="train_and_eval", run_post_eval=True)
    info = json.loads((tmp_path / "best_ckpt" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 3
    assert logs.keys() == theirs.keys()
    assert logs["best_accuracy"] == pytest.approx(float(theirs["best_accuracy"]))
    assert tf.train.latest_checkpoint(str(tmp_path / "best_ckpt")).endswith("ckpt-3")
    assert list((tmp_path / "best_ckpt").glob("best_ckpt-*.index"))  # nothing of theirs is removed


def test_what_model_garden_trained_is_evaluated(tmp_path):
    with_theirs(tmp_path, 6)
    _, logs = with_ours(tmp_path, 6, mode="eval", run_post_eval=True)
    assert logs["validation_loss"] > 0
    made = to_continue(6, continuous_eval_timeout=20)
    with_ours(tmp_path, 6, made=made, mode="continuous_eval")  # ends, as no more is to come
    rows = (tmp_path / "eval-continuous" / "history.jsonl").read_text()
    assert json.loads(rows)["step"] == 6


def test_the_command_continues_what_model_garden_began(tmp_path):
    params, task = mock()
    train_lib.run_experiment(tf.distribute.get_strategy(), task, "train", params, str(tmp_path))
    batches = {"train_data": {"global_batch_size": 2}, "validation_data": {"global_batch_size": 2}}
    values = {**SMALL, "task": batches, "runtime": {"distribution_strategy": "off"}}
    flags = ["--experiment=mock", f"--model_dir={tmp_path}", f"--params_override={values}"]
    longer = "--params_override=trainer.train_steps=20"
    assert main.main(["--mode=train", *flags, longer]) == 0
    assert (tmp_path / "ckpt-20.index").exists()


def test_what_is_advised_are_arguments_that_there_are(tmp_path):
    folder = tmp_path / "run"
    with_ours(folder, 3)
    changed = to_continue(6, rate=0.2)
    with pytest.raises(ConfigError) as error:
        with_ours(folder, 6, made=changed)
    assert "allow_config_change=True" in str(error.value)
    assert "--" not in str(error.value)
    with pytest.raises(ConfigError) as error:
        with_ours(folder, 6, made=changed, overwrite=True)
    assert "overwrite='run'" in str(error.value)
    assert "--" not in str(error.value)
    with pytest.raises(ConfigError) as error:
        with_ours(folder, 6, mode="eval", overwrite="run")
    assert "overwrite" in str(error.value)
    assert "--" not in str(error.value)
    stops = {"early_stopping": {"higher": ["accuracy"], "patience": 1}}
    with pytest.raises(ConfigError) as error:
        with_ours(tmp_path / "b", 6, made=config.from_official(to_continue(6)).replace(run=stops))
    assert "train_and_eval" in str(error.value)
    assert "--" not in str(error.value)
    with_ours(folder, 6, made=changed, allow_config_change=True)
    assert (folder / "ckpt-3.index").exists()
    with_ours(folder, 9, overwrite="run")
    rows = json.loads((folder / "run.json").read_text())["starts"]
    assert len(rows) == 1


def test_rows_that_history_has_lost_can_be_left_out(tmp_path):
    with_ours(tmp_path, 6, mode="train_and_eval")
    (tmp_path / "history.jsonl").write_text("")
    with pytest.raises(ConfigError) as error:
        with_ours(tmp_path, 9, mode="train_and_eval")
    assert "allow_lost_history=True" in str(error.value)
    with_ours(tmp_path, 9, mode="train_and_eval", allow_lost_history=True)
    assert (tmp_path / "ckpt-9.index").exists()


def test_arguments_that_model_gardens_own_loop_does_not_have_are_refused_there(tmp_path):
    class Mine(orbit.Controller):
        pass

    with pytest.raises(ConfigError, match="overwrite"):
        experiment(tmp_path, "train", controller_cls=Mine, overwrite="a")


def test_params_yaml_is_what_model_gardens_strict_reader_takes(tmp_path):
    with_ours(tmp_path, 3)
    read = cfg.ExperimentConfig(task=toy.ToyConfig())
    path = str(tmp_path / "params.yaml")
    hyperparams.override_params_dict(read, path, is_strict=True)
    assert read.as_dict() == to_continue(3).as_dict()
    seeded = config.from_official(to_continue(6)).replace(run={"seed": 3})
    with pytest.raises(ConfigError, match=r"run\.seed"):  # it is compared all the same
        with_ours(tmp_path, 6, made=seeded)
    with_ours(tmp_path, 6, made=config.from_official(to_continue(6)))
    assert "run:" in (tmp_path / "params.yaml").read_text()  # a configuration of the runner's
    with_ours(tmp_path, 9)  # as after a start of an earlier version, which wrote all in one file
    assert "run:" not in (tmp_path / "params.yaml").read_text()
    changed = to_continue(12, rate=0.2)  # a program that writes the file cannot hide a change
    train_utils.serialize_config(changed, str(tmp_path))  # as Model Garden's train.py does
    with pytest.raises(ConfigError, match="learning_rate"):
        with_ours(tmp_path, 12, made=changed)


@pytest.mark.parametrize("subdir", ["best_ckpt", ""])
def test_logs_have_the_names_and_the_best_value_that_they_have_under_model_garden(tmp_path, subdir):
    best = {"best_checkpoint_eval_metric": "accuracy", "best_checkpoint_export_subdir": subdir}
    seen, returned = {"theirs": [], "ours": []}, []
    for name, run in (("theirs", with_theirs), ("ours", with_ours)):
        actions = {"eval_actions": [seen[name].append], "run_post_eval": True}
        made = to_continue(6, **best)
        _, logs = run(tmp_path / name, 6, made=made, mode="train_and_eval", **actions)
        returned.append(set(logs))
    assert returned[0] == returned[1]
    if subdir:
        text = (tmp_path / "ours" / "history.jsonl").read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        assert len(rows) == 2
        assert logs["best_accuracy"] == max(row["metrics"]["accuracy"] for row in rows)
    timed = {"steps_per_second"}
    assert [set(logs) - timed for logs in seen["theirs"]] == [
        set(logs) - timed for logs in seen["ours"]
    ]
