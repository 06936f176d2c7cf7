"""One training step seen from inside: what each layer gives, and the gradient of each variable.

The step is run eagerly, op by op, and taken back; so its last bits may differ from those of the
graph that trains.
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
from runner.optimizers import optimizer as optimizers
from runner.training import trainer

_OP = re.compile(r"output \d+ of (?:eagerly-executing|graph) op \"(?:b')?(?P<op>\w+)")


class Values(NamedTuple):
    """What numbers of a tensor look like.

    Attributes:
        shape: Its shape.
        mean: Their mean; of a gradient, their norm.
        largest: The largest magnitude.
        not_finite: How many are NaN or infinite.
    """

    shape: tuple[int, ...]
    mean: float
    largest: float
    not_finite: int


class Observation(NamedTuple):
    """A step seen from inside; of several replicas, as far as one of them computed it.

    Attributes:
        loss: The loss of the batch.
        outputs: Those of each layer, in the order in which they were computed.
        gradients: Those that are applied, by variable; `mean` is the norm.
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
        """The first tensor that is not finite, in words; empty if all are."""
        for what, values in (("the output of", self.outputs), ("the gradient of", self.gradients)):
            for name, each in values.items():
                if each.not_finite:
                    size = int(np.prod(each.shape))
                    return f"{what} {name}, {each.not_finite:,} of {size:,} values"
        return "" if np.isfinite(self.loss) else "the loss"


def observe(built: trainer.Trainer, batch: Any) -> Observation:
    """Runs a step on a batch of all replicas. It changes the state, which the caller puts back."""
    outputs: dict[str, Values] = {}
    gradients: dict[str, Values] = {}
    built.train_loss.reset_state()
    with _eagerly(), _seen_layers(built.model, outputs), _seen_gradients(built, gradients):
        built.run_eagerly(batch)
    return Observation(float(built.train_loss.result()), outputs, gradients)


def first_op(built: trainer.Trainer, batch: Any) -> str:
    """The first op whose output is not finite, and where it was called; empty if none is.

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
    logger.setLevel("ERROR")  # with several replicas, each step would be called slow
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)
        logger.setLevel(level)


@contextlib.contextmanager
def _seen_layers(model: Any, seen: dict[str, Values]) -> Iterator[None]:
    """Inside, what each layer returns is noted in `seen`."""

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
    """Inside, what a method of an object returns is noted."""
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
    """Inside, the gradients that are handed to the optimizer are noted in `seen`."""
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
