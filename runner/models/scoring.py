"""Loss and metrics by the rules of Keras's `compile`, through the containers that it creates."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from runner.core import user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.models import compiled, copies, examples

_ACTIVATIONS = {
    "binary_crossentropy": "sigmoid",
    "categorical_crossentropy": "softmax",
    "sparse_categorical_crossentropy": "softmax",
}


class Scores:
    """A loss, or a set of metrics, for the outputs of a model.

    Args:
        output_names: The names of the model's outputs. None if it has not named them.
        arguments: Arguments of `tf_keras.Model.compile`. Each metric gets a new object.

    Raises:
        ConfigError: a metric cannot be created.
    """

    def __init__(self, output_names: Any, **arguments: Any) -> None:
        self._holder = tf_keras.Model()
        self._holder.output_names = output_names
        try:
            made = {name: compiled.objects(each) for name, each in arguments.items()}
            self._holder.compile(**made)
        except (ValueError, TypeError) as error:
            said = str(error).partition("\n")[0][:160]
            raise ConfigError(f"the model's {' and '.join(arguments)}: {said}") from error

    @property
    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """The metrics, and the losses of several outputs. Available once they were computed."""
        _, *losses = self._holder.compiled_loss.metrics or [None]
        return [*losses, *self._holder.compiled_metrics.metrics]

    def loss(self, labels: Any, outputs: Any, weight: Any) -> tf.Tensor:
        """The mean over this replica's examples, a scalar."""
        found = self._holder.compiled_loss(labels, outputs, weight)
        # Keras has divided it by the number of replicas, which Model Garden's step will do again.
        return found * tf.distribute.get_strategy().num_replicas_in_sync

    def update(self, labels: Any, outputs: Any, weight: Any) -> None:
        """Adds a batch."""
        with compiled.labels_kept_flat(labels):
            self._holder.compiled_metrics.update_state(labels, outputs, weight)


class Trial(NamedTuple):
    """A model and data on which loss and metrics are tried, so that they create their variables.

    Attributes:
        infer: Maps features to the model's outputs.
        loss: The training loss, as in `Compiled`.
        data: The data to score.
        where: Names the data in messages.
    """

    infer: Callable[[Any], Any]
    loss: Any
    data: examples.Examples
    where: str

    def trace(self, *scores: Callable[[Any, Any, Any], Any]) -> None:
        """Calls each of `scores` with labels, outputs and weights, on every replica.

        Raises:
            ConfigError: the model cannot be called with the features, or they cannot be compared,
            or there are no labels.
        """
        x, (y, weight) = examples.specs(self.data)
        if self.loss is not None and isinstance(y, tuple) and not y:
            raise ConfigError(
                f"{self.where}: there is no y, which the compiled loss needs: pass y, or a model "
                "that computes its loss without labels, by train_step or add_loss"
            )
        outputs: Any = None

        def score(x: Any, y: Any, weight: Any) -> None:
            nonlocal outputs
            made = self.infer(x)
            outputs = tf.nest.map_structure(tf.TensorSpec.from_tensor, made)
            if isinstance(self.data, examples.Arrays):
                check(self.loss, self.data.y, outputs, self.where)
            for each in scores:
                each(y, made, or_none(weight))

        run = tf.distribute.get_strategy().run
        traced = tf.function(lambda *batch: run(score, args=batch), autograph=False)
        try:
            graph = traced.get_concrete_function(x, y, weight).graph
        except (ValueError, TypeError, KeyError) as error:
            if outputs is None:
                given = tf.nest.map_structure(_shown, x)
                said = keras_internals.misfit(error)
                said = said or user_code.summary(error.with_traceback(None))[:300]
                raise ConfigError(
                    f"{self.where}: the model cannot be called with x {given}: {said}"
                ) from error
            labels, made = (tf.nest.map_structure(_shown, each) for each in (y, outputs))
            said = user_code.summary(error).partition("\n")[0][:200]
            raise ConfigError(
                f"{self.where}: y {labels} cannot be scored against the model's outputs {made}: "
                f"{said}"
            ) from error
        has_strings = any(part.dtype == tf.string for part in tf.nest.flatten(x))
        if has_strings and tf_internals.casts_strings(graph):
            raise ConfigError(f"{self.where}: {copies.STRINGS}")


