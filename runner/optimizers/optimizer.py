"""The optimizer, built by official's factory, and the averaged weights it may carry."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions, train_utils
from official.modeling import optimization


def build(
    task: base_task.Task, config: config_definitions.ExperimentConfig
) -> tf_keras.optimizers.Optimizer:
    """The optimizer that `config` describes, with a loss scale where float16 needs one."""
    return train_utils.create_optimizer(task, config)


class ScaledRate(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule times a scale that decisions set: max(scale * scheduled, min(scheduled, floor)).

    Attributes:
        scale: 1 at first; it follows from history and is not saved.

    Args:
        scheduled: A schedule.
        floor: What the scale does not take the rate below; the schedule itself may.
    """

    def __init__(
        self,
        scheduled: tf_keras.optimizers.schedules.LearningRateSchedule,
        floor: float = 0.0,
    ) -> None:
        super().__init__()
        self._scheduled = scheduled
        self._floor = floor
        self.scale = tf.Variable(1.0, trainable=False, name="learning_rate_scale")

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate in force at `step`."""
        return _scaled(self._scheduled(step), self.scale, self._floor)

    def get_config(self) -> dict[str, Any]:
        """Keras's description of it."""
        return {"scheduled": self._scheduled, "floor": self._floor}


class ScaledConstant:
    """The same of a constant rate, in the variable that holds it: a step has nothing to compute.

    Args:
        variable: The optimizer's.
        floor: As `ScaledRate`'s.
    """

    def __init__(self, variable: tf.Variable, floor: float = 0.0) -> None:
        self._variable = variable
        self._rate = variable.numpy()
        self._floor = floor

    def assign(self, scale: float) -> None:
        """Sets the scale; to be done anew after a restore."""
        self._variable.assign(_scaled(self._rate, scale, self._floor))


Scale: TypeAlias = "tf.Variable | ScaledConstant"
"""What decisions multiply a rate by, 1 at first; it has `assign`."""


def _scaled(rate: Any, scale: Any, floor: float) -> tf.Tensor:
    rate = tf.cast(rate, tf.float32)
    scaled = scale * rate
    return tf.maximum(scaled, tf.minimum(rate, floor)) if floor else scaled


def scale_rate(optimizer: tf_keras.optimizers.Optimizer, floor: float = 0.0) -> Scale:
    """Puts a scale on the optimizer's learning rate, whatever kind it is of; call it before a step.

    Args:
        optimizer: What official's factory built.
        floor: What the scale does not take the rate below.

    Returns:
        The scale.
    """
    inner = innermost(optimizer)
    if is_legacy(optimizer):
        rate = inner._hyper["learning_rate"]
        if isinstance(rate, int):  # its variable would hold whole numbers only
            inner._set_hyper("learning_rate", float(rate))
        inner._create_hypers()  # makes variables of the constants
        rate = inner._hyper["learning_rate"]
    else:
        rate = inner._learning_rate
    if isinstance(rate, tf.Variable):
        return ScaledConstant(rate, floor)
    scaled = ScaledRate(rate, floor)
    if is_legacy(optimizer):
        inner._set_hyper("learning_rate", scaled)
    else:  # it hands out the rate in force, from a variable
        inner._learning_rate = inner._build_learning_rate(scaled)
    return scaled.scale


def rates(optimizer: tf_keras.optimizers.Optimizer, steps: Sequence[int]) -> list[float]:
    """The learning rates that the schedule gives some steps, without the scale."""
    inner = innermost(optimizer)
    rate = inner._hyper["learning_rate"] if is_legacy(optimizer) else inner._learning_rate
    rate = rate._scheduled if isinstance(rate, ScaledRate) else rate
    return [float(rate(tf.constant(step, tf.int64)) if callable(rate) else rate) for step in steps]


