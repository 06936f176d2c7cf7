"""The arguments of a model's `compile`, in the form that tf_keras's containers take."""

import contextlib
import contextvars
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from runner.core import user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals
from runner.models import keras3

STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")
"""Methods of a model that replace the computation of its loss and metrics, if it overrides them."""

_are_flat = contextvars.ContextVar("whether labels and weights have one dimension", default=False)

_SPECIAL = ("accuracy", "acc", "crossentropy", "ce")  # they depend on the shapes
_REDUCTIONS = {
    "sum_over_batch_size": tf_keras.losses.Reduction.SUM_OVER_BATCH_SIZE,
    "mean": tf_keras.losses.Reduction.SUM_OVER_BATCH_SIZE,
    "sum": tf_keras.losses.Reduction.SUM,
    "none": tf_keras.losses.Reduction.NONE,
    None: tf_keras.losses.Reduction.NONE,
}


class Compiled(NamedTuple):
    """The arguments of `compile`: names, functions, classes, objects, or serialized objects.

    Attributes:
        loss: One for all outputs, or a list or dict with one for each.
        metrics: In the same form.
        loss_weights: The weights of the outputs' losses.
        weighted_metrics: Metrics that use sample weights.
    """

    loss: Any = None
    metrics: Any = None
    loss_weights: Any = None
    weighted_metrics: Any = None


def of(model: Any) -> Compiled | None:
    """The compile arguments of a model of tf_keras or Keras 3, or None if it was not compiled."""
    if not keras3.is_keras3(model):
        found = keras_internals.compile_arguments(model)
        return None if found is None else Compiled(**found)
    found = keras3_internals.compile_arguments(model)
    if found is None:
        return None
    return Compiled(
        mapped(found["loss"], _casting),
        mapped(found["metrics"], _metric),
        found["loss_weights"],
        mapped(found["weighted_metrics"], _metric),
    )


@contextlib.contextmanager
def labels_kept_flat(labels: Any) -> Iterator[None]:
    """Gives labels [n] to metrics of Keras 3 as they are. tf_keras makes them [n, 1].

    Args:
        labels: The labels of all outputs. Nothing changes if some of them have another rank.
    """
    known = (getattr(part, "shape", None) for part in tf.nest.flatten(labels))
    token = _are_flat.set(all(shape is not None and shape.rank == 1 for shape in known))
    try:
        yield
    finally:
        _are_flat.reset(token)


def _flat(value: Any) -> Any:
    """Undoes what tf_keras does to labels and weights of one dimension."""
    is_expanded = value is not None and value.shape.rank == 2 and value.shape[-1] == 1
    return tf.squeeze(value, -1) if is_expanded and _are_flat.get() else value


def overridden(model: Any) -> list[str]:
    """The methods among `STEPS` that a model's class overrides."""
    own = (name for name in STEPS if hasattr(type(model), name))
    return [name for name in own if not is_keras(getattr(type(model), name))]


def objects(given: Any) -> Any:
    """Converts one of the arguments in `Compiled`. Each metric is a new object.

    Raises:
        ConfigError: a serialized object cannot be created in this process, or a loss of Keras 3
            has a reduction that tf_keras lacks.
    """
    return mapped(given, _object)


def gives_logits(loss: Any) -> bool:
    """Whether a loss takes logits, according to its `from_logits`."""
    if isinstance(loss, dict):
        return bool((loss.get("config") or {}).get("from_logits"))
    stated = keras3_internals.takes_logits(loss)
    if stated is not None:
        return stated
    return bool(hasattr(loss, "get_config") and loss.get_config().get("from_logits"))


class _Loss(tf_keras.losses.Loss):
    """A loss of Keras 3 that tf_keras does not have, such as the user's own."""

    def __init__(self, loss: Any) -> None:
        if loss.reduction not in _REDUCTIONS:
            raise ConfigError(
                f"the loss {loss.name!r} has reduction={loss.reduction!r}, which is not supported: "
                "use 'sum_over_batch_size', 'sum' or None"
            )
        super().__init__(_REDUCTIONS[loss.reduction], loss.name)
        self._loss = loss

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """The losses of the examples."""
        return self._loss.call(_cast(y_true, self._loss.dtype), _cast(y_pred, self._loss.dtype))


class _Metric(tf_keras.metrics.Metric):
    """A metric of Keras 3 that tf_keras does not have, such as the user's own."""

    def __init__(self, metric: Any) -> None:
        super().__init__(metric.name)
        self._metric = lambda: metric  # hidden, or tf_keras would track it
        self._values: list[tf.Variable] = []
        self._find()

    @tf.autograph.experimental.do_not_convert
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        weight = _flat(sample_weight)
        self._metric().update_state(_flat(y_true), y_pred, sample_weight=weight)
        if len(self._metric().variables) != len(self._values):
            self._find()

    @tf.autograph.experimental.do_not_convert
    def result(self) -> Any:
        """The metric's value."""
        return self._metric().result()

    def reset_state(self) -> None:
        """Sets the metric to its initial state."""
        self._metric().reset_state()

    def _find(self) -> None:
        self._values = [variable.value for variable in self._metric().variables]


