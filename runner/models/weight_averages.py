"""The moving averages of a model's weights, swapped in by copying."""

import contextlib
from collections.abc import Iterable, Iterator

import tensorflow as tf
import tf_keras
from official.modeling import optimization

from runner.internals import keras as keras_internals


class Averages:
    """The averages in Model Garden's optimizer, swapped with the weights for an evaluation.

    Model Garden's own swap adds and subtracts (a + b - b), which changes bits, and does not work
    without a strategy. A third set of variables keeps the weights during an evaluation.

    Args:
        optimizer: Model Garden's moving average.
        model: A built model. The averages start as a copy of its weights.
    """

    def __init__(
        self, optimizer: optimization.ExponentialMovingAverage, model: tf_keras.Model
    ) -> None:
        if not optimizer.has_shadow_copy:
            optimizer.shadow_copy(model)
        slots = [(v, _average(optimizer, v)) for v in keras_internals.variables(model)]
        averaged = [(variable, slot) for variable, slot in slots if slot is not None]
        self._weights = _components(variable for variable, _ in averaged)
        self._averages = _components(slot for _, slot in averaged)
        self._kept = _components(
            tf.Variable(variable, trainable=False, name="kept") for variable, _ in averaged
        )
        self.start()

    @tf.function(autograph=False)
    def start(self) -> None:
        """Sets the averages to the current weights."""
        _copy(self._weights, self._averages)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """A context in which the model has the averages. Its weights return bit-exactly."""
        self._swap_in()
        try:
            yield
        finally:
            self._swap_out()

    @tf.function(autograph=False)
    def _swap_in(self) -> None:
        _copy(self._weights, self._kept)
        _copy(self._averages, self._weights)

    @tf.function(autograph=False)
    def _swap_out(self) -> None:
        _copy(self._kept, self._weights)


def _average(
    optimizer: optimization.ExponentialMovingAverage, variable: tf.Variable
) -> tf.Variable | None:
    """The average of a variable, or None if it is not averaged."""
    try:
        return optimizer.get_slot(variable, "average")
    except KeyError:
        return None


def _components(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """The variables of each replica. A copy between them needs no reduction."""
    strategy = tf.distribute.get_strategy()
    return [part for v in variables for part in strategy.experimental_local_results(v)]


def _copy(sources: list[tf.Variable], targets: list[tf.Variable]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.assign(tf.cast(source, target.dtype))