def innermost(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """The optimizer that updates weights, below a loss scale and averages."""
    return _layers(optimizer)[-1]


def is_legacy(optimizer: tf_keras.optimizers.Optimizer) -> bool:
    """Whether the innermost optimizer is of Keras's old kind."""
    return isinstance(innermost(optimizer), tf_keras.optimizers.legacy.Optimizer)


def extend(optimizer: tf_keras.optimizers.Optimizer, part: type, **attributes: Any) -> None:
    """Puts the methods of `part` before those of the innermost optimizer's class.

    Args:
        optimizer: What official's factory built; no step has been traced.
        part: Calls on with `super()`.
        attributes: Of the class: those of an instance would go into its checkpoints.
    """
    inner = innermost(optimizer)
    kind = type(inner)
    inner.__class__ = type(kind.__name__, (part, kind), attributes)


def average(
    optimizer: tf_keras.optimizers.Optimizer | None,
) -> optimization.ExponentialMovingAverage | None:
    """The moving average inside `optimizer`, also below a loss scale; None where there is none."""
    for layer in _layers(optimizer):
        if isinstance(layer, optimization.ExponentialMovingAverage):
            return layer
    return None


def variables(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """Slots, averages, counters and rates, of all that is wrapped in each other."""
    found: dict[object, tf.Variable] = {}
    for layer in _layers(optimizer):
        own = layer.variables
        found.update({v.ref(): v for v in (own() if callable(own) else own)})
    return list(found.values())


def create_variables(optimizer: tf_keras.optimizers.Optimizer, model: tf_keras.Model) -> None:
    """Makes counters, rates and slots, which else the first step makes; in the strategy's scope."""
    inner = innermost(optimizer)
    weights = model.trainable_variables
    if is_legacy(optimizer):
        inner._create_all_weights(weights)
    else:
        inner.build(weights)


@contextlib.contextmanager
def as_configured(optimizer: tf_keras.optimizers.Optimizer) -> Iterator[None]:
    """A restore inside leaves constant rates as they are configured now.

    Keras saves them as variables, so that a restore would bring back what an earlier start used.
    """
    kept = [(variable, variable.numpy()) for variable in _constants(optimizer)]
    yield
    for variable, value in kept:
        variable.assign(value)


def _constants(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """The variables that hold constants: learning rate, momentum and the like."""
    inner = innermost(optimizer)
    values = list(inner._hyper.values()) if is_legacy(optimizer) else [inner._learning_rate]
    return [value for value in values if isinstance(value, tf.Variable)]


def _layers(
    optimizer: tf_keras.optimizers.Optimizer | None,
) -> list[tf_keras.optimizers.Optimizer]:
    """The optimizer and those that it wraps, outermost first."""
    found = []
    while optimizer is not None:
        found.append(optimizer)
        if isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        elif isinstance(optimizer, optimization.ExponentialMovingAverage):
            optimizer = optimizer._optimizer
        else:
            optimizer = None
    return found


class Averages:
    """The moving average of a model's weights, put in their place by copying.

    Official's own swap adds and subtracts (a + b - b), which changes bits, and does not work
    without a strategy. A third set of variables keeps the weights while the averages are in force.

    Args:
        optimizer: Official's moving average.
        model: A built model; the averages start as a copy of its weights.
    """

    def __init__(
        self, optimizer: optimization.ExponentialMovingAverage, model: tf_keras.Model
    ) -> None:
        if not optimizer.has_shadow_copy:
            optimizer.shadow_copy(model)
        variables = optimizer._model_weights
        self._weights = _components(variables)
        self._averages = _components(optimizer.get_slot(v, "average") for v in variables)
        kept = [tf.Variable(v, trainable=False, name="kept") for v in variables]
        self._kept = _components(kept)
        self.start()

    @tf.function
    def start(self) -> None:
        """Starts the averages at the present weights."""
        _copy(self._weights, self._averages)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """The averages are the model's weights inside; the weights return bit for bit."""
        self._swap_in()
        try:
            yield
        finally:
            self._swap_out()

    @tf.function
    def _swap_in(self) -> None:
        _copy(self._weights, self._kept)
        _copy(self._averages, self._weights)

    @tf.function
    def _swap_out(self) -> None:
        _copy(self._kept, self._weights)


def _components(variables: Iterator[tf.Variable] | list[tf.Variable]) -> list[tf.Variable]:
    """The variables of each replica: a copy between them needs no reduction."""
    strategy = tf.distribute.get_strategy()
    return [part for v in variables for part in strategy.experimental_local_results(v)]


def _copy(sources: list[tf.Variable], targets: list[tf.Variable]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.assign(tf.cast(source, target.dtype))
