"""Repeated steps find flipped bits, and change nothing else."""

import random

import numpy as np
import pytest
import tensorflow as tf
import toy
from resumed import rows, state
from wording import saying, says

import runner
from runner.errors import CorruptionError
from runner.run_directory.run import Run
from runner.training import recheck

STRATEGIES = {
    "off": {"runtime": {"distribution_strategy": "off"}},
    "mirrored": {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}},
    "bfloat16": {"runtime": {"mixed_precision_dtype": "bfloat16"}},
    "accumulation": {"run": {"gradient_accumulation": 2}},
}


def experiment(every=7, strategy="off", **run):
    ema = {"optimizer_config": {"ema": {"average_decay": 0.9}}}
    made = toy.experiment({"trainer": ema, "run": {"recheck_every": every, **run}})
    made.override(STRATEGIES[strategy])
    return made


def flips(monkeypatch, at, *, times=1, chance=random.Random(0)):  # noqa: B008
    """Flips one bit of what an execution of a step has left, at the repetitions numbered `at`."""
    whole, done = recheck.Recheck.run, []

    def run(self, step):
        calls = []

        def struck():
            result = step()
            calls.append(1)
            if len(calls) == which:
                variable = self._variables[chance.choice(range(len(self._variables)))]
                if variable.shape.num_elements():
                    variable.assign(flipped(variable, chance))
                    done.append(variable.name)
            return result

        which = chance.choice((1, 2)) if len(numbers) in at and len(done) < times else 0
        numbers.append(1)
        return whole(self, struck)

    numbers = []
    monkeypatch.setattr(recheck.Recheck, "run", run)
    return done


def flipped(variable, chance):
    value = np.atleast_1d(np.array(variable.read_value()))
    if value.dtype == bool:
        value[chance.randrange(value.size)] ^= True
    else:
        raw = value.view(np.uint8).reshape(-1)
        raw[chance.randrange(raw.size)] ^= 1 << chance.randrange(8)
    return tf.constant(value.reshape(variable.shape.as_list()), variable.dtype)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rechecked_training_has_the_same_bits(tmp_path, strategy):
    for name, every in (("never", 0), ("some", 7), ("all", 1)):
        runner.run(experiment(every, strategy), tmp_path / name, "train_and_eval")
    for name in ("some", "all"):
        assert state(tmp_path / name, 40) == state(tmp_path / "never", 40)
        for file in ("train.jsonl", "history.jsonl"):
            assert rows(tmp_path / name / file) == rows(tmp_path / "never" / file)
        assert not Run(tmp_path / name).corruptions


@pytest.mark.parametrize("seed", range(6))
def test_every_flipped_bit_is_found(tmp_path, monkeypatch, seed):
    done = flips(monkeypatch, (seed % 3,), chance=random.Random(seed))
    with pytest.raises(CorruptionError, match=saying("other bits")):
        runner.run(experiment(), tmp_path, "train_and_eval")
    (name,) = done
    (found,) = Run(tmp_path).corruptions
    assert found.found == 7 * (1 + seed % 3)
    assert name.partition(":")[0] in found.reason
    assert all(step <= found.step for step in Run(tmp_path).checkpoints.values())


def test_a_run_goes_back_and_ends_like_an_undisturbed_one(tmp_path, monkeypatch, capsys):
    runner.run(experiment(), tmp_path / "once", "train_and_eval")
    assert flips(monkeypatch, (3,)) == []
    runner.run(experiment(on_corruption="roll_back"), tmp_path / "struck", "train_and_eval")
    says(capsys.readouterr().err, "28 bits 20")
    (found,) = Run(tmp_path / "struck").corruptions
    assert (found.step, found.found) == (20, 28)
    assert state(tmp_path / "struck", 40) == state(tmp_path / "once", 40)
    assert rows(tmp_path / "struck" / "train.jsonl") == rows(tmp_path / "once" / "train.jsonl")
    runner.run(None, tmp_path / "struck", "status")
    says(capsys.readouterr().err, "faulty 28")


def test_a_step_that_fails_again_ends_the_run(tmp_path, monkeypatch):
    flips(monkeypatch, range(9), times=9)
    with pytest.raises(CorruptionError):
        runner.run(experiment(28, on_corruption="roll_back"), tmp_path, "train_and_eval")
    assert [row.found for row in Run(tmp_path).corruptions] == [28, 28]
    monkeypatch.undo()
    runner.run(experiment(28), tmp_path, "train_and_eval")  # on other hardware
    assert Run(tmp_path).step == 40


def test_steps_that_cannot_be_repeated_are_named(tmp_path, monkeypatch, capsys):
    step = toy.ToyTask.train_step

    def noisy(self, inputs, model, optimizer, metrics=None):
        points, labels = inputs
        points += tf.random.normal(tf.shape(points))
        return step(self, (points, labels), model, optimizer, metrics)

    monkeypatch.setattr(toy.ToyTask, "train_step", noisy)
    runner.run(experiment(), tmp_path, "train")
    says(capsys.readouterr().err, "RunConfig.recheck_every RandomStandardNormal")
