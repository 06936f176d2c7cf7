"""`--dry_run`: everything once and small, and nothing left behind."""

import finished
import pytest
import tensorflow as tf
import tf_keras
import toy
from wording import saying

import runner
from runner.errors import ConfigError, DivergedError, RunnerError
from runner.evaluation import handover


def tree(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def rehearse(folder, mode="train_and_eval", *, made=None, **more):
    return runner.run(made or toy.experiment(), folder, mode, dry_run=True, **more)


@pytest.mark.parametrize("mode", ["train", "train_and_eval", "continuous_eval"])
def test_a_new_run_is_rehearsed_and_not_begun(tmp_path, capsys, mode):
    results = rehearse(tmp_path / "run", mode)
    said = capsys.readouterr().err
    assert results["status"] == "rehearsed"
    assert results["peak_memory_bytes"] > 1e8
    assert not (tmp_path / "run").exists()
    if mode != "continuous_eval":
        assert results["seconds_per_step"] > 0
        assert results["checkpoint_bytes"] > 500
        assert "training batch: (8, 4) float32; (8,) int32" in said
        assert "saved and restored" in said
        assert "parameters: 67" in said
    if mode != "train":
        assert 0 <= results["metrics"]["accuracy"] <= 1
        assert "one batch evaluated" in said


def test_a_run_that_is_there_is_left_as_it_is(tmp_path, capsys):
    finished.run(toy.experiment(), tmp_path)
    before = tree(tmp_path)
    for mode in ("train", "train_and_eval", "eval", "continuous_eval"):
        rehearse(tmp_path, mode)
    assert tree(tmp_path) == before
    assert "ckpt-40 restores cleanly" in capsys.readouterr().err


def test_a_changed_configuration_and_another_model_are_found_out(tmp_path, monkeypatch):
    finished.run(toy.experiment(), tmp_path, "train")
    with pytest.raises(ConfigError, match=r"task.dropout: 0.5 -> 0.1"):
        rehearse(tmp_path, "train", made=toy.experiment(dropout=0.1))

    monkeypatch.setattr(
        toy.ToyTask,
        "build_model",
        lambda self: tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)]),
    )
    with pytest.raises(ConfigError, match=saying("written model")):
        rehearse(tmp_path, "train")


def test_an_evaluation_of_nothing_is_found_out(tmp_path):
    with pytest.raises(ConfigError, match=saying("no checkpoint")):
        rehearse(tmp_path, "eval")


def test_variables_may_share_a_name(tmp_path, monkeypatch):
    def build_model(self):
        inputs = tf_keras.Input((4,))
        twins = [tf_keras.Sequential([tf_keras.layers.Dense(3, name="same")]) for _ in range(2)]
        model = tf_keras.Model(inputs, twins[1](twins[0](inputs)[:, :2]))
        assert len({v.name for v in model.variables}) == len(model.variables) // 2
        return model

    monkeypatch.setattr(toy.ToyTask, "build_model", build_model)
    assert rehearse(tmp_path)["status"] == "rehearsed"


def test_a_metric_that_there_will_not_be_is_found_out(tmp_path):
    made = toy.experiment({"trainer": {"best_checkpoint_eval_metric": "acuracy"}})
    with pytest.raises(ConfigError, match=saying("mean accuracy")):
        rehearse(tmp_path, made=made)


def test_a_loss_that_is_broken_from_the_start_is_found_out(tmp_path, monkeypatch):
    def broken(self, labels, model_outputs, aux_losses=None):
        return tf.reduce_mean(model_outputs) * float("nan")

    monkeypatch.setattr(toy.ToyTask, "build_losses", broken)
    with pytest.raises(DivergedError, match=saying("loss nan")):
        rehearse(tmp_path)


def test_a_folder_that_cannot_be_and_a_disk_that_is_too_small_are_found_out(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunnerError, match="is a file"):
        rehearse(tmp_path / "file" / "run")
    made = toy.experiment({"trainer": {"max_to_keep": 10**12}})
    with pytest.raises(RunnerError, match=saying("checkpoints PB left")):
        rehearse(tmp_path, made=made)


def test_a_rule_on_an_evaluators_own_metric_is_rehearsed_as_it_will_be(tmp_path):
    rule = {"early_stopping": {"higher": ["part/accuracy"], "source": "cpu"}}
    made = toy.experiment({"run": rule})
    with pytest.raises(ConfigError, match=saying("evaluator cpu running")):
        rehearse(tmp_path, "train", made=made)
    with handover.registered(tmp_path / "eval-cpu", policy="latest", metrics=["part/accuracy"]):
        assert rehearse(tmp_path, "train", made=made)["status"] == "rehearsed"


def test_a_value_that_nothing_reads_is_named_as_a_run_names_it(tmp_path, capsys):
    (tmp_path / "menu.gin").write_text("include 'digits.gin'\nSGDConfig.momentum = 0.5\n")
    params = [
        "TrainerConfig.recovery_max_trials = 2",
        "RunConfig.rollback_rate = 0.5",
        "TrainerConfig.validation_steps = 3",
        "TrainerConfig.best_checkpoint_export_subdir = 'b'",
    ]
    made = runner.load(tmp_path / "menu.gin", params)  # which trains with Adam
    rehearse(tmp_path / "run", made=made)
    path = "trainer.optimizer_config.optimizer.sgd.momentum"
    said = [line for line in capsys.readouterr().err.splitlines() if "had no effect" in line]
    (line,) = said
    assert f"menu.gin:2: {path} had no effect" in line
    assert type(made.trainer) is made.trainer.__class__
