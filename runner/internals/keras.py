"""Private names of tf_keras. tests/internals reports names that a new version lacks."""

import contextlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src import backend

from runner.internals import keras3

_EXCLUSIONS = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_names")

Scale = Callable[[tf.Variable], float]
"""The factor on a variable's learning rate."""


def seed_layers(seed: int) -> None:
    """Seeds the generator from which layers and initializers draw their own seeds."""
    backend._SEED_GENERATOR.generator = random.Random(seed)


def layer_seeds() -> tuple[random.Random, Any] | None:
    """Returns that generator and its state, or None before the first use."""
    seeds = getattr(backend._SEED_GENERATOR, "generator", None)
    return seeds and (seeds, seeds.getstate())


def set_layer_seeds(state: tuple[random.Random, Any] | None) -> None:
    """Restores what `layer_seeds` returned."""
    if state is not None:
        seeds, position = state
        seeds.setstate(position)
        backend._SEED_GENERATOR.generator = seeds
    elif layer_seeds() is not None:
        del backend._SEED_GENERATOR.generator


def draws_from_generators() -> bool:
    """Returns whether new layers draw their random numbers from generators."""
    return bool(backend._USE_GENERATOR_FOR_RNG)


def set_draws_from_generators(wanted: bool) -> None:
    """Sets whether new layers draw their random numbers from generators."""
    backend._USE_GENERATOR_FOR_RNG = wanted


def use_generators(model: tf_keras.Model) -> None:
    """Makes a model's layers draw from generators, whose state a checkpoint can hold."""
    for layer in layers(model):
        owner = getattr(layer, "_random_generator", None)
        if owner is not None and owner._rng_type == owner.RNG_LEGACY_STATEFUL:
            owner._rng_type, owner._built = owner.RNG_STATEFUL, False
            owner._maybe_init()


def name_weights(model: tf_keras.Model) -> None:
    """Names the weights that layers have added without a name, so that a checkpoint can hold them.

    A weight that is an attribute of its layer has the attribute's name there.
    """
    for layer in layers(model):
        tracked: list[Any] = getattr(layer, "_self_unconditional_checkpoint_dependencies", [])
        unnamed = [each for each in tracked if each.name is None]
        if not unnamed:
            continue
        names = layer._self_unconditional_dependency_names
        named = {id(each.ref) for each in tracked if each.name is not None}
        kept = [each for each in tracked if each.name is not None]
        names.pop(None, None)
        for number, each in enumerate(each for each in unnamed if id(each.ref) not in named):
            reference = each._replace(name=f"weight_{number}")
            kept.append(reference)
            names[reference.name] = reference.ref
        tracked[:] = kept


@contextlib.contextmanager
def names_from_the_start() -> Iterator[None]:
    """Numbers layers without a name as in a new process inside the context: `dense`, `dense_1`."""
    held = dict(backend.PER_GRAPH_OBJECT_NAME_UIDS)
    backend.PER_GRAPH_OBJECT_NAME_UIDS.clear()
    try:
        with keras3.names_from_the_start():
            yield
    finally:
        backend.PER_GRAPH_OBJECT_NAME_UIDS.clear()
        backend.PER_GRAPH_OBJECT_NAME_UIDS.update(held)


def misfit(error: Exception) -> str:
    """Returns the message of Keras 2 or 3 about an input that does not fit a layer, or ""."""
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
    """Yields the model and every layer in it, at any depth."""
    if not hasattr(model, "_flatten_layers"):  # a module that holds several models
        return (each for each in model.submodules if isinstance(each, tf_keras.layers.Layer))
    return model._flatten_layers()


def sublayers(layer: tf_keras.layers.Layer | tf.Module) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers directly inside a layer, or those of a module's submodules."""
    if not hasattr(layer, "_flatten_layers"):
        inside = [each for each in layer.submodules if isinstance(each, tf_keras.layers.Layer)]
        deeper = {id(below) for each in inside for below in each.submodules}
        return (each for each in inside if id(each) not in deeper)
    return layer._flatten_layers(recursive=False, include_self=False)


def weights(layer: tf_keras.layers.Layer | tf.Module) -> Sequence[tf.Variable]:
    """Returns the variables of a layer, or of a module that is not a layer."""
    held = layer.weights if hasattr(layer, "weights") else layer.variables
    return [each for each in held if isinstance(each, tf.Variable)]


def variables(model: tf_keras.Model) -> list[tf.Variable]:
    """Returns a model's variables, without the tables that layers with a vocabulary add."""
    return [each for each in model.variables if isinstance(each, tf.Variable)]


