"""Repeated steps find flipped bits, and change nothing else."""

import random

import flips
import pytest
import tensorflow as tf
import toy
from resumed import rows, state
from several_workers import Workers
from wording import saying, says

import runner
from runner.errors import CorruptionError
from runner.run_directory.run import Run

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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rechecked_training_has_the_same_bits(tmp_path, strategy):
    for name, every in (("never", 0), ("some", 7), ("all", 1)):
        runner.run(experiment(every, strategy), tmp_path / name, "train_and_eval")
    for name in ("some", "all"):
        assert state(tmp_path / name, 40) == state(tmp_path / "never", 40)
        for file in ("train.jsonl", "history.jsonl"):
            assert rows(tmp_path / name / file) == rows(tmp_path / "never" / file)
        assert not Run(tmp_path / name).corruptions


def test_a_model_with_embeddings_and_attention_repeats_its_steps(tmp_path):
    values = {
        **{"EpochsConfig.train": 0, "TrainerConfig.train_steps": 8},
        **{"EpochsConfig.validation_interval": 0, "TrainerConfig.validation_interval": 8},
        "ModelConfig.type": "bert_spc",
    }
    for name, every in (("never", 0), ("all", 1)):
        bindings = [f"{key} = {value!r}" for key, value in values.items()]
        bindings.append(f"RunConfig.recheck_every = {every}")
        made = runner.load(["aspects_tiny_bert.gin"], bindings)
        runner.run(made, tmp_path / name, "train_and_eval")
    assert state(tmp_path / "all", 8) == state(tmp_path / "never", 8)
    assert not Run(tmp_path / "all").corruptions


@pytest.mark.parametrize("seed", range(6))
def test_every_flipped_bit_is_found(tmp_path, seed):
    struck = flips.Flips([seed % 3], random.Random(seed))
    with struck, pytest.raises(CorruptionError, match=saying("other bits")):
        runner.run(experiment(), tmp_path, "train_and_eval")
    (flip,) = struck.done
    (found,) = Run(tmp_path).corruptions
    assert flip.is_found
    assert found.found == 7 * (1 + seed % 3)
    assert flip.variable in found.reason
    assert all(step <= found.step for step in Run(tmp_path).checkpoints.values())


@pytest.mark.parametrize("only", ["dense", "beta_2"])  # a weight, and a constant of the optimizer
def test_a_run_goes_back_and_ends_like_an_undisturbed_one(tmp_path, capsys, only):
    runner.run(experiment(), tmp_path / "once", "train_and_eval")
    with flips.Flips([3], random.Random(0), only=only):
        runner.run(experiment(on_corruption="roll_back"), tmp_path / "struck", "train_and_eval")
    says(capsys.readouterr().err, "28 bits 20")
    (found,) = Run(tmp_path / "struck").corruptions
    assert (found.step, found.found) == (20, 28)
    assert state(tmp_path / "struck", 40) == state(tmp_path / "once", 40)
    assert rows(tmp_path / "struck" / "train.jsonl") == rows(tmp_path / "once" / "train.jsonl")
    runner.run(None, tmp_path / "struck", "status")
    says(capsys.readouterr().err, "faulty 28")


def test_what_was_found_between_two_rows_is_not_forgotten(tmp_path):
    made = experiment(1, on_corruption="roll_back")
    made.override({"trainer": {"steps_per_loop": 5, "summary_interval": 20}})
    with flips.Flips([32], random.Random(0)):
        runner.run(made, tmp_path, "train")
    (found,) = Run(tmp_path).corruptions
    assert (found.step, found.found) == (20, 33)


def test_a_step_that_fails_again_ends_the_run(tmp_path):
    with flips.Flips(range(9), random.Random(0)), pytest.raises(CorruptionError):
        runner.run(experiment(28, on_corruption="roll_back"), tmp_path, "train_and_eval")
    assert [row.found for row in Run(tmp_path).corruptions] == [28, 28]
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


FLIPPING = """
import random
from pathlib import Path

import flips

FlipsConfig, FlipsTask = flips.FlipsConfig, flips.FlipsTask
if Path("struck").exists():
    flips.Flips([4], random.Random(0)).__enter__()
"""
GIN = """
from __gin__ import dynamic_registration
import flipping
include 'base.gin'

Experiment.task = @flipping.FlipsConfig()
TrainerConfig.train_steps = 60
TrainerConfig.checkpoint_interval = 20
TrainerConfig.steps_per_loop = 10
OptimizerConfig.type = 'adam'
LrConfig.type = 'constant'
RunConfig.recheck_every = 10
RunConfig.on_corruption = 'roll_back'
RuntimeConfig.distribution_strategy = 'multi_worker_mirrored'
"""


def test_several_workers_repeat_a_step_together(tmp_path):
    where = {0: tmp_path / "chief", 1: tmp_path / "other"}
    for folder in where.values():
        folder.mkdir()
        (folder / "flipping.py").write_text(FLIPPING)
        (folder / "flipping.gin").write_text(GIN)
    ends = []
    for name, struck in (("once", ()), ("first", (0,)), ("second", (1,))):
        for index, folder in where.items():
            (folder / "struck").touch() if index in struck else None
        flags = (tmp_path / "log", "train", tmp_path / name, "--gin_file=flipping.gin")
        with Workers(*flags, digits=False, where=where) as workers:
            assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
        for index in struck:
            (where[index] / "struck").unlink()
            (found,) = Run(tmp_path / name).corruptions
            assert found.found == 50
            assert f"of worker {index}" in found.reason
        ends.append(state(tmp_path / name, 60))
    assert ends[0] == ends[1] == ends[2]
