"""One training step in detail: the output of each layer, and the gradient of each variable.

The step runs eagerly, op by op, and is undone afterwards. Its last bits may therefore differ from
those of the training graph.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.core import user_code
from runner.internals import keras as keras_internals
from runner.models import optimizer as optimizers
from runner.training import trainer

_OP = re.compile(r"output \d+ of (?:eagerly-executing|graph) op \"(?:b')?(?P<op>\w+)")


class Values(NamedTuple):
    """A summary of the numbers in a tensor.

    Attributes:
        shape: The tensor's shape.
        mean: The mean of the numbers. For a gradient, their norm.
        largest: The largest magnitude.
        not_finite: How many are NaN or infinite.
    """

    shape: tuple[int, ...]
    mean: float
    largest: float
    not_finite: int


class Observation(NamedTuple):
    """A step in detail. With several replicas, the values that one of them computed.

    Attributes:
        loss: The loss of the batch.
        outputs: The outputs of each layer, in the order in which they were computed.
        gradients: The gradients that are applied, by variable. `mean` is the norm.
    """

    loss: float
    outputs: Mapping[str, Values]
    gradients: Mapping[str, Values]

    @property
    def gradient_norm(self) -> float:
        """The norm of all gradients together."""
        return float(np.sqrt(sum(each.mean**2 for each in self.gradients.values())))

    @property
    def first_broken(self) -> str:
        """Describes the first tensor that is not finite. Empty if all are."""
        for what, values in (("the output of", self.outputs), ("the gradient of", self.gradients)):
            for name, each in values.items():
                if each.not_finite:
                    size = int(np.prod(each.shape))
                    return f"{what} {name}, {each.not_finite:,} of {size:,} values"
        return "" if np.isfinite(self.loss) else "the loss"


def observe(built: trainer.Trainer, batch: Any) -> Observation:
    """Runs a step on a batch of all replicas. The caller must restore the state it changes."""
    outputs: dict[str, Values] = {}
    gradients: dict[str, Values] = {}
    built.train_loss.reset_state()
    with _eagerly(), _seen_layers(built.model, outputs), _seen_gradients(built, gradients):
        built.run_eagerly(batch)
    return Observation(float(built.train_loss.result()), outputs, gradients)


def first_op(built: trainer.Trainer, batch: Any) -> str:
    """The first op whose output is not finite, and where it was called. Empty if there is none.

    Like `observe`, it changes the state.
    """
    tf.debugging.enable_check_numerics(stack_height_limit=200)
    try:
        with _eagerly():
            built.run_eagerly(batch)
    except tf.errors.InvalidArgumentError as error:
        found = _OP.search(str(error))
        place = user_code.blame(error)
        return (found["op"] if found else "unknown") + (f" ({place})" if place else "")
    finally:
        tf.debugging.disable_check_numerics()
    return ""


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # with several replicas, TensorFlow would warn about each slow step
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)
        logger.setLevel(level)


@contextlib.contextmanager
def _seen_layers(model: Any, seen: dict[str, Values]) -> Iterator[None]:
    """Inside the context, `seen` collects the output of each layer."""

    def note(name: str, value: Any) -> None:
        parts = [each for each in tf.nest.flatten(value) if tf.is_tensor(each)]
        for number, each in enumerate(parts):
            called = name if len(parts) == 1 else f"{name}[{number}]"
            if each.dtype.is_floating and called not in seen:
                seen[called] = _values(each)

    with contextlib.ExitStack() as stack:
        for layer in (*keras_internals.layers(model), *getattr(model, "inner_layers", ())):
            stack.enter_context(_noting(layer, "call", functools.partial(note, layer.name)))
        yield


@contextlib.contextmanager
def _noting(owner: Any, method: str, note: Callable[[Any], None]) -> Iterator[None]:
    """Inside the context, `note` is called with the results of an object's method."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def noting(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        note(result)
        return result

    object.__setattr__(owner, method, noting)
    try:
        yield
    finally:
        object.__delattr__(owner, method)


@contextlib.contextmanager
def _seen_gradients(built: trainer.Trainer, seen: dict[str, Values]) -> Iterator[None]:
    """Inside the context, `seen` collects the gradients that are passed to the optimizer."""
    inner = optimizers.innermost(built.optimizer)
    apply = inner.apply_gradients

    def apply_gradients(pairs: Any, *arguments: Any, **named: Any) -> Any:
        pairs = list(pairs)
        for gradient, variable in pairs:
            if gradient is not None and variable.name not in seen:
                value = tf.convert_to_tensor(gradient)
                norm = float(tf.linalg.global_norm([tf.cast(value, tf.float64)]))
                seen[variable.name] = _values(value)._replace(mean=norm)
        return apply(pairs, *arguments, **named)

    inner.apply_gradients = apply_gradients
    try:
        yield
    finally:
        inner.apply_gradients = apply


def _values(tensor: tf.Tensor) -> Values:
    numbers = tf.cast(tensor, tf.float64).numpy()
    finite = np.isfinite(numbers)
    known = numbers[finite]
    return Values(
        tuple(numbers.shape),
        float(known.mean()) if known.size else float("nan"),
        float(np.abs(known).max()) if known.size else float("nan"),
        int((~finite).sum()),
    )
