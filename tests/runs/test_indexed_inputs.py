"""Runs on data in files that are read by index."""

import json

import h5py
import pytest
import tensorflow as tf
import toy
from official.core import input_reader
from resumed import compare
from wording import says

import runner
from runner import inputs
from runner.data import order
from runner.errors import ConfigError, DivergedError, RunnerError
from runner.runs import replay
from runner.runs.call import Call

COUNT = 30
MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}


def parsed(record):
    features = {
        "point": tf.io.FixedLenFeature([4], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return example["point"], tf.cast(example["label"], tf.int32)


class Reads(toy.ToyTask):
    """Reads TFRecords as Model Garden's tasks do, and changes them at random."""

    def build_inputs(self, params, input_context=None):
        def augment(point, label):
            return point + params.is_training * tf.random.normal([4]), label

        reader = input_reader.InputReader(params, decoder_fn=parsed, parser_fn=augment)
        return reader.read(input_context)


def write(folder, *, shards=2, planted=None):
    """Writes examples; that of the number `planted` is far away."""
    folder.mkdir(exist_ok=True)
    points, labels = toy.data(COUNT)
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard}.tfrecord")) as file:
            for number in range(shard * COUNT // shards, (shard + 1) * COUNT // shards):
                scale = 1000 if number == planted else 1
                example = tf.train.Example()
                feature = example.features.feature
                feature["point"].float_list.value.extend(points[number] * scale)
                feature["label"].int64_list.value.append((labels[number] + (scale > 1)) % 3)
                file.write(example.SerializeToString())
    return folder


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **kw: Reads(params))

    def experiment(steps=60, strategy=None, **run):
        path = str(tmp_path / "data" / "*.tfrecord")
        data = toy.cfg.DataConfig(input_path=path, is_training=True, global_batch_size=8)
        sound = str(write(tmp_path / "validation") / "*.tfrecord")
        validation = data.replace(input_path=sound, is_training=False, drop_remainder=False)
        made = toy.experiment(
            {"trainer": {"train_steps": steps}}, train_data=data, validation_data=validation
        )
        made.override(strategy or {})
        made.override({"run": {"inputs": "indexed", **run}})
        return made

    return experiment


def test_a_pipeline_of_the_task_with_random_ops_resumes_exactly_on_replicas(tmp_path, capsys, make):
    write(tmp_path / "data")
    compare(tmp_path, lambda steps: make(steps, MIRRORED))
    says(capsys.readouterr().err, "bit-exact indexed")


def test_a_shard_that_is_missing_or_has_changed_is_named_before_a_resume(tmp_path, make):
    write(tmp_path / "data", shards=3)
    runner.run(make(20), tmp_path / "run", "train")
    (tmp_path / "data" / "train-2.tfrecord").unlink()
    with pytest.raises(ConfigError, match="lack the shard"):
        runner.run(make(40), tmp_path / "run", "train")
    write(tmp_path / "data", shards=3, planted=3)
    with pytest.raises(ConfigError, match=r"train-0\.tfrecord has changed"):
        runner.run(make(40), tmp_path / "run", "train")
    runner.run(make(40), tmp_path / "run", "train", allow_config_change=True)
    (source,) = json.loads((tmp_path / "run" / "inputs.json").read_text())["sources"]
    shards = source["shards"]
    assert [shard["examples"] for shard in shards] == [10, 10, 10]
    # Their order does not depend on the file system.
    assert [shard["name"] for shard in shards] == [f"train-{n}.tfrecord" for n in range(3)]


class Places(toy.ToyTask):
    """Reads TFRecords by index itself."""

    def build_inputs(self, params, input_context=None):
        def parse(records):
            return tf.map_fn(parsed, records, fn_output_signature=(tf.float32, tf.int32))

        source = inputs.source(params.input_path)
        place = inputs.place if params.is_training else inputs.in_order
        return place(source, parse, config=params, input_context=input_context)


def test_a_replay_shows_the_example_with_the_largest_loss_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **kw: Places(params))
    path = str(write(tmp_path / "data", planted=7) / "*.tfrecord")
    data = inputs.DataConfig(input_path=path, is_training=True, global_batch_size=8)
    experiment = toy.experiment(
        {"trainer": {"train_steps": 20}},
        train_data=data,
        validation_data=data.replace(is_training=False),
    )
    runner.run(experiment, tmp_path / "run", "train")
    shuffle = order.Shuffle(COUNT)
    step = next(step for step in range(1, 20) if 7 in shuffle.batch(step - 1, 8))
    replay.replay(Call(None, tmp_path / "run"), (step, step))
    says(capsys.readouterr().err, "example 7 train-0.tfrecord")
    rows = (tmp_path / "run" / "replay" / f"{step}-{step}" / "steps.jsonl").read_text()
    examples = json.loads(rows)["examples"]
    assert len(examples) == 8
    assert examples[0]["index"] == 7


def test_the_examples_of_a_batch_that_breaks_training_are_named(tmp_path, make, capsys):
    write(tmp_path / "data", planted=7)
    experiment = make(40)
    experiment.override({"trainer": {"loss_upper_bound": 20.0, "recovery_max_trials": 0}})
    with pytest.raises(DivergedError):
        runner.run(experiment, tmp_path / "run", "train")
    says(capsys.readouterr().err, "example 7 train-0.tfrecord")


def damage(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def test_a_damaged_record_ends_a_run_or_is_left_out(tmp_path, make, capsys):
    damage(write(tmp_path / "data") / "train-1.tfrecord")
    with pytest.raises(RunnerError, match=r"train-1\.tfrecord: record 14"):
        runner.run(make(20), tmp_path / "run", "train")
    compare(tmp_path, lambda steps: make(steps, max_bad_examples=1))
    says(capsys.readouterr().err, "record 14 damaged skipped")


def test_predictions_name_the_files_of_examples(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    points, labels = toy.data(17)
    with h5py.File(folder / "points.h5", "w") as file:
        file.create_dataset("points", data=points)
        file.create_dataset("labels", data=labels)

    class Places(toy.ToyTask):
        def build_inputs(self, params, input_context=None):
            place = inputs.place if params.is_training else inputs.in_order
            return place(
                inputs.source(folder / "points.h5"),
                lambda row: (row["points"], row["labels"]),
                config=params,
                input_context=input_context,
            )

    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **kw: Places(params))
    experiment = toy.experiment({"trainer": {"train_steps": 10}})
    runner.run(experiment, tmp_path / "run", "train")
    runner.run(experiment, tmp_path / "run", "predict", checkpoint="latest")
    (path,) = (tmp_path / "run" / "predictions").glob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["key"] for row in rows] == list(range(17))
    assert {row["path"] for row in rows} == {str(folder / "points.h5")}
