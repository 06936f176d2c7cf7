import dataclasses
import json
import math
import re
from pathlib import Path

import finished
import image_files
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras
import toy
from official.core import task_factory
from official.modeling.hyperparams import base_config
from tensorboard.backend.event_processing import event_accumulator
from wording import saying, says

import runner
from runner.command import table
from runner.errors import ConfigError, RunnerError
from runner.run_directory import status
from runner.run_directory.verification import comparison
from tasks import image_classification
from tasks.images import image_data


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(path):
    return [row["step"] for row in rows(path)]


def chart(folder, tag):
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def tree(folder, without=""):
    """Every file below `folder` but those in `without`, and when it was written."""
    return {
        path.relative_to(folder): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != without
    }


def test_train_and_eval_leaves_what_the_readme_says(tmp_path, capsys):
    results = runner.run(toy.experiment(), tmp_path, "train_and_eval")

    assert results["status"] == "done"
    assert results["step"] == 40
    assert results["model_dir"] == str(tmp_path)
    assert steps(tmp_path / "history.jsonl") == [20, 40]
    assert results["metrics"] == rows(tmp_path / "history.jsonl")[-1]["metrics"]
    assert steps(tmp_path / "train.jsonl") == [10, 20, 30, 40]
    assert status.read(tmp_path).state == "done"
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-40")
    best = json.loads((tmp_path / "best" / "info.json").read_text())
    assert best["best_ckpt_global_step"] == results["best"]["step"]
    assert json.loads((tmp_path / "overview.json").read_text())["parameters"] == 67
    assert "train_steps: 40" in (tmp_path / "params.yaml").read_text()
    assert "leaves out" not in capsys.readouterr().err


def test_train_and_validation_loss_are_one_chart(tmp_path):
    results = finished.run(toy.experiment(), tmp_path, "train_and_eval")
    validation = chart(tmp_path / "validation", "loss")
    assert [step for step, _ in validation] == [20, 40]
    assert validation[-1][1] == pytest.approx(results["metrics"]["validation_loss"])
    assert [step for step, _ in chart(tmp_path / "train", "loss")] == [10, 20, 30, 40]
    assert chart(tmp_path / "train", "learning_rate")[0][1] == pytest.approx(0.01)


def test_only_the_last_checkpoint_is_saved_where_that_is_asked_for(tmp_path, capsys):
    last = {"trainer": {"checkpoint_interval": -1}}
    runner.run(toy.experiment(last), tmp_path, "train")
    assert [path.name for path in tmp_path.glob("ckpt-*.index")] == ["ckpt-40.index"]
    says(capsys.readouterr().err, "end only newest 5")
    longer = {"trainer": {"checkpoint_interval": -1, "train_steps": 50, "validation_interval": 5}}
    runner.run(toy.experiment(longer), tmp_path, "train_and_eval")
    assert (tmp_path / "ckpt-45.index").exists()
    says(capsys.readouterr().err, "checkpoints 5 evaluation")


def test_a_run_whose_best_nothing_decides_says_that_it_keeps_its_newest(tmp_path, capsys):
    runner.run(toy.experiment({"trainer": {"max_to_keep": 0}}), tmp_path, "train")
    says(capsys.readouterr().err, "only best newest end")
    assert [path.name for path in tmp_path.rglob("*.index")] == ["ckpt-40.index"]


@pytest.mark.parametrize(("best", "begins"), [(1, "step 20"), (0, "the start")])
def test_a_run_that_has_ended_keeps_its_best_or_nothing(tmp_path, capsys, best, begins):
    made = toy.experiment(
        {
            "trainer": {"max_to_keep": 0, "best_checkpoint_eval_metric": "validation_loss"},
            "run": {"retention": {"best": best, "from_step": 20}},
        }
    )
    made.trainer.best_checkpoint_metric_comp = "higher"  # the first one
    results = runner.run(made, tmp_path, "train_and_eval")
    said = capsys.readouterr().err
    says(said, f"{'only the best' if best else 'none'} end")
    says(said, f"command longer {begins}")
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.index")]
    assert left == ["best/ckpt-20.index"] * best
    assert results["best"]["step"] == 20
    assert runner.run(made, tmp_path, "train_and_eval")["metrics"] == results["metrics"]
    assert (f"resumed at {begins}" if best else "new run in") in capsys.readouterr().err
    assert steps(tmp_path / "history.jsonl") == [20, 40]
    if not best:
        with pytest.raises(RunnerError, match="no checkpoint"):
            runner.run(made, tmp_path, "eval")


