"""Recomputes statistics of batch normalization for weights that no training step had."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from runner.errors import RunnerError
from runner.evaluation import evaluator
from runner.internals import keras as keras_internals


def recompute(built: evaluator.Evaluator, inputs: Callable[[], Any], batches: int) -> bool:
    """Sets the statistics in a model's layers to the means over some batches of training data.

    Each layer's statistics are those of the batches that pass through the current weights in
    training mode. All batches have equal weight, as in the paper on SWA (Izmailov et al. 2018).
    Frozen layers keep their statistics.

    Args:
        built: Holds the weights.
        inputs: Creates distributed training data, in the strategy's scope. Called only if the model
            has such layers.
        batches: The number of batches to use, from the start.

    Returns:
        Whether there were any such layers.

    Raises:
        RunnerError: the training data ended.
    """
    found = list(_statistics(built.model))
    if not found:
        return False
    with built.strategy.scope():
        iterator = iter(inputs())
    totals = [np.zeros(variable.shape, np.float64) for variable, _ in found]
    step = tf.function(_step)
    for _ in range(batches):
        for variable, _ in found:  # starting at 0, an update is the share of the batch's value
            variable.assign(tf.zeros_like(variable))
        try:
            step(built, next(iterator))
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            raise RunnerError(
                f"the training data ended before {batches} batches, which the statistics of batch "
                "normalization are computed from (WeightMeanConfig.batches)"
            ) from error
        for total, (variable, share) in zip(totals, found, strict=True):
            total += np.asarray(variable.read_value(), np.float64) / share
    for total, (variable, _) in zip(totals, found, strict=True):
        variable.assign(tf.cast(total / batches, variable.dtype))
    return True


def _statistics(model: Any) -> Iterator[tuple[tf.Variable, float]]:
    """Yields each moving mean and variance that training updates, and a batch's share in it."""
    for layer in (*keras_internals.layers(model), *getattr(model, "inner_layers", ())):
        momentum = getattr(layer, "momentum", None)
        if not isinstance(momentum, float) or momentum == 1 or not layer.trainable:
            continue
        for name in ("moving_mean", "moving_variance"):
            if (variable := getattr(layer, name, None)) is not None:
                inner = getattr(variable, "value", None)  # in Keras 3
                yield (variable if callable(inner) or inner is None else inner), 1 - momentum


def _step(built: evaluator.Evaluator, batch: Any) -> None:
    """A training step that updates no weight."""

    def replica_step(inputs: Any) -> None:
        built.task.train_step(inputs, model=built.model, optimizer=_Still(), metrics=[])

    built.strategy.run(replica_step, args=(batch,))


class _Still:
    """An optimizer that changes nothing."""

    def apply_gradients(self, gradients: Any, *_: Any, **__: Any) -> None:
        """Consumes the gradients without applying them."""
        list(gradients)
