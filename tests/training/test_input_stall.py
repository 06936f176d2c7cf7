import itertools
import json
import time

import pytest
import tensorflow as tf
import toy
from wording import says

import runner
from runner.run_directory.verification import comparison
from runner.training import input_stall

MODES = {
    "in a loop": {},
    "step by step": {"trainer": {"train_tf_while_loop": False}},
    "eagerly": {"trainer": {"train_tf_while_loop": False, "train_tf_function": False}},
    "on two replicas": {
        "runtime": {"distribution_strategy": "mirrored"},
        "run": {"logical_cpus": 2},
    },
}


def paused(x, seconds):
    """`x`, later."""
    y = tf.numpy_function(lambda value: (time.sleep(seconds), value)[1], [x], x.dtype)
    y.set_shape(x.shape)
    return y


@pytest.fixture
def slow(monkeypatch):
    """Makes the toy task's inputs, or its steps, take longer."""

    def make(*, inputs=0.0, step=0.0):
        build_inputs, train_step = toy.ToyTask.build_inputs, toy.ToyTask.train_step

        def slow_inputs(self, params, input_context=None):
            dataset = build_inputs(self, params, input_context)
            return dataset.map(lambda x, y: (paused(x, inputs), y))

        def slow_step(self, batch, *args, **kwargs):
            x, y = batch
            return train_step(self, (paused(x, step), y), *args, **kwargs)

        if inputs:
            monkeypatch.setattr(toy.ToyTask, "build_inputs", slow_inputs)
        if step:
            monkeypatch.setattr(toy.ToyTask, "train_step", slow_step)

    return make


@pytest.fixture(autouse=True)
def sampled_at_once(monkeypatch):
    """From the first step on, eight steps a sample; an idle machine, and each second counts."""
    for name, value in {"_FIRST": 0.0, "_EVERY": 0.0, "_STEPS": 8, "_COSTLY": 1.0}.items():
        monkeypatch.setattr(input_stall, name, value)
    monkeypatch.setattr(input_stall, "processor_times", processors(idle=0.5))


def processors(*, idle):
    """What the machine's processors tell, idle for that share of the time."""
    times = itertools.count(1)
    return lambda: ((now := next(times)) * idle, now)


def experiment(steps, overrides=None):
    made = toy.experiment(overrides)
    made.override({
        "trainer": {"train_steps": steps, "summary_interval": 20, "checkpoint_interval": 1000},
        "run": {"tensorboard": False},
    })  # fmt: skip
    return made


def rows(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("mode", MODES)
def test_the_share_of_training_that_waits_for_inputs_is_in_the_rows(tmp_path, slow, mode, capsys):
    slow(inputs=0.3 if mode == "eagerly" else 0.05)  # an eager step takes long
    runner.run(experiment(20, MODES[mode]), tmp_path, "train")
    assert all(0.3 < row["input_wait"] <= 1 for row in rows(tmp_path))
    said = capsys.readouterr().err
    assert said.count("training waits") == 1
    says(said, "min run RuntimeConfig.dataset_num_private_threads")


@pytest.mark.parametrize("why", ["costs little", "machine busy"])
def test_waiting_that_nobody_could_save_is_told_in_the_rows_alone(
    tmp_path, slow, monkeypatch, why, capsys
):
    slow(inputs=0.02)
    if why == "costs little":
        monkeypatch.setattr(input_stall, "_COSTLY", 60.0)
    else:
        monkeypatch.setattr(input_stall, "processor_times", processors(idle=0.1))
    runner.run(experiment(100), tmp_path, "train")
    assert rows(tmp_path)[-1]["input_wait"] > 0.3
    assert "training waits" not in capsys.readouterr().err


def test_the_processors_of_this_machine_tell_how_idle_they_were(monkeypatch):
    monkeypatch.undo()
    idle, total = input_stall.processor_times()
    assert 0 < idle < total


def test_training_that_waits_for_nothing_is_told_nothing(tmp_path, slow, capsys):
    slow(step=0.05)
    runner.run(experiment(40), tmp_path, "train")
    assert rows(tmp_path)[-1]["input_wait"] < 0.3
    assert "training waits" not in capsys.readouterr().err


def test_a_run_too_short_for_a_sample_has_no_share(tmp_path, monkeypatch):
    monkeypatch.setattr(input_stall, "_FIRST", 1000.0)
    runner.run(experiment(20), tmp_path, "train")
    assert all("input_wait" not in row for row in rows(tmp_path))


def test_steps_that_are_timed_train_the_same(tmp_path, monkeypatch):
    for first in (0.0, 1000.0):
        monkeypatch.setattr(input_stall, "_FIRST", first)
        runner.run(experiment(40), tmp_path / str(first), "train")
    parts = comparison.compare(tmp_path / "0.0", tmp_path / "1000.0")
    assert parts
    assert not comparison.differing(parts)


def test_the_share_is_a_time_and_no_part_of_what_is_compared():
    both = [[{"step": 10, "training_loss": 1.0, "input_wait": share}] for share in (0.1, 0.9)]
    assert not comparison.compare_rows("rows", *both).differences
