"""Private names of Keras 3. tests/internals reports names that a new version lacks."""

import contextlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from runner.internals import lazy_imports

_NUMBERS = "object_name_uids"


def average_over_replicas(variables: Iterable[Any]) -> None:
    """Averages statistics, such as those of batch normalization, over replicas, as in tf_keras.

    Keras 3 lets every replica change its own copy, and a checkpoint holds only the first. Call it
    in the strategy's scope, before anything is traced.

    Args:
        variables: Variables of Keras 3. Whole numbers, such as the state of seed generators, change
            in the same way on every replica and stay unchanged by this call.
    """
    for each in variables:
        value = each.value
        if value.dtype.is_floating and value.aggregation == tf.VariableAggregation.NONE:
            each._value = tf.Variable(
                value.numpy(),
                trainable=False,
                name=value.name.partition(":")[0],
                dtype=value.dtype,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )


def recurrent_states(model: Any) -> list[Any]:
    """Returns the variables of stateful recurrent layers, which Keras 3 does not track."""
    import keras

    layers = [each for each in model._flatten_layers() if isinstance(each, keras.layers.RNN)]
    states = tf.nest.flatten([layer.states for layer in layers])
    return [each for each in states if isinstance(each, keras.Variable)]


@contextlib.contextmanager
def names_from_the_start() -> Iterator[None]:
    """Numbers unnamed layers as in a new process inside the context, if Keras 3 was loaded."""
    if lazy_imports.loaded("keras") is None:
        yield
        return
    from keras.src.backend.common import global_state

    held = global_state.get_global_attribute(_NUMBERS)
    global_state.set_global_attribute(_NUMBERS, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(_NUMBERS, held)


def compile_arguments(model: Any) -> dict[str, Any] | None:
    """Returns the loss, metrics and weights given to `compile`, or None without `compile`."""
    if not model.compiled:
        return None
    loss, metrics = model._compile_loss, model._compile_metrics
    return {
        "loss": getattr(loss, "_user_loss", None),
        "loss_weights": getattr(loss, "_user_loss_weights", None),
        "metrics": getattr(metrics, "_user_metrics", None),
        "weighted_metrics": getattr(metrics, "_user_weighted_metrics", None),
    }


def takes_logits(loss: Any) -> bool | None:
    """Returns the `from_logits` of a loss, or None if it has none."""
    arguments = getattr(loss, "_fn_kwargs", None) or {}
    return arguments.get("from_logits")


def iterations(optimizer: Any) -> tf.Variable:
    """Returns the variable that counts an optimizer's calls."""
    return optimizer._iterations.value


def set_learning_rate(optimizer: Any, rate: Any) -> None:
    """Sets the learning rate of an optimizer that was created with a constant."""
    optimizer._learning_rate.value.assign(rate)


def compile_config(model: Any) -> dict[str, Any]:
    """Returns a model's `get_compile_config`, with all arguments of losses and metrics."""
    stored, given = model.get_compile_config() or {}, getattr(model, "_compile_config", None)
    if given is None:
        return stored
    return {name: whole(each, given.config.get(name)) for name, each in stored.items()}


def whole(stored: Any, given: Any) -> Any:
    """Adds the arguments that Keras 3 leaves out when it serializes a loss or metric.

    Examples are Huber's `delta`, and the `axis` of CosineSimilarity.

    Args:
        stored: The result of `get_compile_config`, a list or dict if there are several outputs.
        given: The object that it was made from.
    """
    if isinstance(stored, dict) and "class_name" in stored and hasattr(given, "_fn_kwargs"):
        return {**stored, "config": {**_arguments(given), **stored["config"]}}
    if isinstance(stored, dict) and isinstance(given, dict):
        return {name: whole(each, given.get(name)) for name, each in stored.items()}
    if isinstance(stored, list) and isinstance(given, list | tuple):
        return [whole(*pair) for pair in zip(stored, given, strict=True)]
    return stored


def _arguments(given: Any) -> dict[str, Any]:
    """Returns all arguments of a loss, or those of a metric that differ from their defaults."""
    takes = inspect.signature(type(given)).parameters
    is_loss = hasattr(given, "reduction")
    return {
        name: value
        for name, value in given._fn_kwargs.items()
        if name in takes and (is_loss or value != takes[name].default)
    }