def or_none(weight: Any) -> Any:
    """Converts (), which means no weights in a dataset, to Keras's None."""
    return None if isinstance(weight, tuple) and not weight else weight


def _shown(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name}{spec.shape.as_list()}"


def check(loss: Any, labels: Any, outputs: Any, where: str) -> None:
    """Compares labels in memory with what a model returns, by the loss of each output.

    Args:
        loss: As in `Compiled`.
        labels: Arrays.
        outputs: Tensor specifications.
        where: Names the data in messages.

    Raises:
        ConfigError: they do not match.
    """
    if isinstance(outputs, dict) and not isinstance(labels, dict):
        names = ", ".join(map(repr, outputs))
        raise ConfigError(
            f"{where}: the model returns a dict of {names}; y must be a dict with these keys"
        )
    if isinstance(outputs, dict) and (missing := labels.keys() - outputs.keys()):
        raise ConfigError(
            f"{where}: y has {', '.join(map(repr, sorted(missing)))}, which the model does not "
            f"return; it returns {', '.join(map(repr, outputs))}"
        )
    if isinstance(loss, dict) and isinstance(outputs, dict):
        unscored = [name for name in loss if name in outputs and name not in labels]
        if unscored and "class_name" not in loss:
            raise ConfigError(
                f"{where}: y has no {', '.join(map(repr, unscored))}, for which the model is "
                "compiled with a loss; Keras would omit that loss"
            )
    parts = (
        [labels[name] for name in outputs if name in labels]
        if isinstance(outputs, dict)
        else (tf.nest.flatten(labels))
    )
    if len(parts) == len(tf.nest.flatten(outputs)) == 1 or isinstance(loss, str):
        for part, output in zip(parts, tf.nest.flatten(outputs), strict=False):
            _check_one(_name(loss), part, output, where)


def _check_one(loss: str, labels: np.ndarray, output: tf.TensorSpec, where: str) -> None:
    shape, classes = list(labels.shape), output.shape[-1] if output.shape.rank else None
    if loss == "sparse_categorical_crossentropy":
        if labels.ndim == output.shape.rank and shape[-1] == classes != 1:
            raise ConfigError(
                f"{where}: y of shape {shape} is one-hot, but {loss} takes class numbers: compile "
                "with categorical_crossentropy, or give y.argmax(-1)"
            )
        if labels.dtype.kind == "f" and (labels % 1).any():
            raise ConfigError(
                f"{where}: y has fractions ({labels.dtype}), but {loss} takes class numbers"
            )
        if classes and (labels.max() >= classes or labels.min() < 0):
            raise ConfigError(
                f"{where}: y goes from {labels.min():g} to {labels.max():g}, but the model has "
                f"{classes} outputs, for classes 0 to {classes - 1}"
            )
    elif loss == "categorical_crossentropy" and (
        labels.ndim < output.shape.rank or (shape[-1] == 1 and classes != 1)
    ):
        raise ConfigError(
            f"{where}: y of shape {shape} are class numbers, but {loss} takes one-hot labels: "
            "compile with sparse_categorical_crossentropy"
        )


def mistaken_logits(loss: Any, model: Any) -> str | None:
    """A line for a loss that takes probabilities, and a model that seems to return logits.

    Args:
        loss: As in `Compiled`.
        model: A Sequential or functional model of either Keras. Others are not looked at.
    """
    name = _name(loss)
    activation = _ACTIVATIONS.get(name)
    if activation is None or compiled.gives_logits(loss) or not getattr(model, "outputs", None):
        return None
    last = model.layers[-1]
    if getattr(getattr(last, "activation", None), "__name__", "") != "linear":
        return None
    return (
        f"the last layer, {last.name!r}, has no activation, and the loss {name} takes "
        f"probabilities: pass from_logits=True to the loss, or activation={activation!r} to the "
        "layer"
    )


def _name(loss: Any) -> str:
    """`sparse_categorical_crossentropy`, however that loss was specified."""
    if isinstance(loss, dict) and "config" in loss:
        loss = (loss["config"] or {}).get("name", "") if isinstance(loss["config"], dict) else ""
    if isinstance(loss, Sequence) and not isinstance(loss, str):
        loss = loss[0] if len(loss) == 1 else ""
    if isinstance(loss, str):
        known = tf_keras.losses.get(loss) if loss in dir(tf_keras.losses) else loss
        loss = known
    name = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
    return name if isinstance(name, str) else ""
