"""`--mode=predict`, on the toy task: what is in the files, and what becomes of them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import finished
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from pyarrow import csv, parquet
from trainers import MIRRORED
from wording import saying, says

import runner
from runner import inputs
from runner.core import signals
from runner.errors import ConfigError, RunnerError
from runner.evaluation.prediction import predictor, recorder
from runner.run_config import EvaluationSetConfig

FORMATS = ["jsonl", "csv", "npz", "parquet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run that has ended."""
    folder = tmp_path_factory.mktemp("run")
    finished.run(toy.experiment(), folder, "train")
    return folder


def predict(folder, output, made=None, **more):
    return runner.run(made or toy.experiment(), folder, "predict", output=output, **more)


@pytest.fixture
def with_task(monkeypatch):
    def make(kind):
        monkeypatch.setattr(
            "official.core.task_factory.get_task", lambda params, **kw: kind(params, **kw)
        )

    return make


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def expected(folder, step=40, size=17):
    """What the model gives for the toy's points."""
    model = toy.ToyTask(toy.ToyConfig()).build_model()
    path = str(folder / f"ckpt-{step}")
    tf.train.Checkpoint(model=model).read(path).expect_partial()
    return model(toy.data(size)[0]).numpy()


def test_every_example_once_in_order_with_its_index_and_label(trained, tmp_path):
    results = predict(trained, tmp_path / "a.jsonl")

    rows = lines(tmp_path / "a.jsonl")
    assert [row["key"] for row in rows] == list(range(17))
    assert [row["label"] for row in rows] == toy.data(17)[1].tolist()
    np.testing.assert_allclose([row["output"] for row in rows], expected(trained), rtol=1e-5)
    assert results["status"] == "done"
    assert results["output"] == str(tmp_path / "a.jsonl")
    assert (results["examples"], results["predictions"], results["step"]) == (17, 17, 40)
    assert results["examples_per_second"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.info.json"]


def test_the_formats_hold_the_same(trained, tmp_path):
    for name in FORMATS:
        predict(trained, tmp_path / f"a.{name}")
    rows = lines(tmp_path / "a.jsonl")
    arrays = np.load(tmp_path / "a.npz")
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    for name in ("key", "output", "label"):
        values = np.array([row[name] for row in rows])
        assert np.array_equal(values.astype(arrays[name].dtype), arrays[name])  # no digit is lost
        assert np.array_equal(np.array(table[name], arrays[name].dtype), arrays[name])
    assert arrays["output"].dtype == np.float32
    written = csv.read_csv(tmp_path / "a.csv").to_pydict()
    assert written["key"] == arrays["key"].tolist()
    columns = [name for name in written if name.startswith("output")]
    assert np.array_equal(
        np.array([written[name] for name in columns], np.float32).T.reshape(arrays["output"].shape),
        arrays["output"],
    )


def test_the_default_output_is_named_by_step_and_data_in_the_runs_folder(trained):
    results = runner.run(toy.experiment(), trained, "predict", checkpoint="20")
    assert results["output"] == str(trained / "predictions" / "step-20-validation.jsonl")
    rows = lines(Path(results["output"]))
    np.testing.assert_allclose([row["output"] for row in rows], expected(trained, 20), rtol=1e-5)


def test_replicas_give_the_same_in_the_same_order(trained, tmp_path):
    predict(trained, tmp_path / "one.npz")
    predict(trained, tmp_path / "two.npz", toy.experiment(MIRRORED))
    one, two = np.load(tmp_path / "one.npz"), np.load(tmp_path / "two.npz")
    assert np.array_equal(one["key"], two["key"])
    np.testing.assert_allclose(one["output"], two["output"], rtol=1e-5)


def test_named_sets_with_their_share_and_the_test_data(trained, tmp_path):
    data = inputs.DataConfig(is_training=False, global_batch_size=4)
    made = toy.experiment()
    made.run.evaluation_sets = (EvaluationSetConfig(name="part", data=data, share=0.5),)
    made.run.test.data = data
    assert predict(trained, tmp_path / "a.npz", made, data="part")["examples"] == 8
    assert predict(trained, tmp_path / "b.npz", made, data="test")["examples"] == 17
    with pytest.raises(ConfigError, match=saying("data mean part")):
        predict(trained, tmp_path / "c.npz", made, data="parts")
    with pytest.raises(ConfigError, match=saying("test data")):
        predict(trained, tmp_path / "c.npz", data="test")
    with pytest.raises(ConfigError, match=saying("--data=train DataConfig method once")):
        predict(trained, tmp_path / "c.npz", data="train")


def test_averaged_weights_are_used_where_there_are_any(tmp_path, capsys):
    ema = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}
    finished.run(toy.experiment(ema), tmp_path)
    capsys.readouterr()
    predict(tmp_path, tmp_path / "a.npz", toy.experiment(ema))
    predict(tmp_path, tmp_path / "b.npz", toy.experiment(ema), checkpoint="best")
    says(capsys.readouterr().err, "averaged weights")
    found = np.load(tmp_path / "a.npz")["output"]
    assert not np.allclose(found, expected(tmp_path))
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    if info["best_ckpt_global_step"] == 40:
        assert np.array_equal(found, np.load(tmp_path / "b.npz")["output"])