def test_train_alone_evaluates_nothing(tmp_path):
    results = finished.run(toy.experiment(), tmp_path, "train")
    assert not (tmp_path / "history.jsonl").exists()
    assert results["best"] is None
    assert math.isfinite(results["metrics"]["training_loss"])


def test_the_same_run_again_goes_on_where_it_was_and_shows_what_was_best_until_then(
    tmp_path, capsys
):
    half = {"trainer": {"train_steps": 20}}
    finished.run(toy.experiment(half), tmp_path)
    first = rows(tmp_path / "history.jsonl")
    capsys.readouterr()

    results = runner.run(toy.experiment(), tmp_path, "train_and_eval")

    assert results["step"] == 40
    assert steps(tmp_path / "history.jsonl") == [20, 40]
    assert rows(tmp_path / "history.jsonl")[0] == first[0]  # not evaluated again
    assert steps(tmp_path / "train.jsonl") == [10, 20, 30, 40]
    before, _, _ = capsys.readouterr().err.partition("evaluated step 40")
    assert re.search(r"step [34]0/40 .* accuracy [\d.]+ \(best [\d.]+ @20\)", before)


def test_what_is_newer_than_the_restored_step_is_forgotten(tmp_path):
    finished.run(toy.experiment(), tmp_path)
    for part in tmp_path.rglob("ckpt-40.*"):  # also where it is the best
        part.unlink()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-20"\n')
    later = toy.experiment({"trainer": {"train_steps": 30}})

    runner.run(later, tmp_path, "train_and_eval")

    assert steps(tmp_path / "history.jsonl") == [20, 30]
    assert steps(tmp_path / "train.jsonl") == [10, 20, 30]
    assert [step for step, _ in chart(tmp_path / "train", "loss")] == [10, 20, 30]
    assert [step for step, _ in chart(tmp_path / "validation", "loss")] == [20, 30]


def test_a_finished_run_started_again_does_nothing_and_says_the_same(tmp_path):
    first = finished.run(toy.experiment(), tmp_path)
    assert runner.run(toy.experiment(), tmp_path, "train_and_eval") == first


def test_a_checkpoint_whose_history_is_missing_is_evaluated_first(tmp_path):
    half = {"trainer": {"train_steps": 20}}
    first = finished.run(toy.experiment(half), tmp_path)
    (tmp_path / "history.jsonl").unlink()
    runner.run(toy.experiment(), tmp_path, "train_and_eval")
    assert steps(tmp_path / "history.jsonl") == [20, 40]
    assert rows(tmp_path / "history.jsonl")[0]["metrics"] == first["metrics"]


def test_a_best_checkpoint_that_a_kill_kept_from_being_exported_is_made_up_for(tmp_path):
    first = finished.run(toy.experiment(), tmp_path)
    for path in (tmp_path / "best").iterdir():
        path.unlink()
    assert runner.run(toy.experiment(), tmp_path, "train_and_eval") == first
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == first["best"]["step"]


def test_empty_training_data_are_an_error(tmp_path):
    with pytest.raises(RunnerError, match=saying("training ended")):
        runner.run(toy.experiment(examples=0), tmp_path, "train")


@pytest.mark.parametrize("which", ["best", "20"])
def test_eval_scores_a_checkpoint_as_training_did(tmp_path, which):
    trained = finished.run(toy.experiment(), tmp_path)
    best = trained["best"]["step"]
    before = tree(tmp_path)

    results = runner.run(toy.experiment(), tmp_path, "eval", checkpoint=which)

    assert results["step"] == {"best": best, "20": 20}[which]
    scored = {row["step"]: row["metrics"] for row in rows(tmp_path / "history.jsonl")}
    assert results["metrics"] == pytest.approx(scored[results["step"]], abs=1e-6)
    assert tree(tmp_path, without="eval-once") == before  # it wrote only in its own folder
    assert steps(tmp_path / "eval-once" / "history.jsonl") == [results["step"]]


def test_eval_scores_the_checkpoint_of_another_run(tmp_path):
    trained = finished.run(toy.experiment(), tmp_path / "a")
    results = runner.run(
        toy.experiment(), tmp_path / "b", "eval", checkpoint=str(tmp_path / "a" / "ckpt-40")
    )
    assert results["metrics"] == pytest.approx(trained["metrics"], abs=1e-6)


def test_eval_without_any_checkpoint_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="no checkpoint"):
        runner.run(toy.experiment(), tmp_path / "new", "eval")
    assert not (tmp_path / "new").exists()


