"""Layers that hold seeds, counters or states: an evaluation changes nothing, a resume is exact."""

from pathlib import Path

import every_layer
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from resumed import state

import runner
from runner.models import examples, sources
from runner.runs import build
from runner.runs.call import Call, Given
from tasks import supervised

STEPS = 4
PARTS = ("train", "validation")
KERAS = pytest.mark.parametrize("name", ["tf_keras", "keras"])


def library(name):
    keras = pytest.importorskip(name)
    tf_keras.backend.experimental.enable_tf_random_generator()
    return keras


def data():
    x = np.random.default_rng(0).uniform(size=(2 * every_layer.SIZE, every_layer.WIDTH))
    return x.astype(np.float32), x.mean(axis=1)


@KERAS
def test_an_evaluation_changes_nothing_of_any_layer(name):
    keras = library(name)
    layers = list(every_layer.holding_state(keras))
    assert {"GRU", "LSTM", "ConvLSTM2D", "RandomFlip"} <= {kind.__name__ for kind, *_ in layers}
    config = runner.load(
        "supervised.gin",
        [
            "RuntimeConfig.distribution_strategy = 'off'",
            "RuntimeConfig.run_eagerly = True",  # a graph of all layers takes a minute to build
            "OptimizerConfig.type = 'sgd'",
            "LrConfig.type = 'constant'",
            "TrainerConfig.train_steps = 1",
            "SupervisedConfig.loss = 'mse'",
            *(f"{part}/SupervisedData.global_batch_size = {every_layer.SIZE}" for part in PARTS),
        ],
    )
    task = supervised.SupervisedTask(config.task)
    read = examples.read(data(), "data")
    task.given = sources.Given(lambda: every_layer.model(keras, layers), read, read)
    call = Call(config, Path("run"), given=Given(task=task))
    trainer, _ = build.build_trainer(call, step=0, evaluates=True)
    trainer.train(tf.constant(1))
    model = getattr(trainer.model, "network", trainer.model)
    held = every_layer.state(model)
    assert len(held) >= len(layers)
    before = [each.numpy().tobytes() for each in held]
    trainer.evaluate(tf.constant(-1))
    after = [each.numpy().tobytes() for each in held]
    names = [each.name for each in held]
    assert [name for name, *two in zip(names, before, after, strict=True) if two[0] != two[1]] == []
    saved = {id(each) for each in tf.train.TrackableView(trainer.checkpoint).descendants()}
    assert not [each.name for each in held if id(each) not in saved]


@KERAS
def test_a_resumed_run_with_evaluations_trains_as_an_undisturbed_one_without(name):
    keras = library(name)
    names = ("GRU", "Dropout", "BatchNormalization")
    layers = list(every_layer.holding_state(keras, [getattr(keras.layers, each) for each in names]))
    assert len(layers) == len(names)

    def build_model():
        model = every_layer.model(keras, layers)
        model.compile(keras.optimizers.SGD(0.01), "mse")
        return model

    def fit(folder, validation=None, **more):
        grid = [
            f"TrainerConfig.{each}_interval = 2" for each in ("checkpoint", "validation", "summary")
        ]
        more |= {"train_steps": STEPS, "batch_size": every_layer.SIZE}
        more |= {"gin_params": [*grid, "RunConfig.seed = 3"]}
        return runner.fit(build_model, data(), validation, model_dir=folder, **more)

    fit("once")
    assert fit("often", data(), train_actions=[lambda logs: "enough"])["step"] == 2
    fit("often", data())
    assert state(Path("often"), STEPS) == state(Path("once"), STEPS)
