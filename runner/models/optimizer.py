"""The optimizer, built by Model Garden's factory, and its wrappers: loss scale, moving averages."""

import copy

import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions, train_utils
from official.modeling import optimization

from runner.internals import keras as keras_internals
from runner.internals import official as official_internals
from runner.models import adafactor, keras_optimizers


def build(
    task: base_task.Task, config: config_definitions.ExperimentConfig
) -> tf_keras.optimizers.Optimizer:
    """The optimizer that `config` describes, with a loss scale if float16 needs one."""
    options = config.trainer.optimizer_config
    if keras_optimizers.is_used(options):
        return keras_optimizers.build(task, config)
    if (converted := adafactor.converted(options)) is not options:
        config, trainer = copy.copy(config), copy.copy(config.trainer)
        vars(trainer)["optimizer_config"] = converted
        vars(config)["trainer"] = trainer
    return train_utils.create_optimizer(task, config)


def innermost(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """The optimizer that updates weights, inside a loss scale and moving averages."""
    return _layers(optimizer)[-1]


def average(
    optimizer: tf_keras.optimizers.Optimizer | None,
) -> optimization.ExponentialMovingAverage | None:
    """The moving average in `optimizer`, also inside a loss scale, or None if there is none."""
    for layer in _layers(optimizer):
        if isinstance(layer, optimization.ExponentialMovingAverage):
            return layer
    return None


def variables(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """Slots, averages, counters and learning rates of the optimizer and those it wraps."""
    found: dict[object, tf.Variable] = {}
    for layer in _layers(optimizer):
        own = layer.variables
        found.update({v.ref(): v for v in (own() if callable(own) else own)})
    return list(found.values())


def create_variables(optimizer: tf_keras.optimizers.Optimizer, model: tf_keras.Model) -> None:
    """Creates the variables of the first step early. Call it in the strategy's scope."""
    keras_internals.create_variables(innermost(optimizer), model.trainable_variables)


def _layers(
    optimizer: tf_keras.optimizers.Optimizer | None,
) -> list[tf_keras.optimizers.Optimizer]:
    """The optimizer and those it wraps, outermost first."""
    layers = []
    while optimizer is not None:
        layers.append(optimizer)
        if isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        elif isinstance(optimizer, optimization.ExponentialMovingAverage):
            optimizer = official_internals.averaged(optimizer)
        else:
            optimizer = None
    return layers