def test_eval_of_an_init_checkpoint_needs_no_run(tmp_path):
    trained = finished.run(toy.experiment(), tmp_path / "a")
    other = toy.experiment(init_checkpoint=str(tmp_path / "a" / "ckpt-40"))
    results = runner.run(other, tmp_path / "b", "eval")
    assert results["metrics"] == pytest.approx(trained["metrics"], abs=1e-6)


def test_eval_of_an_init_checkpoint_that_is_not_the_whole_model_is_refused(tmp_path):
    hidden = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(8)])
    path = tf.train.Checkpoint(model=hidden).write(str(tmp_path / "encoder"))
    other = toy.experiment(init_checkpoint=path)
    for dry_run in (False, True):
        with pytest.raises(ConfigError, match=saying("model missing 2")) as error:
            runner.run(other, tmp_path / "misspelt", "eval", dry_run=dry_run)
    assert "kernel" in str(error.value)
    assert runner.run(other, tmp_path / "trained", "train")["status"] == "done"


def test_examples_that_a_number_of_batches_leaves_out_are_mentioned_once(tmp_path, capsys):
    two = toy.experiment({"trainer": {"validation_steps": 2}})
    runner.run(two, tmp_path / "two", "train_and_eval")
    said = capsys.readouterr().err
    assert said.count("TrainerConfig.validation_steps = 2 skips") == 1


def test_what_anybody_restores_from_best_scores_what_is_written_beside_it(tmp_path):
    ema = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}
    mirrored = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}
    trained = runner.run(toy.experiment(ema | mirrored), tmp_path / "run", "train_and_eval")
    said = json.loads((tmp_path / "run" / "best" / "info.json").read_text())
    best = tf.train.latest_checkpoint(str(tmp_path / "run" / "best"))
    assert said == {
        **trained["best"]["metrics"],
        "best_ckpt_global_step": trained["best"]["step"],
        "checkpoint": Path(best).name,
    }

    model = toy.ToyTask(toy.ToyConfig()).build_model()
    tf.train.Checkpoint(model=model).restore(best).expect_partial()
    points, labels = toy.data(17)
    assert np.mean(model(points).numpy().argmax(axis=1) == labels) == pytest.approx(
        said["accuracy"], abs=1e-6
    )
    plain = toy.experiment(init_checkpoint=best)
    for config, folder, checkpoint in (
        (plain, "plain", "latest"),  # a task that begins with these weights
        (toy.experiment(ema | mirrored), "run", "best"),
        (toy.experiment(ema), "elsewhere", best),
    ):
        again = runner.run(config, tmp_path / folder, "eval", checkpoint=checkpoint)
        assert again["metrics"] == pytest.approx(trained["best"]["metrics"], abs=1e-6)


def test_a_folder_may_be_called_what_tensorflow_takes_for_a_pattern(tmp_path):
    def config(steps):
        ema = {"train_steps": steps, "optimizer_config": {"ema": {"average_decay": 0.9}}}
        return toy.experiment({"trainer": ema})

    run = tmp_path / "lr=[0.1] a\\b *?"
    finished.run(config(20), run)
    trained = runner.run(config(40), run, "train_and_eval")  # resumed
    for checkpoint in ("best", "20"):
        runner.run(config(40), run, "eval", checkpoint=checkpoint)
    followed = runner.run(config(40), run, "continuous_eval")
    assert followed["metrics"] == trained["metrics"]
    begun = toy.experiment(init_checkpoint=str(run / "best"))
    runner.run(begun, tmp_path / "begun", "eval")
    assert comparison.differing(comparison.compare(run, run)) == {}


def test_a_run_that_only_its_best_averages_are_left_of_goes_on_exactly(tmp_path):
    def config(steps):
        ema = {"train_steps": steps, "optimizer_config": {"ema": {"average_decay": 0.9}}}
        return toy.experiment({"trainer": ema})

    finished.run(config(20), tmp_path / "often")
    for part in (tmp_path / "often").glob("ckpt-20.*"):
        part.unlink()
    runner.run(config(40), tmp_path / "often", "train_and_eval")
    finished.run(config(40), tmp_path / "once")
    parts = comparison.compare(tmp_path / "once", tmp_path / "often")
    assert comparison.differing(parts) == {}