def freeze(model: tf_keras.Model, frozen: Callable[[tf.Variable], bool]) -> None:
    """Makes the variables for which `frozen` is true not trainable.

    A layer is made not trainable as a whole, with its sublayers, if `frozen` is true for all its
    trainable variables (or, if it has none, for all its variables). In other layers, single
    variables are made not trainable.
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
    """Returns the state of layers that Keras leaves out of its checkpoints.

    This is the state of random generators and of stateful recurrent layers.
    """
    owners = [getattr(layer, "_random_generator", None) for layer in layers(model)]
    generators = [getattr(owner, "_generator", None) for owner in owners]
    recurrent = [layer for layer in layers(model) if isinstance(layer, tf_keras.layers.RNN)]
    states = tf.nest.flatten([layer.states for layer in recurrent])
    kinds = (tf.random.Generator, tf.Variable)
    return [each for each in (*generators, *states) if isinstance(each, kinds)]


@contextlib.contextmanager
def optimizer_replaced(model: Any, optimizer: Any) -> Iterator[None]:
    """Gives a model of either Keras another optimizer inside the context.

    The model does not track it, so its checkpoints stay the same.
    """
    before = getattr(model, "optimizer", None)
    object.__setattr__(model, "optimizer", optimizer)
    try:
        yield
    finally:
        object.__setattr__(model, "optimizer", before)


def adds_losses(model: Any) -> bool:
    """Whether layers of a called model have added losses in the call, such as of activations."""
    return any(
        layer._losses or getattr(layer, "_eager_losses", ()) for layer in model._flatten_layers()
    )


@contextlib.contextmanager
def call_replaced(model: Any, call: Callable[[Any], Any]) -> Iterator[None]:
    """A context in which a model of either Keras has the outputs of another function."""
    object.__setattr__(model, "call", lambda inputs, *_, **__: call(inputs))
    try:
        yield
    finally:
        object.__delattr__(model, "call")


@contextlib.contextmanager
def losses_recorded(model: Any) -> Iterator[list[tf.Tensor]]:
    """A context that yields a list of what the model's `compute_loss` returns inside it."""
    computed: list[tf.Tensor] = []
    method = model.compute_loss

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        loss = method(*args, **kwargs)
        computed.append(loss)
        return loss

    object.__setattr__(model, "compute_loss", compute_loss)
    try:
        yield computed
    finally:
        object.__delattr__(model, "compute_loss")


@contextlib.contextmanager
def results_recorded(metrics: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """A context that yields a list of metrics and what their `result` returns inside it."""
    found: list[tuple[Any, Any]] = []
    before = [(metric, vars(metric).get("result")) for metric in metrics]

    def recorded(metric: Any) -> Callable[[], Any]:
        method = metric.result

        def result() -> Any:
            value = method()
            found.append((metric, value))
            return value

        return result

    for metric in metrics:
        object.__setattr__(metric, "result", recorded(metric))
    try:
        yield found
    finally:
        for metric, own in before:
            if own is None:
                object.__delattr__(metric, "result")
            else:
                object.__setattr__(metric, "result", own)


def compile_arguments(model: tf_keras.Model) -> dict[str, Any] | None:
    """Returns the loss, metrics and weights given to `compile`, or None without `compile`."""
    loss: Any = getattr(model, "compiled_loss", None)
    if loss is None:
        return None
    metrics: Any = model.compiled_metrics
    return {
        "loss": model.loss,
        "loss_weights": loss._user_loss_weights,
        "metrics": metrics._user_metrics,
        "weighted_metrics": metrics._user_weighted_metrics,
    }


def is_legacy(optimizer: tf_keras.optimizers.Optimizer) -> bool:
    """Returns whether an optimizer is a legacy one, as in Keras before 2.11."""
    return isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)


def learning_rate(optimizer: tf_keras.optimizers.Optimizer) -> Any:
    """Returns an optimizer's schedule, or the variable that holds its constant learning rate."""
    if not is_legacy(optimizer):
        return optimizer._learning_rate
    rate = optimizer._hyper["learning_rate"]
    if isinstance(rate, int):  # its variable would hold whole numbers only
        optimizer.learning_rate = float(rate)
    return optimizer.learning_rate  # reading it turns a constant into a variable


def schedule(optimizer: Any) -> Any:
    """Returns the schedule of an optimizer of Keras 2 or 3, or its constant learning rate."""
    if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        return optimizer._hyper["learning_rate"]
    return optimizer._learning_rate


def build_learning_rate(optimizer: tf_keras.optimizers.Optimizer, rate: Any) -> None:
    """Gives a new optimizer its learning rate or schedule."""
    optimizer._learning_rate = optimizer._build_learning_rate(rate)


def current_learning_rate(optimizer: tf_keras.optimizers.Optimizer) -> Any:
    """Computes the learning rate of the next update."""
    optimizer._compute_current_learning_rate()
    return optimizer.learning_rate


