"""The current learning rate: the scheduled one times a scale, which decisions lower."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.models import optimizer as optimizers


class ScaledRate(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule times a scale: max(scale * scheduled, min(scheduled, floor)).

    Attributes:
        scale: Initially 1. It is derived from the history and not saved.

    Args:
        scheduled: A schedule.
        floor: The scale does not lower the learning rate below it, but the schedule may.
    """

    def __init__(
        self,
        scheduled: tf_keras.optimizers.schedules.LearningRateSchedule,
        floor: float = 0.0,
    ) -> None:
        super().__init__()
        self.scheduled = scheduled
        self._in_graph = tf_internals.converted(scheduled)
        self._floor = floor
        self.scale = tf.Variable(1.0, trainable=False, name="learning_rate_scale")

    @tf.autograph.experimental.do_not_convert
    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate at `step`."""
        return _scaled(self._in_graph(step), self.scale, self._floor)

    def get_config(self) -> dict[str, Any]:
        """The schedule's Keras configuration."""
        return {"scheduled": self.scheduled, "floor": self._floor}


class ScaledConstant:
    """A constant learning rate times a scale, kept in the optimizer's variable.

    Steps therefore need no computation for it.

    Args:
        variable: The optimizer's variable.
        floor: As for `ScaledRate`.

    Attributes:
        configured: The configured learning rate.
        chosen: The configured learning rate, unless other code, such as a callback, has set
            another.
        included: The scale at that time, which `chosen` already includes.
    """

    def __init__(self, variable: tf.Variable, floor: float = 0.0) -> None:
        self._variable = variable
        self._floor = floor
        self.configured = float(variable.numpy())
        self.chosen, self.included = self.configured, 1.0
        self._scale, self._assigned = 1.0, self.configured

    @property
    def rate(self) -> float:
        """The learning rate that the scale multiplies."""
        return self.chosen / self.included

    def assign(self, scale: float) -> None:
        """Sets the scale. Must be repeated after a restore."""
        is_chosen = scale == self.included  # its exact value, which the floor does not raise
        value = self.chosen if is_chosen else _scaled(self.rate, scale, self._floor)
        self._variable.assign(value)
        self._scale, self._assigned = scale, float(self._variable.numpy())

    def changed(self) -> bool:
        """Takes over a learning rate that other code has set since the last call, if any."""
        found = float(self._variable.numpy())
        if found == self._assigned:
            return False
        self.chosen, self.included, self._assigned = found, self._scale, found
        return True


Scale: TypeAlias = "tf.Variable | ScaledConstant"
"""The factor that decisions apply to a learning rate, initially 1. It has `assign`."""


def scale_rate(optimizer: tf_keras.optimizers.Optimizer, floor: float = 0.0) -> Scale:
    """Adds a scale to the optimizer's learning rate. Call it before the first step.

    Args:
        optimizer: Built by Model Garden's factory.
        floor: The scale does not lower the learning rate below it.

    Returns:
        The scale.
    """
    inner = optimizers.innermost(optimizer)
    rate = keras_internals.learning_rate(inner)
    if isinstance(rate, tf.Variable):
        return ScaledConstant(rate, floor)
    scaled = ScaledRate(rate, floor)
    keras_internals.set_schedule(inner, scaled)
    return scaled.scale


def scheduled(optimizer: tf_keras.optimizers.Optimizer, scale: Scale, step: int) -> float:
    """The learning rate at a step without its scale, which `scale_rate` returned."""
    if isinstance(scale, ScaledConstant):
        return scale.rate
    (rate,) = rates(optimizer, [step])
    return rate


def current(optimizer: tf_keras.optimizers.Optimizer, step: int) -> float:
    """The learning rate at a step, with its scale."""
    return _at(keras_internals.learning_rate(optimizers.innermost(optimizer)), step)


def rates(optimizer: tf_keras.optimizers.Optimizer, steps: Sequence[int]) -> list[float]:
    """The schedule's learning rates at some steps, without the scale."""
    rate = keras_internals.learning_rate(optimizers.innermost(optimizer))
    rate = rate.scheduled if isinstance(rate, ScaledRate) else rate
    return [_at(rate, step) for step in steps]


def _at(rate: Any, step: int) -> float:
    if isinstance(rate, tf.Variable):  # with several replicas, `float` does not accept it
        return float(rate.numpy())
    return float(rate(tf.constant(step, tf.int64)))


class Constants:
    """The constant learning rates and the like of an optimizer, as they are configured.

    Keras saves them as variables. A restore would bring back the rate of an earlier attempt.

    Args:
        optimizer: The optimizer, with its variables, before the first step.

    Attributes:
        since: The step at which this attempt began. Its own checkpoints are later.
    """

    def __init__(self, optimizer: tf_keras.optimizers.Optimizer) -> None:
        found = keras_internals.constants(optimizers.innermost(optimizer))
        self._values = [(variable, variable.numpy()) for variable in found]
        self.since = -1

    @contextlib.contextmanager
    def restored(self, step: int) -> Iterator[None]:
        """A context in which a checkpoint is restored. One of an earlier attempt changes nothing.

        Args:
            step: The step of the checkpoint.
        """
        yield
        for variable, value in self._values if step <= self.since else ():
            variable.assign(value)


@tf.autograph.experimental.do_not_convert
def _scaled(rate: Any, scale: Any, floor: float) -> tf.Tensor:
    rate = tf.cast(rate, tf.float32)
    scaled = scale * rate
    return tf.maximum(scaled, tf.minimum(rate, floor)) if floor else scaled