@pytest.mark.parametrize(("evaluates", "trials"), [(True, 0), (False, 1)])
def test_a_misspelt_best_metric_is_refused_before_the_first_step(tmp_path, evaluates, trials):
    trainer = {"best_checkpoint_eval_metric": "acuracy", "recovery_max_trials": trials}
    wrong = toy.experiment({"trainer": trainer})
    mode = "train_and_eval" if evaluates else "train"
    with pytest.raises(ConfigError, match=r"acuracy.*accuracy, validation_loss.*'accuracy'"):
        runner.run(wrong, tmp_path, mode)
    assert not list(tmp_path.glob("ckpt-*"))
    assert not (tmp_path / "train.jsonl").exists()


def test_a_metric_that_the_task_aggregates_itself_is_found_by_a_rehearsal(tmp_path, monkeypatch):
    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda self, state, logs: (state or 0) + 1)
    monkeypatch.setattr(
        toy.ToyTask,
        "reduce_aggregated_logs",
        lambda self, batches, global_step=None: {"counted": {"batches": float(batches)}},
    )
    good = toy.experiment({"trainer": {"best_checkpoint_eval_metric": "counted|batches"}})
    results = runner.run(good, tmp_path, "train_and_eval")
    assert results["best"]["metrics"]["counted/batches"] == 3.0
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["counted"] == {"batches": 3.0}  # as Model Garden nests them
    assert info["counted/batches"] == 3.0
    assert steps(tmp_path / "history.jsonl") == [20, 40]  # the rehearsal left no row


def test_a_task_that_needs_all_of_the_data_is_not_asked_about_one_batch(
    tmp_path, monkeypatch, capsys
):
    asked = []

    def reduce(self, batches, global_step=None):
        asked.append(batches)
        assert batches == 3, f"{batches} lines, 3 wanted"
        return {"batches": float(batches)}

    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda self, state, logs: (state or 0) + 1)
    monkeypatch.setattr(toy.ToyTask, "reduce_aggregated_logs", reduce)
    unwatched = toy.experiment({"trainer": {"best_checkpoint_eval_metric": ""}})
    runner.run(unwatched, tmp_path / "a", "train_and_eval")
    assert asked == [3, 3]
    watched = toy.experiment({"trainer": {"best_checkpoint_eval_metric": "batches"}})
    results = runner.run(watched, tmp_path / "b", "train_and_eval")
    assert results["best"]["metrics"]["batches"] == 3.0
    says(capsys.readouterr().err, "names not checked AssertionError: 1 lines, 3 wanted")


@pytest.mark.parametrize(
    ("kind", "ema"),
    [("adam", {"average_decay": 0.9}), ("adam_experimental", None)],
)
def test_a_changed_learning_rate_takes_effect_on_resume(tmp_path, kind, ema):
    config = {"optimizer": {"type": kind}, "ema": ema}
    short = {"trainer": {"train_steps": 20, "optimizer_config": config}}
    runner.run(toy.experiment(short), tmp_path, "train")
    changed = toy.experiment({"trainer": {"optimizer_config": config}})
    changed.trainer.optimizer_config.learning_rate.constant.learning_rate = 0.002
    runner.run(changed, tmp_path, "train", allow_config_change=True)
    rates = [row["learning_rate"] for row in rows(tmp_path / "train.jsonl")]
    assert rates == pytest.approx([0.01, 0.01, 0.002, 0.002])


def test_training_may_be_followed_by_one_evaluation(tmp_path):
    results = runner.run(toy.experiment(), tmp_path, "train_and_post_eval")
    assert results["step"] == 40
    evaluated = finished.run(toy.experiment(), tmp_path / "evaluated")
    assert results["metrics"] == evaluated["metrics"]
    assert "accuracy" in results["metrics"]
    assert not (tmp_path / "history.jsonl").exists() or not steps(tmp_path / "history.jsonl")


def test_validation_data_without_an_end_need_a_number_of_batches(tmp_path, monkeypatch):
    build_inputs = toy.ToyTask.build_inputs
    monkeypatch.setattr(toy.ToyTask, "build_inputs", lambda *given: build_inputs(*given).repeat())
    with pytest.raises(ConfigError, match=r"are endless: set TrainerConfig\.validation_steps"):
        runner.run(toy.experiment(), tmp_path / "a", "train_and_eval")
    limited = toy.experiment({"trainer": {"validation_steps": 2}})
    assert runner.run(limited, tmp_path / "b", "train_and_eval")["step"] == 40


@dataclasses.dataclass
class Pruning(base_config.Config):
    sparsity: float = 0.5


@dataclasses.dataclass
class PrunedConfig(toy.ToyConfig):
    pruning: Pruning = dataclasses.field(default_factory=Pruning)