def rate_variables(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """Returns the variables that hold an optimizer's constant and its current learning rate."""
    held = (getattr(optimizer, name, None) for name in ("_learning_rate", "_current_learning_rate"))
    return [each for each in held if isinstance(each, tf.Variable)]


def profiled_batches(callback: Any) -> tuple[int, int]:
    """Returns the first and last batch that a TensorBoard callback of either Keras profiles."""
    return getattr(callback, "_start_batch", 0), getattr(callback, "_stop_batch", 0)


def is_default(method: Any) -> bool:
    """Returns whether a method of a callback is that of its base class, which does nothing."""
    return bool(getattr(method, "_is_default", False))


def excluded_from_decay(optimizer: Any, model: Any) -> list[str]:
    """Returns the names of variables that an optimizer excludes from weight decay.

    Args:
        optimizer: Of either Keras, perhaps within a loss scale.
        model: The model whose variables it updates.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(optimizer, "_use_weight_decay") or not model.built:
        return []
    if not any(vars(optimizer).get(name) for name in _EXCLUSIONS):
        return []
    weights = model.trainable_variables
    return [each.name for each in weights if not optimizer._use_weight_decay(each)]


def set_schedule(
    optimizer: tf_keras.optimizers.Optimizer,
    schedule: tf_keras.optimizers.schedules.LearningRateSchedule,
) -> None:
    """Replaces the schedule of an optimizer that has one."""
    if is_legacy(optimizer):
        optimizer.learning_rate = schedule
    else:  # it returns the current learning rate, from a variable
        optimizer._learning_rate = optimizer._build_learning_rate(schedule)


def constants(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """Returns the variables that hold constants: learning rate, momentum and the like."""
    values = optimizer._hyper.values() if is_legacy(optimizer) else [optimizer._learning_rate]
    return [value for value in values if isinstance(value, tf.Variable)]


def create_variables(
    optimizer: tf_keras.optimizers.Optimizer, weights: Sequence[tf.Variable]
) -> None:
    """Creates counters, learning rates and slots, which the first step would otherwise create."""
    if is_legacy(optimizer):
        optimizer._create_all_weights(weights)
    else:
        optimizer.build(weights)


def change_updates(optimizer: tf_keras.optimizers.Optimizer, scale: Scale, decay: Scale) -> None:
    """Makes an optimizer scale the learning rate of each variable, and decay the variable.

    The update rule stays the optimizer's own, with the scaled learning rate in place of the
    original. Weight decay by the learning rate is also scaled. The optimizer's variables stay the
    same.

    Args:
        optimizer: Does not wrap another. No step has been traced.
        scale: Returns a constant factor for a variable.
        decay: Returns the share of a variable, times its learning rate, that each update subtracts
            before the optimizer's own rule.
    """
    part = _ScaledLegacy if is_legacy(optimizer) else _Scaled
    kind = type(optimizer)
    # An attribute of the instance would be saved in its checkpoints.
    optimizer.__class__ = type(
        kind.__name__, (part, kind), {"scale": staticmethod(scale), "decay": staticmethod(decay)}
    )


class _ScaledLegacy(tf_keras.optimizers.legacy.Optimizer):
    """Prepares shared values once per scale, from which each update selects its own."""

    scale: Scale
    decay: Scale
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
        self._shrink(var)
        return super()._resource_apply_dense(grad, var, apply_state=apply_state[self.scale(var)])

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Any
    ) -> Any:
        self._shrink(var)
        return super()._resource_apply_sparse_duplicate_indices(
            grad, var, indices, apply_state=apply_state[self.scale(var)]
        )

    def _shrink(self, var: tf.Variable) -> None:
        if decay := self.decay(var):
            rate = self._decayed_lr(var.dtype.base_dtype) * self.scale(var)
            var.assign_sub(var * rate * decay)


class _Scaled(tf_keras.optimizers.Optimizer):
    """Gives an update the learning rate of its variable."""

    scale: Scale
    decay: Scale
    _factor = 1.0

    @tf_keras.optimizers.Optimizer.learning_rate.getter
    def learning_rate(self) -> tf.Variable | tf.Tensor:
        """The current learning rate, or within an update that of the variable."""
        rate = super().learning_rate
        return rate if self._factor == 1 else rate * self._factor

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Applies a gradient to a variable."""
        self._factor = self.scale(variable)
        if decay := self.decay(variable):
            rate = tf.cast(self.learning_rate, variable.dtype)
            variable.assign_sub(variable * rate * decay)
        super().update_step(gradient, variable)
        self._factor = 1.0

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        # Replicas wait for each other inside this call, so the factor must not depend on earlier
        # replicas.
        for scale, members in _by_scale(variables, self.scale).items():
            self._factor = scale
            super()._apply_weight_decay(members)
        self._factor = 1.0


def _by_scale(variables: Iterable[tf.Variable], scale: Scale) -> dict[float, list[tf.Variable]]:
    members: dict[float, list[tf.Variable]] = {}
    for variable in variables:
        members.setdefault(scale(variable), []).append(variable)
    return members


@tf.__internal__.tracking.no_automatic_dependency_tracking
def set_untracked(model: Any, name: str, value: Any) -> None:
    """Sets an attribute of a model that its checkpoints do not have."""
    setattr(model, name, value)
