"""Private names of tf_keras. tests/internals reports those that a new version lacks."""

import contextlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src import backend

from runner.internals import keras3

Scale = Callable[[tf.Variable], float]
"""The factor on a variable's learning rate."""


def seed_layers(seed: int) -> None:
    """Seeds what layers and initializers draw their own seeds from."""
    backend._SEED_GENERATOR.generator = random.Random(seed)


def layer_seeds() -> tuple[random.Random, Any] | None:
    """What layers and initializers draw their own seeds from; None before the first has."""
    seeds = getattr(backend._SEED_GENERATOR, "generator", None)
    return seeds and (seeds, seeds.getstate())


def set_layer_seeds(state: tuple[random.Random, Any] | None) -> None:
    """Puts back what `layer_seeds` returned."""
    if state is not None:
        seeds, position = state
        seeds.setstate(position)
        backend._SEED_GENERATOR.generator = seeds
    elif layer_seeds() is not None:
        del backend._SEED_GENERATOR.generator


def draws_from_generators() -> bool:
    """Whether new layers draw their random numbers from generators."""
    return bool(backend._USE_GENERATOR_FOR_RNG)


def set_draws_from_generators(wanted: bool) -> None:
    """Sets whether new layers draw their random numbers from generators."""
    backend._USE_GENERATOR_FOR_RNG = wanted


@contextlib.contextmanager
def names_from_the_start() -> Iterator[None]:
    """Inside, layers without a name are numbered as in a new process: `dense`, `dense_1`."""
    held = dict(backend.PER_GRAPH_OBJECT_NAME_UIDS)
    backend.PER_GRAPH_OBJECT_NAME_UIDS.clear()
    try:
        with keras3.names_from_the_start():
            yield
    finally:
        backend.PER_GRAPH_OBJECT_NAME_UIDS.clear()
        backend.PER_GRAPH_OBJECT_NAME_UIDS.update(held)


def misfit(error: Exception) -> str:
    """What either Keras says of an input that does not fit a layer; empty for other errors."""
    said = re.sub(r"\x1b\[\d*m|\s+", " ", str(error))  # Keras 3 colours it
    said = said.replace(" with name 'None'", "")
    found = re.search(
        r"(Input \d+ (with name .*? )?of layer|Expected shape) .*?"
        r"(?= Call arguments| Arguments received|$)",
        said,
    )
    if found is None or "incompatible" not in found[0]:
        return ""
    return found[0][0].lower() + found[0][1:].strip()


def layers(model: tf_keras.Model | tf.Module) -> Iterator[tf_keras.layers.Layer]:
    """The model and every layer in it, at any depth."""
    if not hasattr(model, "_flatten_layers"):  # a module that holds several models
        return (each for each in model.submodules if isinstance(each, tf_keras.layers.Layer))
    return model._flatten_layers()


def sublayers(layer: tf_keras.layers.Layer | tf.Module) -> Iterator[tf_keras.layers.Layer]:
    """The layers directly inside a layer; of a module that is none, those of its submodules."""
    if not hasattr(layer, "_flatten_layers"):
        inside = [each for each in layer.submodules if isinstance(each, tf_keras.layers.Layer)]
        deeper = {id(below) for each in inside for below in each.submodules}
        return (each for each in inside if id(each) not in deeper)
    return layer._flatten_layers(recursive=False, include_self=False)


def weights(layer: tf_keras.layers.Layer | tf.Module) -> Sequence[tf.Variable]:
    """The variables of a layer, or of a module that is none."""
    return layer.weights if hasattr(layer, "weights") else layer.variables


def freeze(model: tf_keras.Model, frozen: Callable[[tf.Variable], bool]) -> None:
    """Makes the variables of which `frozen` is true not trainable.

    A layer whose trainable variables are all among them (or, if it has none, all its variables) is
    made not trainable itself, with what is inside it; of others, single variables are.
    """
    weights = [(each, each.trainable_variables or each.weights) for each in layers(model)]
    for layer, held in weights:
        if held and all(map(frozen, held)):
            layer.trainable = False
    for layer in layers(model):
        moved = [variable for variable in layer._trainable_weights if frozen(variable)]
        if moved and layer.trainable:
            rest = [each for each in layer._trainable_weights if not frozen(each)]
            layer._trainable_weights[:] = rest
            layer._non_trainable_weights.extend(moved)


def hidden_state(model: tf_keras.Model) -> list[tf.random.Generator | tf.Variable]:
    """The state of layers that Keras leaves out of its checkpoints.

    It is that of random generators, and that of stateful recurrent layers.
    """
    owners = [getattr(layer, "_random_generator", None) for layer in layers(model)]
    generators = [getattr(owner, "_generator", None) for owner in owners]
    recurrent = [layer for layer in layers(model) if isinstance(layer, tf_keras.layers.RNN)]
    states = tf.nest.flatten([layer.states for layer in recurrent])
    kinds = (tf.random.Generator, tf.Variable)
    return [each for each in (*generators, *states) if isinstance(each, kinds)]