@task_factory.register_task_cls(PrunedConfig)
class PrunedTask(toy.ToyTask):
    def build_model(self):
        dense = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
        schedule = tfmot.sparsity.keras.ConstantSparsity(
            self.task_config.pruning.sparsity, 0, frequency=10
        )
        return tfmot.sparsity.keras.prune_low_magnitude(dense, pruning_schedule=schedule)


def test_a_model_is_pruned_as_model_garden_does_and_a_resume_is_exact(tmp_path):
    for name, lengths in (("once", [40]), ("resumed", [20, 40])):
        for length in lengths:
            base = toy.experiment({"trainer": {"train_steps": length}})
            made = toy.config.Experiment(
                task=PrunedConfig(), trainer=base.trainer, runtime=base.runtime
            )
            runner.run(made, tmp_path / name, "train_and_eval")
    once, resumed = (
        tf.train.load_checkpoint(str(tmp_path / name / "ckpt-40")) for name in ("once", "resumed")
    )
    tensors = set(once.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    for name in tensors:
        assert np.array_equal(once.get_tensor(name), resumed.get_tensor(name)), name
    (kernel,) = (name for name in tensors if "kernel/.ATTR" in name)
    assert np.mean(once.get_tensor(kernel) == 0) == 0.5


def test_an_unknown_mode_lists_the_modes(tmp_path):
    listed = ", ".join(table.modes())
    with pytest.raises(ConfigError, match=f"'test': unknown mode.*{listed}"):
        runner.run(toy.experiment(), tmp_path, "test")


def test_actions_see_every_loop_and_evaluation_may_stop_and_are_none_of_the_next_runs(tmp_path):
    seen = []

    def stop(logs):
        return "good enough" if len(seen) >= 1 else seen.append(float(logs["accuracy"]))

    loops = []
    actions = [lambda logs: loops.append(float(logs["training_loss"]))]
    results = runner.run(
        toy.experiment({"trainer": {"train_steps": 80}}),
        tmp_path,
        "train_and_eval",
        train_actions=actions,
        eval_actions=[stop],
    )
    assert results["status"] == "stopped"
    assert results["reason"] == "good enough"
    assert results["step"] == 40
    assert len(loops) == 4
    assert status.read(tmp_path).reason == "good enough"

    second = runner.run(toy.experiment(), tmp_path / "second", "train_and_eval")
    assert second["status"] == "done"
    assert (len(actions), len(loops)) == (1, 4)
    np.testing.assert_equal(results["metrics"], second["metrics"])


def test_too_little_memory_is_said_in_a_line(tmp_path, monkeypatch):
    def huge(self, labels, model_outputs, aux_losses=None):
        size = 2**50 + tf.cast(tf.shape(labels)[0], tf.int64)
        return tf.reduce_mean(model_outputs) + tf.reduce_sum(tf.random.normal([size]))

    monkeypatch.setattr(toy.ToyTask, "build_losses", huge)
    with pytest.raises(RunnerError, match=r"out of memory .*\n.*RunConfig.gradient_accumulation"):
        runner.run(toy.experiment(), tmp_path, "train")


def test_two_mirrored_runs_of_different_models_do_not_mix(tmp_path, monkeypatch):
    spread = {
        "runtime": {"distribution_strategy": "mirrored"},
        "run": {"logical_cpus": 2},
        "trainer": {"train_steps": 10},
    }
    runner.run(toy.experiment(spread), tmp_path / "a", "train")

    def smaller(self):
        return tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])

    monkeypatch.setattr(toy.ToyTask, "build_model", smaller)
    assert runner.run(toy.experiment(spread), tmp_path / "b", "train")["status"] == "done"


def test_a_damaged_image_that_is_met_while_training_is_named_in_one_line(tmp_path):
    image_files.write_folder(tmp_path / "images", {"a/1.png": np.zeros((4, 4, 3), np.uint8)})
    (tmp_path / "images" / "a" / "2.png").write_bytes(b"no image")
    data = {"input_path": str(tmp_path / "images"), "image_size": (4, 4), "split": "all"}
    experiment = toy.experiment()
    experiment.task = image_classification.ImageClassificationConfig(
        train_data=image_data.ImageData(is_training=True, global_batch_size=2, **data),
        validation_data=image_data.ImageData(is_training=False, global_batch_size=2, **data),
    )
    with pytest.raises(ConfigError, match=r"^\S+2\.png [^\n]*image[^\n]*$"):
        runner.run(experiment, tmp_path / "run", "train")
