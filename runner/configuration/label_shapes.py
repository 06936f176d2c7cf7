"""Finds a loss that broadcasts each label against the output of every example."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from runner.core import user_code
from runner.errors import ConfigError


@tf.autograph.experimental.do_not_convert
def operations() -> int:
    """Returns the number of operations in the graph being traced, or 0 if steps run eagerly."""
    return 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())


@tf.autograph.experimental.do_not_convert
def check(method: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], before: int) -> None:
    """Checks the operations that `build_losses` has added to the graph being traced.

    Args:
        method: The task's `build_losses`, which was called with `args` and `kwargs`.
        args: Positional arguments.
        kwargs: Keyword arguments.
        before: `operations()` before the call.

    Raises:
        ConfigError: if labels [n] are combined with outputs [n, 1].
    """
    if tf.executing_eagerly():
        return
    try:
        given = inspect.signature(method).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return
    made = tf.compat.v1.get_default_graph().get_operations()[before:]
    if found := _spread(given.get("labels"), given.get("model_outputs"), made):
        operation, labels, outputs = found
        (result,) = operation.outputs
        users = user_code.users(operation.traceback)
        place = users[-1].place if users else user_code.place(method)
        raise ConfigError(
            f"{place}: labels {labels} against outputs {outputs} make {result.shape}: each label "
            "is combined with the output of every example. Add a last axis to the labels "
            "(labels[:, None]), or remove it from the outputs (tf.squeeze(model_outputs, -1))"
        )


@tf.autograph.experimental.do_not_convert
def _spread(labels: Any, outputs: Any, made: Iterable[tf.Operation]) -> Any:
    """Returns the operation that combines labels [n] with outputs [n, 1], broadcasting to [n, n].

    It finds operations on the labels and outputs themselves, or on values of the same shape derived
    from them, for example by a cast or a logarithm. It does not look inside nested function graphs.
    """
    origin = {
        tensor.ref(): (name, tensor.shape)
        for name, tensors, rank in (("labels", labels, 1), ("outputs", outputs, 2))
        for tensor in tf.nest.flatten(tensors)
        if isinstance(tensor, tf.Tensor) and tensor.shape.rank == rank
        if name == "labels" or tensor.shape[-1] == 1
    }
    for operation in made:
        if len(operation.outputs) != 1:
            continue
        (result,) = operation.outputs
        sized = [tensor for tensor in operation.inputs if tensor.shape.rank != 0]
        found = dict(origin[tensor.ref()] for tensor in sized if tensor.ref() in origin)
        if len(sized) == 1 and found and result.shape.as_list() == sized[0].shape.as_list():
            origin[result.ref()] = origin[sized[0].ref()]
        both = len(sized) == len(found) == 2 and result.shape.rank == 2 and result.shape[-1] != 1
        if both and found["labels"].is_compatible_with(found["outputs"][:1]):
            return operation, found["labels"], found["outputs"]
    return None
