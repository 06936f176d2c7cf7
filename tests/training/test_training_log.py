import json
import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from tensorboard.backend.event_processing import event_accumulator
from wording import saying

import runner
from runner import inputs, run_config
from runner.core import files, schedule
from runner.errors import ConfigError, RunnerError
from runner.reporting import tensorboard
from runner.run_directory.verification import comparison
from runner.training import training_log

BEST = "best_checkpoint_eval_metric"


class Confusion(tf_keras.metrics.Metric):
    """How often each class was taken for each, [3, 3]."""

    def __init__(self):
        super().__init__(name="confusion")
        self.counts = self.add_weight("counts", (3, 3), initializer="zeros")

    def update_state(self, labels, logits, sample_weight=None):
        self.counts.assign_add(
            tf.math.confusion_matrix(labels, tf.argmax(logits, -1), 3, dtype=tf.float32)
        )

    def result(self):
        return self.counts + 0.0

    def reset_state(self):
        self.counts.assign(tf.zeros((3, 3)))


@pytest.fixture
def drawn(monkeypatch):
    """The toy task counts confusions and draws them; what it was given to draw."""
    given = []
    build_metrics = toy.ToyTask.build_metrics

    def pictures(self, results):
        given.append(dict(results))
        shades = np.uint8(255 * results["confusion"] / results["confusion"].max())
        return {"confusion": np.repeat(shades[..., None], 3, axis=2), "grey": shades[..., None]}

    monkeypatch.setattr(
        toy.ToyTask, "build_metrics", lambda self, training=True: [
            *build_metrics(self, training), Confusion()
        ],
    )  # fmt: skip
    monkeypatch.setattr(toy.ToyTask, "pictures", pictures, raising=False)
    return given


def images(folder, name):
    """Step to picture, of a chart in a run of TensorBoard's."""
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        event.step: tf.io.decode_png(event.encoded_image_string).numpy()
        for event in events.Images(name)
    }


def experiment(overrides=None, *, tests=True):
    data = inputs.DataConfig(is_training=False, global_batch_size=8)
    made = toy.experiment(overrides)
    made.run.evaluation_sets = (run_config.EvaluationSetConfig(name="part", data=data, share=0.5),)
    made.run.test.data = data if tests else None
    return made


def test_the_tasks_pictures_of_every_set_stand_beside_its_charts(tmp_path, drawn):
    runner.run(experiment(), tmp_path, "train_and_eval")
    runner.run(experiment(), tmp_path, "eval")

    assert len(drawn) == 7  # two sets at two steps, the test, and two sets of the evaluator's
    for results in drawn:
        assert results["confusion"].shape == (3, 3)
        assert {"accuracy", "validation_loss"} <= results.keys()
    assert [results["confusion"].sum() for results in drawn[:2]] == [17, 8]
    found = images(tmp_path / "validation", "confusion")
    assert found.keys() == {20, 40}
    counts = drawn[2]["confusion"]
    np.testing.assert_array_equal(found[40][..., 0], np.uint8(255 * counts / counts.max()))
    assert found[40].shape == (3, 3, 3)
    assert images(tmp_path / "sets" / "part", "grey")[20].shape == (3, 3, 1)
    assert len(images(tmp_path / "test", "confusion")) == 1
    assert images(tmp_path / "eval-once", "confusion").keys() == {40}


def test_nothing_is_drawn_without_tensorboard(tmp_path, drawn):
    off = {"run": {"tensorboard": False}}
    assert runner.run(experiment(off), tmp_path, "train_and_eval")["step"] == 40
    assert drawn == []


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (np.zeros((2, 2, 3)), "float64 [2, 2, 3] uint8 [height,"),
        (np.zeros((2, 2), np.uint8), "uint8 [2, 2] expected"),
        (np.zeros((2, 2, 4), np.uint8), "uint8 [2, 2, 4] expected"),
    ],
)
def test_what_is_no_picture_is_named(tmp_path, picture, said):
    board = tensorboard.TensorBoard(tmp_path)
    with pytest.raises(RunnerError, match=saying(f"task's 'x' {said}")):
        board.draw(1, {"x": picture})
    board.close()