# Stopped and resumed


@pytest.fixture
def one_by_one(monkeypatch):
    """Batches are handed on one by one."""
    monkeypatch.setattr(predictor, "_BYTES", 0)


@pytest.fixture
def at_once(monkeypatch, one_by_one):
    """A part is written after each batch."""
    monkeypatch.setattr(recorder, "_SECONDS", -1.0)


@contextlib.contextmanager
def interrupted_at(monkeypatch, batch, act):
    """Calls `act` when this batch comes."""
    whole, count = recorder.Recorder.take, iter(range(100))

    def take(self, *arguments):
        if next(count) == batch:
            act()
        whole(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(recorder.Recorder, "take", take)
        yield


SLOW = """
import sys, time
sys.path[:0] = sys.argv[1:2]
import toy, runner
from runner.evaluation.prediction import predictor, recorder
from runner.run_config import EvaluationSetConfig
recorder._SECONDS, predictor._BYTES = -1.0, 0
whole = recorder.Recorder.take
recorder.Recorder.take = lambda self, batch: (whole(self, batch), time.sleep(0.3))
made = toy.experiment(validation_examples=300)
runner.run(made, sys.argv[2], "predict", output=sys.argv[3])
"""


def test_killed_it_goes_on_and_ends_with_the_same_bytes(trained, tmp_path):
    made = toy.experiment(validation_examples=300)
    output = tmp_path / "killed.parquet"
    helpers = Path(toy.__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, helpers, trained, output], stderr=subprocess.DEVNULL
    )
    while len(list(tmp_path.glob("killed.parquet.partial/*.arrow"))) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists()
    results = predict(trained, output, made)
    assert results["examples"] == 300
    predict(trained, tmp_path / "once.parquet", made)
    assert output.read_bytes() == (tmp_path / "once.parquet").read_bytes()


@pytest.mark.parametrize("name", ["jsonl", "npz"])
def test_a_signal_ends_it_with_143_and_it_goes_on(
    trained, tmp_path, monkeypatch, one_by_one, capsys, name
):
    with (
        interrupted_at(monkeypatch, 1, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        pytest.raises(signals.Interrupted) as caught,
    ):
        predict(trained, tmp_path / f"a.{name}")
    assert caught.value.exit_code == 143
    assert not (tmp_path / f"a.{name}").exists()
    predict(trained, tmp_path / f"a.{name}")
    assert "continuing after " in capsys.readouterr().err
    predict(trained, tmp_path / f"b.{name}")
    assert (tmp_path / f"a.{name}").read_bytes() == (tmp_path / f"b.{name}").read_bytes()


def test_a_full_disk_is_one_message_and_it_goes_on(trained, tmp_path, monkeypatch, at_once):
    whole = os.fsync

    def full(descriptor):
        if "part-00001" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        whole(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=saying("space part-00001.arrow")):
            predict(trained, tmp_path / "a.jsonl")
    left = sorted(path.name for path in (tmp_path / "a.jsonl.partial").iterdir())
    assert left == ["part-00000.arrow", "progress.json"]
    predict(trained, tmp_path / "a.jsonl")
    assert len(lines(tmp_path / "a.jsonl")) == 17


def begun(trained, output, monkeypatch, made=None):
    """Leaves a part of an output."""

    def fail():
        raise OSError("enough")

    with interrupted_at(monkeypatch, 2, fail), pytest.raises(OSError, match="enough"):
        predict(trained, output, made)
    assert output.with_name(f"{output.name}.partial").is_dir()


def test_what_was_begun_with_something_else_is_refused(trained, tmp_path, monkeypatch, at_once):
    output = tmp_path / "a.jsonl"
    begun(trained, output, monkeypatch)
    with pytest.raises(ConfigError, match=r"(?s)something else:\n  checkpoint: .*ckpt-20\n"):
        predict(trained, output, checkpoint="20")
    with pytest.raises(ConfigError, match=r"task.dropout: 0.5 -> 0.1\n.*overwrite=True"):
        predict(trained, output, toy.experiment(dropout=0.1))
    fewer = toy.experiment()
    fewer.task.validation_data.global_batch_size = 4
    with pytest.raises(ConfigError, match=r"global_batch_size: 8 -> 4\n"):
        predict(trained, output, fewer)
    longer = toy.experiment({"trainer": {"train_steps": 80}})  # is no other prediction
    predict(trained, output, longer)
    assert len(lines(output)) == 17
    with pytest.raises(ConfigError, match=saying("a.jsonl something")):
        predict(trained, output, checkpoint="20")
    predict(trained, output, checkpoint="20", overwrite=True)
    found = [row["output"] for row in lines(output)]
    np.testing.assert_allclose(found, expected(trained, 20), rtol=1e-5)


def first_batch(self, params, input_context=None):
    return toy.ToyTask.build_inputs(self, params, input_context).take(1)


def test_data_that_changed_are_found_out(trained, tmp_path, monkeypatch, at_once, with_task):
    begun(trained, tmp_path / "a.jsonl", monkeypatch)
    points, labels = toy.data(17)
    monkeypatch.setattr(toy, "data", lambda size: (points[::-1].copy(), labels))
    with pytest.raises(ConfigError, match=saying("other data batch 1")):
        predict(trained, tmp_path / "a.jsonl")
    with_task(type("Short", (toy.ToyTask,), {"build_inputs": first_batch}))
    with pytest.raises(ConfigError, match=saying("started data")):
        predict(trained, tmp_path / "a.jsonl")


def test_what_is_complete_is_not_done_again(trained, tmp_path, capsys):
    first = predict(trained, tmp_path / "a.npz")
    written = (tmp_path / "a.npz").stat().st_mtime_ns
    assert predict(trained, tmp_path / "a.npz") == first
    says(capsys.readouterr().err, "already complete")
    assert (tmp_path / "a.npz").stat().st_mtime_ns == written


# Wrong input


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("a.json", "name's jsonl"),
        ("predictions", "format chosen"),
        ("folder.npz", "directory file"),
        ("file.npz/a.npz", "file.npz file"),
        ("file.npz", "exists nothing"),
    ],
)
def test_an_output_that_cannot_be_is_refused(trained, tmp_path, output, said):
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file.npz").write_text("mine")
    with pytest.raises(ConfigError, match=saying(said)):
        predict(trained, tmp_path / output)
    assert (tmp_path / "file.npz").read_text() == "mine"


