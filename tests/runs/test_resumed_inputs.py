"""How a resume reaches its first batch if the checkpoint does not hold the position."""

import json
import signal

import pytest
import tensorflow as tf
import toy
from resumed import compare, state
from wording import saying, says

import runner
from runner.core import signals
from runner.errors import RunnerError
from runner.run_directory.run import Run
from runner.training import input_replay

COUNT = 32  # examples


class Own(toy.ToyTask):
    """Brings a pipeline whose position TensorFlow cannot save, or not completely."""

    kind = "generator"

    def build_inputs(self, params, input_context=None):
        points, labels = toy.data(COUNT)
        if not params.is_training:
            return tf.data.Dataset.from_tensor_slices((points, labels)).batch(8)
        shape = tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64)
        if self.kind == "generator":
            dataset = tf.data.Dataset.from_generator(
                lambda: ((x, int(y)) for x, y in zip(points, labels, strict=True)),
                output_signature=shape,
            )
        else:
            dataset = tf.data.Dataset.from_tensor_slices((points, labels))
        dataset = dataset.shuffle(12).repeat()
        dataset = dataset.map(lambda x, y: (x * 2.0, y))
        if self.kind == "draws":
            dataset = dataset.map(lambda x, y: (x + tf.random.normal([4]), y))
        size = input_context.get_per_replica_batch_size(8) if input_context else 8
        return dataset.batch(size, drop_remainder=True).prefetch(1)


@pytest.fixture(params=["generator", "draws"])
def kind(request, monkeypatch):
    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **kw: Own(params))
    monkeypatch.setattr(Own, "kind", request.param)
    return request.param


def experiment(steps, strategy="off", **run):
    data = toy.cfg.DataConfig(is_training=True, global_batch_size=8)
    made = toy.experiment({"trainer": {"train_steps": steps}, "run": run}, train_data=data)
    made.override({"runtime": {"distribution_strategy": strategy}})
    if strategy == "mirrored":
        made.override({"run": {"logical_cpus": 2}})
    return made


@pytest.mark.parametrize("strategy", ["off", "mirrored"])
def test_records_are_skipped_before_a_map_if_that_is_equivalent(tmp_path, capsys, kind, strategy):
    compare(tmp_path, lambda steps: experiment(steps, strategy))
    said = capsys.readouterr().err
    says(said, "skipping 200 records" if kind == "generator" else "replaying 25 batches")
    assert ("replaying" in said) is (kind == "draws")


def test_a_fresh_shuffle_is_recorded_and_not_bit_exact(tmp_path, capsys, kind):
    own = tmp_path / "own"
    fresh = {"resume_inputs": "fresh_shuffle"}
    runner.run(experiment(60), tmp_path / "once", "train_and_eval")
    runner.run(experiment(25, **fresh), own, "train_and_eval")
    assert not Run(own).not_exact
    capsys.readouterr()
    runner.run(experiment(50, **fresh), own, "train_and_eval")
    said = capsys.readouterr().err
    says(said, "not bit-exact RunConfig.resume_inputs 25")
    assert "replaying" not in said
    assert "skipping" not in said
    rows = [json.loads(line) for line in (own / "history.jsonl").read_text().splitlines()]
    assert [(row["step"], row["batch"]) for row in rows if row["kind"] == "fresh_shuffle"] == [
        (25, 25)
    ]
    runner.run(experiment(60), own, "train_and_eval")  # exact again, from the shuffle on
    says(capsys.readouterr().err, "skipping 200" if kind == "generator" else "replaying 25 batches")
    says(Run(own).attempts[-1]["inexact"], "25 RunConfig.resume_inputs")
    runner.run(None, own, "status")
    says(capsys.readouterr().err, "not bit-exact 25 RunConfig.resume_inputs")
    assert state(tmp_path / "once", 60) != state(own, 60)
    with pytest.raises(RunnerError):
        runner.run(None, None, "compare", runs=[own, tmp_path / "once"])
    says(capsys.readouterr().out, "bit-exact shuffled")


def test_a_fresh_shuffle_resumes_exactly_from_then_on(tmp_path, kind):
    fresh = {"resume_inputs": "fresh_shuffle"}
    for name, ends in (("once", (25, 60)), ("often", (25, 40, 60))):
        for number, steps in enumerate(ends):
            runner.run(
                experiment(steps, **(fresh if number == 1 else {})), tmp_path / name, "train"
            )
    assert state(tmp_path / "once", 60) == state(tmp_path / "often", 60)
    (tmp_path / "often" / "history.jsonl").unlink()
    with pytest.raises(RunnerError, match=saying("history.jsonl new shuffle")):
        runner.run(experiment(70), tmp_path / "often", "train")


def test_inputs_with_a_known_position_are_not_reshuffled(tmp_path, capsys):
    def made(steps):
        found = toy.experiment({"trainer": {"train_steps": steps}})
        found.override({"run": {"resume_inputs": "fresh_shuffle"}})
        return found

    compare(tmp_path, made)
    says(capsys.readouterr().err, "bit-exact indexed")


@pytest.mark.parametrize("kind", ["draws"], indirect=True)
def test_a_signal_ends_a_replay(tmp_path, monkeypatch, kind):
    runner.run(experiment(25), tmp_path, "train")
    before, run = state(tmp_path, 25), input_replay.InputReplay.run

    def interrupted(self, draw, *, is_halted):
        signal.raise_signal(signal.SIGTERM)
        run(self, draw, is_halted=is_halted)
        assert self.batches > 20

    monkeypatch.setattr(input_replay.InputReplay, "run", interrupted)
    with pytest.raises(signals.Interrupted):
        runner.run(experiment(60), tmp_path, "train")
    assert Run(tmp_path).step == 25
    assert state(tmp_path, 25) == before