def test_results_that_are_no_scalars_stay_out_of_rows_and_are_compared_as_state(tmp_path, drawn):
    runs = [tmp_path / "a", tmp_path / "b"]
    half = experiment({"trainer": {"train_steps": 20}}, tests=False)
    whole = experiment(tests=False)
    runner.run(whole, runs[0], "train_and_eval")
    runner.run(half, runs[1], "train_and_eval")
    seen = []

    results = runner.run(whole, runs[1], "train_and_eval", eval_actions=[seen.append])

    json.dumps(results)
    assert results["metrics"].keys() == {
        "accuracy", "validation_loss", "part/accuracy", "part/loss"
    }  # fmt: skip
    for log in ("history.jsonl", "train.jsonl"):
        assert "confusion" not in (runs[1] / log).read_text()
    assert seen[0]["confusion"].shape == seen[0]["part/confusion"].shape == (3, 3)
    assert not comparison.differing(comparison.compare(*runs))


@pytest.mark.parametrize("mode", ["train_and_eval", "train"])
def test_a_metric_that_is_no_scalar_cannot_be_watched(tmp_path, drawn, mode):
    with pytest.raises(ConfigError, match=saying("confusion produces part/")):
        runner.run(experiment({"trainer": {BEST: "confusion"}}), tmp_path, mode)


@pytest.mark.parametrize("ends", ["flush", "close"])
def test_rows_that_wait_for_others_are_written_when_the_log_is_flushed_or_closed(tmp_path, ends):
    log = training_log.TrainingLog(
        tmp_path, resumed_at=0, clock=lambda: 0.0
    )  # no tenth of a second
    for step in (10, 20, 30):
        log.write(schedule.Loop(step, 10, 0.5, {"loss": tf.constant(step / 4)}, True))
    getattr(log, ends)()
    rows = files.read_json_lines(tmp_path / "train.jsonl")
    assert [(row["step"], row["loss"]) for row in rows] == [(10, 2.5), (20, 5.0), (30, 7.5)]
    assert rows[0]["steps_per_second"] == 20


def test_the_clock_asks_for_points_that_are_no_rows(tmp_path):
    now = [0.0]
    log = training_log.TrainingLog(tmp_path, resumed_at=0, draws_every=5, clock=lambda: now[0])
    for step, now[0] in ((10, 3.0), (20, 6.0), (30, 8.0), (40, 10.0), (50, 12.0), (60, 16.0)):
        logs = {"loss": tf.constant(step / 4)}
        log.write(schedule.Loop(step, 10, 0.5, logs, step == 40))
    assert log.newest == {"loss": 10.0}
    log.close()
    assert [row["step"] for row in files.read_json_lines(tmp_path / "train.jsonl")] == [40]
    events = event_accumulator.EventAccumulator(str(tmp_path / "train")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(20, 5), (40, 10), (60, 15)]
    assert [e.value for e in events.Scalars("steps_per_second")] == [20, 20, 20]


def test_rows_are_handed_over_every_tenth_of_a_second(tmp_path):
    now = [0.0]
    log = training_log.TrainingLog(tmp_path, resumed_at=0, clock=lambda: now[0])
    for step, now[0] in ((10, 0.0), (20, 0.05), (30, 0.11), (40, 0.12)):
        log.write(schedule.Loop(step, 10, 0.5, {"loss": tf.constant(1.0)}, True))
    done = threading.Event()
    log.do(done.set)  # after what was handed over
    assert done.wait(300)
    rows = files.read_json_lines(tmp_path / "train.jsonl")
    assert [row["step"] for row in rows] == [10, 20, 30]
    log.close()