class _IntegerLabels:
    """Lets a metric for one-hot labels take class numbers, as `accuracy` does."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Adds a batch."""
        classes = y_pred.shape[-1]
        labels = tf.convert_to_tensor(y_true)
        if labels.shape.rank and labels.shape[-1] == 1 and labels.shape.rank == len(y_pred.shape):
            labels = tf.squeeze(labels, -1)
        if classes > 1 and labels.shape.rank == len(y_pred.shape) - 1:
            labels = tf.one_hot(tf.cast(labels, tf.int32), classes)
        else:
            labels = y_true
        above: Any = super()
        return above.update_state(labels, y_pred, sample_weight)


def mapped(given: Any, convert: Callable[[Any], Any]) -> Any:
    """Converts each loss or metric in a list, dict or nest of them."""
    if isinstance(given, dict) and "class_name" not in given:
        return {key: mapped(part, convert) for key, part in given.items()}
    if isinstance(given, list | tuple):
        return [mapped(part, convert) for part in given]
    return convert(given)


def _object(given: Any) -> Any:
    if isinstance(given, dict):
        return _object(_deserialized(given))
    if isinstance(given, str):
        return _by_name(given)
    if inspect.isclass(given):
        kind: Any = given
        return _object(kind(name=_snake(given.__name__)))
    if isinstance(given, tf_keras.metrics.Metric):
        return _new_metric(given)
    if given is not None and keras3.is_keras3(given) and hasattr(given, "get_config"):
        return _from_keras3(given)
    return given


def _by_name(name: str) -> Any:
    """A name as it is if tf_keras knows it, or a metric for the name that Keras 3 gives it."""
    if name in _SPECIAL or hasattr(tf_keras.losses, name):
        return name
    kind = getattr(tf_keras.metrics, name, None)
    kind = kind or dict(_named_metrics()).get(name)
    takes_classes = inspect.isclass(kind) and issubclass(kind, tf_keras.metrics.FBetaScore)
    if takes_classes or (kind is not None and not hasattr(tf_keras.metrics, name)):
        return _object(kind)
    return name


def _named_metrics() -> Iterator[tuple[str, type]]:
    """Yields `("r2_score", R2Score)` for every metric of tf_keras."""
    for name, kind in vars(tf_keras.metrics).items():
        if inspect.isclass(kind):
            yield _snake(name), kind


def _snake(name: str) -> str:
    """`r2_score` for `R2Score`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _new_metric(metric: tf_keras.metrics.Metric) -> tf_keras.metrics.Metric:
    kind: Any = type(metric)
    if isinstance(metric, tf_keras.metrics.FBetaScore) and not isinstance(metric, _IntegerLabels):
        kind = type(kind.__name__, (_IntegerLabels, kind), {})
    try:
        return kind.from_config(metric.get_config())
    except (TypeError, ValueError, NotImplementedError):
        return metric  # its state is reset and restored like that of a new one


def _from_keras3(given: Any) -> Any:
    """The object of tf_keras with the same class and arguments, or a wrapper."""
    import keras

    if type(given).__module__.startswith("keras."):
        try:
            stored = keras3_internals.whole(keras.saving.serialize_keras_object(given), given)
            return _object(tf_keras.saving.deserialize_keras_object(stored, safe_mode=False))
        except (TypeError, ValueError, AttributeError):
            pass  # tf_keras has no such class, or it takes other arguments
    if isinstance(given, keras.losses.Loss):
        return _Loss(given)
    if isinstance(given, keras.metrics.Metric):
        try:
            return _Metric(type(given).from_config(given.get_config()))
        except (TypeError, ValueError, NotImplementedError):
            return _Metric(given)
    return given


def _metric(given: Any) -> Any:
    """Makes a metric of Keras 3 behave as there: its name, and what a function gets."""
    import keras

    if inspect.isfunction(given):

        @functools.wraps(given)
        def called(y_true: Any, y_pred: Any) -> Any:
            return given(_flat(_cast(y_true, y_pred.dtype)), y_pred)

        return called
    if isinstance(given, str) and given.lower() not in _SPECIAL:
        kind: Any = getattr(keras.metrics, given, None)
        return kind(name=given) if isinstance(kind, type) else given
    return given


def _casting(given: Any) -> Any:
    """Makes a function get its labels as floats, as in Keras 3. Other arguments stay."""
    if not inspect.isfunction(given):
        return given

    @functools.wraps(given)
    def called(y_true: Any, y_pred: Any) -> Any:
        return given(_cast(y_true, y_pred.dtype), y_pred)

    return called


def _cast(value: Any, dtype: Any) -> Any:
    def cast(part: Any) -> Any:
        part = tf.convert_to_tensor(part)
        return part if part.dtype == tf.string else tf.cast(part, dtype)

    return tf.nest.map_structure(cast, value)


def is_keras(code: Any) -> bool:
    """Whether a class or function belongs to tf_keras or Keras 3."""
    return code.__module__.partition(".")[0] in ("keras", "tf_keras")


def _deserialized(given: dict[str, Any]) -> Any:
    try:
        own = user_code.of_script()
        return tf_keras.saving.deserialize_keras_object(given, custom_objects=own, safe_mode=False)
    except (TypeError, ValueError) as error:
        if not str(given.get("module", "")).startswith("keras"):
            name = given["config"] if given["class_name"] == "function" else given["class_name"]
            raise ConfigError(
                f"{name} cannot be created in this process: define it in a module that can be "
                "imported, or run the script that defines it"
            ) from error
    import keras

    return keras.saving.deserialize_keras_object(given)