def is_legacy(optimizer: tf_keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer is a legacy one, of the kind that Keras had before 2.11."""
    return isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)


def learning_rate(optimizer: tf_keras.optimizers.Optimizer) -> Any:
    """The schedule of an optimizer, or the variable that holds its constant rate."""
    if not is_legacy(optimizer):
        return optimizer._learning_rate
    rate = optimizer._hyper["learning_rate"]
    if isinstance(rate, int):  # its variable would hold whole numbers only
        optimizer.learning_rate = float(rate)
    return optimizer.learning_rate  # reading it turns a constant into a variable


def schedule(optimizer: Any) -> Any:
    """The schedule that an optimizer of either Keras has; what it has instead, if it has none."""
    if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        return optimizer._hyper["learning_rate"]
    return optimizer._learning_rate


def set_schedule(
    optimizer: tf_keras.optimizers.Optimizer,
    schedule: tf_keras.optimizers.schedules.LearningRateSchedule,
) -> None:
    """Replaces the schedule of an optimizer that has one."""
    if is_legacy(optimizer):
        optimizer.learning_rate = schedule
    else:  # it hands out the rate in force, from a variable
        optimizer._learning_rate = optimizer._build_learning_rate(schedule)


def constants(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """The variables that hold constants: learning rate, momentum and the like."""
    values = optimizer._hyper.values() if is_legacy(optimizer) else [optimizer._learning_rate]
    return [value for value in values if isinstance(value, tf.Variable)]


def create_variables(
    optimizer: tf_keras.optimizers.Optimizer, weights: Sequence[tf.Variable]
) -> None:
    """Creates counters, rates and slots, which the first step would otherwise create."""
    if is_legacy(optimizer):
        optimizer._create_all_weights(weights)
    else:
        optimizer.build(weights)


def scale_rates(optimizer: tf_keras.optimizers.Optimizer, scale: Scale) -> None:
    """Makes an optimizer multiply its rate by `scale(variable)` in each variable's update.

    The update rule stays the optimizer's own, with the scaled rate in place of the rate: decay by
    the rate is scaled, too. Its variables stay the same.

    Args:
        optimizer: Does not wrap another; no step has been traced.
        scale: From a variable to a constant factor.
    """
    part = _ScaledLegacy if is_legacy(optimizer) else _Scaled
    kind = type(optimizer)
    # An attribute of the instance would go into its checkpoints.
    optimizer.__class__ = type(kind.__name__, (part, kind), {"scale": staticmethod(scale)})


class _ScaledLegacy(tf_keras.optimizers.legacy.Optimizer):
    """Prepares what updates share once per scale; each update picks its own."""

    scale: Scale
    _factor = 1.0

    def _decayed_lr(self, var_dtype: tf.DType) -> tf.Tensor:
        rate = super()._decayed_lr(var_dtype)
        return rate if self._factor == 1 else rate * tf.cast(self._factor, var_dtype)

    def _prepare(self, var_list: Sequence[tf.Variable]) -> dict[float, Any]:
        prepared = {}
        for scale, members in _by_scale(var_list, self.scale).items():
            self._factor = scale
            prepared[scale] = super()._prepare(members)
        self._factor = 1.0
        return prepared

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any) -> Any:
        return super()._resource_apply_dense(grad, var, apply_state=apply_state[self.scale(var)])

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Any
    ) -> Any:
        return super()._resource_apply_sparse_duplicate_indices(
            grad, var, indices, apply_state=apply_state[self.scale(var)]
        )


class _Scaled(tf_keras.optimizers.Optimizer):
    """Gives an update the rate of its variable."""

    scale: Scale
    _factor = 1.0

    @tf_keras.optimizers.Optimizer.learning_rate.getter
    def learning_rate(self) -> tf.Variable | tf.Tensor:
        """The rate in force; within an update, that of the variable."""
        rate = super().learning_rate
        return rate if self._factor == 1 else rate * self._factor

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Applies a gradient to a variable."""
        self._factor = self.scale(variable)
        super().update_step(gradient, variable)
        self._factor = 1.0

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        # Replicas wait for each other within, so the factor must not depend on who was here before.
        for scale, members in _by_scale(variables, self.scale).items():
            self._factor = scale
            super()._apply_weight_decay(members)
        self._factor = 1.0


def _by_scale(variables: Iterable[tf.Variable], scale: Scale) -> dict[float, list[tf.Variable]]:
    members: dict[float, list[tf.Variable]] = {}
    for variable in variables:
        members.setdefault(scale(variable), []).append(variable)
    return members
