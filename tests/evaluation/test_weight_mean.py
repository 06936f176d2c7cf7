"""The mean of several checkpoints' weights: taken at the end of a run, or of any run afterwards."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import task_factory
from wording import says

import runner
from runner.errors import ConfigError

MEAN = {"last": 3, "batches": 4}


class Normalized(toy.ToyTask):
    def build_model(self):
        points = tf_keras.Input((4,))
        x = tf_keras.layers.Dense(8)(points)
        x = tf_keras.layers.BatchNormalization(momentum=0.9)(x)
        return tf_keras.Model(points, tf_keras.layers.Dense(3, dtype="float32")(x))


def experiment(steps=60, mean=None, **overrides):
    made = toy.experiment(overrides)
    made.override(
        {
            "trainer": {"train_steps": steps, "max_to_keep": 1},
            "run": {"weight_mean": MEAN if mean is None else mean},
        }
    )
    return made


@pytest.fixture(autouse=True)
def normalized(monkeypatch):
    make = lambda params, **kw: Normalized(params, **kw)  # noqa: E731
    monkeypatch.setattr("official.core.task_factory.get_task", make)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_factory, "get_task", lambda params, **kw: Normalized(params, **kw))
        return folder, runner.run(experiment(), folder, "train_and_eval")


def tensors(path):
    reader = tf.train.load_checkpoint(str(path))
    names = reader.get_variable_to_shape_map()
    return {
        name: reader.get_tensor(name)
        for name in names
        if name.startswith("model/") and "SLOT" not in name
    }


def rows(folder, kind):
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def test_the_mean_of_the_last_checkpoints_is_kept_beside_the_best(run):
    folder, results = run
    assert sorted(path.name for path in folder.glob("ckpt-*.index")) == [
        f"ckpt-{step}.index"
        for step in (20, 40, 60)  # max_to_keep = 1 keeps what the mean needs
    ]
    parts = [tensors(folder / f"ckpt-{step}") for step in (20, 40, 60)]
    mean = tensors(tf.train.latest_checkpoint(str(folder / "mean")))
    assert mean.keys() == parts[0].keys()
    moving = [name for name in mean if "moving" in name]
    assert len(moving) == 2
    for name in mean.keys() - {*moving}:
        if mean[name].dtype == np.float32:
            expected = np.mean([part[name].astype(np.float64) for part in parts], axis=0)
            np.testing.assert_array_equal(mean[name], expected.astype(np.float32))
    assert results["mean"]["steps"] == [20, 40, 60]
    (row,) = rows(folder, "mean")
    assert (row["step"], row["steps"], row["checkpoint"]) == (60, [20, 40, 60], "mean/ckpt-60")
    info = json.loads((folder / "mean" / "info.json").read_text())
    assert info["accuracy"] == row["metrics"]["accuracy"] == results["mean"]["metrics"]["accuracy"]


def test_the_statistics_of_batch_normalization_are_those_of_the_first_batches(run):
    folder, _ = run
    mean = tensors(folder / "mean" / "ckpt-60")
    (kernel,) = (v for name, v in mean.items() if v.shape == (4, 8))
    bias, *_ = (mean[name] for name in sorted(mean) if "layer_with_weights-0/bias" in name)
    made = experiment()
    made.task.train_data.seed = made.task.train_data.seed or 0
    task = Normalized(made.task)
    batches = list(task.build_inputs(made.task.train_data).take(4))
    outputs = [points.numpy() @ kernel + bias for points, _ in batches]
    expected = np.mean([each.mean(axis=0) for each in outputs], axis=0)
    (moving,) = (v for name, v in mean.items() if "moving_mean" in name)
    np.testing.assert_allclose(moving, expected, rtol=1e-4, atol=1e-5)
    variance = np.mean([each.var(axis=0) for each in outputs], axis=0)
    (moving,) = (v for name, v in mean.items() if "moving_variance" in name)
    np.testing.assert_allclose(moving, variance, rtol=0.2)  # Keras may correct it by n / (n - 1)


def test_the_same_command_again_takes_no_other_mean_and_a_longer_run_takes_its_own(run, tmp_path):
    folder, results = run
    again = runner.run(experiment(), folder, "train_and_eval")
    assert again["mean"] == results["mean"]
    assert len(rows(folder, "mean")) == 1
    runner.run(experiment(30), tmp_path, "train_and_eval")  # ends off the grid of the longer one
    longer = runner.run(experiment(60), tmp_path, "train_and_eval")
    assert longer["mean"] == results["mean"]
    one, other = tensors(folder / "mean" / "ckpt-60"), tensors(tmp_path / "mean" / "ckpt-60")
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_mean_of_any_run_is_evaluated_afterwards_and_scores_the_same_from_its_file(run):
    folder, results = run
    made = experiment(mean={"batches": 4})
    found = runner.run(made, folder, "eval", checkpoint="mean:20,40,60")
    assert found["metrics"] == results["mean"]["metrics"]
    kept = folder / "eval-once" / "mean-20-40-60"
    assert found["evaluations"][0]["checkpoint"] == str(kept / "ckpt-60")
    for path in (kept, folder / "mean"):
        again = runner.run(made, folder, "eval", checkpoint=str(path))
        assert again["metrics"] == found["metrics"]
    part = runner.run(made, folder, "eval", checkpoint="mean:40:60")
    assert part["metrics"]["validation_loss"] != found["metrics"]["validation_loss"]
    for which, said in (("mean:20", "two checkpoints"), ("mean:20,30", "no such")):
        with pytest.raises(ConfigError, match=said):
            runner.run(made, folder, "eval", checkpoint=which)


def test_a_schedule_says_which_checkpoints_count_and_averages_of_weights_are_what_is_averaged(
    tmp_path,
):
    ema = {"optimizer_config": {"ema": {"average_decay": 0.5}}}
    made = experiment(80, {"from_step": 30, "every": 40, "batches": 2}, trainer=ema)
    results = runner.run(made, tmp_path, "train_and_eval")
    assert results["mean"]["steps"] == [40, 80]
    again = runner.run(made, tmp_path, "eval", checkpoint="mean")
    assert again["metrics"] == results["mean"]["metrics"]


def test_a_mean_of_one_checkpoint_is_none(tmp_path, capsys):
    results = runner.run(experiment(20), tmp_path, "train_and_eval")
    assert "mean" not in results
    says(capsys.readouterr().err, "weights two")