def another_model():
    return tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])


def test_wrong_checkpoints_are_refused(trained, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=saying("2 checkpoints predict")):
        predict(trained, tmp_path / "a.npz", checkpoint="all")
    with pytest.raises(ConfigError, match=saying("checkpoint predict")):
        predict(tmp_path / "empty", tmp_path / "a.npz")
    shutil.copytree(trained, tmp_path / "run")
    for path in (tmp_path / "run").glob("ckpt-20.data*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunnerError, match="ckpt-20 is damaged"):
        predict(tmp_path / "run", tmp_path / "a.npz", checkpoint="20")
    monkeypatch.setattr(toy.ToyTask, "build_model", lambda self: another_model())
    with pytest.raises((ConfigError, RunnerError), match=saying("written model")):
        predict(trained, tmp_path / "a.npz")
    assert not list(tmp_path.glob("a.npz*"))


def test_nothing_to_predict_is_an_error_that_leaves_nothing(trained, tmp_path):
    with pytest.raises(RunnerError, match=saying("predict empty")):
        predict(trained, tmp_path / "a.npz", toy.experiment(validation_examples=0))
    assert not list(tmp_path.iterdir())


def test_endless_data_are_refused(trained, tmp_path, monkeypatch):
    whole = toy.ToyTask.build_inputs
    monkeypatch.setattr(
        toy.ToyTask, "build_inputs", lambda self, params, context=None: whole(self, params).repeat()
    )
    with pytest.raises(ConfigError, match=saying("validation endless")):
        predict(trained, tmp_path / "a.npz")


def test_flags_of_other_modes_are_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match=saying("output predict")):
        runner.run(toy.experiment(), tmp_path, "train", output="a.npz")


def test_a_dry_run_shows_a_row_and_writes_nothing(trained, tmp_path, capsys):
    predict(trained, tmp_path / "a.npz", dry_run=True)
    says(capsys.readouterr().err, "row 0 output")
    assert not list(tmp_path.iterdir())


# What a task says of its predictions


class Told(toy.ToyTask):
    """A task with all that a task can say."""

    def inference_step(self, inputs, model):
        outputs = model(inputs, training=False)
        return {"logits": outputs, "both": (outputs[:, 0], tf.cast(outputs, tf.bfloat16))}

    def prediction_keys(self, data):
        return [f"group {number // 3}" for number in range(17)]

    def prediction_rows(self, data, examples):
        first = examples["index"] % 3 == 0
        starts = np.flatnonzero(first)
        return {
            "size": np.diff([*starts, len(first)]),
            "logits": {"first": examples["logits"][starts]},
            "names": ["ä" * (number + 1) for number in range(len(starts))],
        }


def test_successive_examples_with_one_key_make_one_row(
    trained, tmp_path, with_task, monkeypatch, at_once
):
    with_task(Told)
    begun(trained, tmp_path / "a.jsonl", monkeypatch)
    for name in FORMATS:
        predict(trained, tmp_path / f"a.{name}")
    rows = lines(tmp_path / "a.jsonl")
    assert [row["key"] for row in rows] == [f"group {number}" for number in range(6)]
    assert [row["size"] for row in rows] == [3, 3, 3, 3, 3, 2]
    arrays = np.load(tmp_path / "a.npz")
    np.testing.assert_allclose(arrays["logits/first"], expected(trained)[::3], rtol=1e-5)
    assert arrays["names"].tolist() == [row["names"] for row in rows]
    found = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["logits"]["first"] for row in found] == arrays["logits/first"].tolist()


class Odd(toy.ToyTask):
    """A task whose outputs are as wide as its batches are long, and whose rows hold much else."""

    def prediction(self, outputs):
        return {"wide": tf.tile(outputs[:, :1], [1, tf.shape(outputs)[0]])}

    def prediction_rows(self, data, examples):
        number = examples["index"].tolist()
        return {
            "wide": examples["wide"],
            "is_odd": [bool(each % 2) for each in number],
            "said": ['"\\\n\x01é', None] * (len(number) // 2) + [""] * (len(number) % 2),
            "words": [["a", "b"][: each % 3] for each in number],
            "whole": np.full(len(number), 3.0),
            "in": {'a "name"': examples["index"].astype(np.uint8), "tiny": [1e-7] * len(number)},
        }


def test_batches_of_other_shapes_and_columns_of_all_kinds_become_json(trained, tmp_path, with_task):
    with_task(Odd)
    predict(trained, tmp_path / "a.jsonl")
    rows = lines(tmp_path / "a.jsonl")
    assert [len(row.pop("wide")) for row in rows] == [8] * 16 + [1]
    assert rows[3] == {
        "key": 3,
        "is_odd": True,
        "said": None,
        "words": [],
        "whole": 3.0,
        "in": {'a "name"': 3, "tiny": 1e-7},
    }
    assert rows[2]["said"] == '"\\\n\x01é'
    assert rows[2]["words"] == ["a", "b"]
    assert '"whole": 3.0, ' in (tmp_path / "a.jsonl").read_text()


def test_outputs_are_fields_by_name_in_whole_precision(trained, tmp_path, with_task):
    with_task(type("Named", (toy.ToyTask,), {"inference_step": Told.inference_step}))
    predict(trained, tmp_path / "a.npz")
    arrays = np.load(tmp_path / "a.npz")
    assert list(arrays) == ["key", "logits", "both/output_0", "both/output_1", "label"]
    assert arrays["both/output_1"].dtype == np.float32
    np.testing.assert_allclose(arrays["both/output_1"], arrays["logits"], rtol=0.01)


def test_what_is_not_finite_is_said(trained, tmp_path, with_task, capsys):
    class Broken(toy.ToyTask):
        def prediction(self, outputs):
            return tf.where(outputs > 1.0, np.nan, outputs)

    with_task(Broken)
    results = predict(trained, tmp_path / "a.jsonl")
    count = int((expected(trained) > 1).any(axis=1).sum())
    assert results["not_finite"] == count > 0
    says(capsys.readouterr().err, f"{count} 17 predictions finite output")
    assert any(None in row["output"] for row in lines(tmp_path / "a.jsonl"))


def has(**methods):
    return type("Wrong", (toy.ToyTask,), methods)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (has(prediction=lambda self, x: tf.reduce_mean(x)), "axis must"),
        (has(prediction=lambda self, x: {}), "returns nothing"),
        (has(prediction=lambda self, x: {"key": x}), "calls key"),
        (
            has(prediction=lambda self, x: x[:3]),
            "output 3 values 8 examples",
        ),
        (has(prediction_keys=lambda self, data: ["a"] * 17), "several rows 'a'"),
        (has(prediction_keys=lambda self, data: range(16)), "returns 16 keys"),
        (has(prediction_keys=lambda self, data: range(18)), "returns 18 keys 17"),
        (has(prediction_keys=lambda self, data: [[1.0]]), "string number"),
        (has(prediction_rows=lambda self, data, x: None), "returns columns"),
    ],
)
def test_what_a_task_may_not_say(trained, tmp_path, with_task, task, said):
    with_task(task)
    with pytest.raises(ConfigError, match=saying(said)):
        predict(trained, tmp_path / "a.npz")
