"""Calls the steps of a Keras model that overrides `train_step`, `compute_loss` and the like.

Such a model computes its own loss and metrics, and applies its own gradients. The runner gives it
the configured optimizer, and averages the values that its steps return.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.models import compiled, copies, keras3

LOSS = "loss"


class Value(NamedTuple):
    """A value that a step returns.

    Attributes:
        value: A scalar.
        weight: If it is the result of a Mean for this batch, the weight of the batch.
        mean: That Mean, or None for any other value, which the model may have accumulated.
    """

    value: tf.Tensor
    weight: tf.Tensor | None = None
    mean: Any = None


class OwnSteps:
    """The steps of a compiled model.

    Args:
        model: A compiled model of tf_keras or Keras 3, created in the strategy's scope.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._train_step = tf_internals.converted(model.train_step)
        self._test_step = tf_internals.converted(model.test_step)
        self._returned: dict[bool, Sequence[Any]] = {}  # by whether it trains: the Means

    @property
    def can_test(self) -> bool:
        """Whether the model can evaluate: it can be called, or has its own `test_step`."""
        return copies.has_call(self._model) or "test_step" in compiled.overridden(self._model)

    @tf.autograph.experimental.do_not_convert
    def train(self, batch: Any, optimizer: tf_keras.optimizers.Optimizer) -> Mapping[str, Value]:
        """Trains on a batch of one replica. Returns the logs of `train_step`, with a `loss`.

        Args:
            batch: x and (y, sample weights), as in `examples.batch`.
            optimizer: The optimizer that replaces the compiled one.
        """
        given = _ForKeras3(optimizer) if keras3.is_keras3(self._model) else optimizer
        with keras_internals.optimizer_replaced(self._model, given):
            return self._logs(self._train_step, batch, training=True)

    @tf.autograph.experimental.do_not_convert
    def test(self, batch: Any, model: Any) -> Mapping[str, Value]:
        """Evaluates a batch of one replica. Returns the logs of `test_step`, with a `loss`.

        Args:
            batch: As for `train`.
            model: The trained model, or an object that computes its outputs in its place.
        """
        if isinstance(model, tf_keras.Model):
            return self._logs(self._test_step, batch, training=False)
        with keras_internals.call_replaced(self._model, model):
            return self._logs(self._test_step, batch, training=False)

    def metrics(self, specs: Any, *, training: bool) -> list["Logged"]:
        """Traces a step, and returns a metric for each value that it returns in addition to a loss.

        Args:
            specs: The specification of a batch.
            training: Whether to trace `train_step`. It uses an optimizer that is then dropped.
        """
        found: dict[str, Value] = {}
        optimizer = tf_keras.optimizers.SGD(0.0)
        trained = self._model.trainable_variables
        optimizer.build([each.value if _is_keras3(each) else each for each in trained])

        def step(*batch: Any) -> None:
            if training:
                found.update(self.train(batch, optimizer))
            else:
                found.update(self._logs(self._test_step, batch, training=False))

        run = tf.distribute.get_strategy().run
        tf.function(lambda *batch: run(step, args=batch), autograph=False).get_concrete_function(
            *specs
        )
        returned = {id(each.mean): each.mean for each in found.values() if each.mean is not None}
        self._returned[training] = list(returned.values())
        held = [metric for metric in self._metrics() if id(metric) not in returned]
        made = [
            Logged(name, is_mean=each.mean is not None)
            for name, each in found.items()
            if name != LOSS
        ]
        if made and held:
            made[0].hold(held)
        return made

    def _metrics(self) -> Iterator[Any]:
        """Yields the model's metrics, also those within the containers of Keras 3."""
        for metric in self._model.metrics:
            yield from getattr(metric, "metrics", None) or [metric]

    def _logs(self, step: Callable[[Any], Any], batch: Any, *, training: bool) -> dict[str, Value]:
        """Runs a step, and adds a `loss` to its logs if they have none.

        Means that it returns are reset before, so that they have the values of single batches.
        """
        means = self._returned.get(training)
        if means is None:  # the first trace shows which ones it returns
            means = [metric for metric in self._metrics() if _is_mean(metric)]
        for metric in means:
            metric.reset_state()
        with (
            keras_internals.losses_recorded(self._model) as computed,
            keras_internals.results_recorded(means) as results,
        ):
            logs = step(_data(batch))
        found = dict(_flat(logs))
        if LOSS not in found:
            parts = [value for name, value in found.items() if name.endswith(LOSS)]
            found[LOSS] = tf.add_n(parts or computed or list(found.values())[:1])
        owners = {id(result): metric for metric, result in results}
        return {name: _value(each, owners.get(id(each))) for name, each in found.items()}


def _value(value: Any, mean: Any) -> Value:
    scalar = tf.reduce_mean(tf.cast(value, tf.float32))
    if mean is None:
        return Value(scalar)
    count = mean.count.value if _is_keras3(mean.count) else mean.count
    return Value(scalar, tf.cast(count, tf.float32), mean)


class Network(tf_keras.Model):
    """A model of tf_keras with its own steps, whose metrics Model Garden's trainer does not see.

    The trainer would log them a second time.
    """

    def __init__(self, network: tf_keras.Model) -> None:
        super().__init__(name=network.name)
        self.network = network
        self.output_names = getattr(network, "output_names", None)
        self.built = True

    @property
    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """No metrics."""
        return []

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The network's outputs."""
        return self.network(inputs, training=training)


class Logged(tf_keras.metrics.Mean):
    """A value that the model's steps return: its mean over batches, or the last one.

    The last one is the value of a metric of the model, which accumulates it.
    """

    def __init__(self, name: str, *, is_mean: bool) -> None:
        super().__init__(name)
        self._is_mean = is_mean
        self._held: Any = lambda: ()
        self._values: list[tf.Variable] = []

    def hold(self, metrics: list[Any]) -> None:
        """Resets and saves metrics of the model together with this one."""
        self._held = lambda: metrics
        values = [each for metric in metrics for each in metric.variables]
        self._values = [each.value if _is_keras3(each) else each for each in values]

    def update_state(self, values: Any, sample_weight: Any = None) -> Any:
        """Adds the value of a batch."""
        if not self._is_mean:
            self.total.assign(0.0)
            self.count.assign(0.0)
        return super().update_state(values, sample_weight)

    def reset_state(self) -> None:
        """Resets the value, and the metrics that it holds."""
        super().reset_state()
        for metric in self._held():
            metric.reset_state()


class _ForKeras3:
    """An optimizer of tf_keras with the interface that steps of Keras 3 models use."""

    def __init__(self, optimizer: tf_keras.optimizers.Optimizer) -> None:
        self._optimizer = optimizer

    def apply_gradients(self, grads_and_vars: Any) -> None:
        """Updates variables of Keras 3 or TensorFlow."""
        pairs = [(grad, getattr(each, "value", each)) for grad, each in grads_and_vars]
        self._optimizer.apply_gradients(pairs)

    def apply(self, grads: Any, trainable_variables: Any) -> None:
        """Updates variables, given separately from their gradients."""
        self.apply_gradients(zip(grads, trainable_variables, strict=True))

    def scale_loss(self, loss: Any) -> Any:
        """The loss, scaled for float16."""
        scaled = getattr(self._optimizer, "get_scaled_loss", None)
        return scaled(loss) if scaled else loss

    @property
    def learning_rate(self) -> Any:
        """The current learning rate."""
        return self._optimizer.learning_rate

    @property
    def iterations(self) -> tf.Variable:
        """The number of updates."""
        return self._optimizer.iterations


def has_own_steps(model: Any) -> bool:
    """Whether a model overrides parts of training that the runner then has to call."""
    return bool(compiled.overridden(model))


def _flat(logs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the values in logs, also those that a container of metrics returns as a dict."""
    for name, value in logs.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif value is not None:
            yield name, value


def _data(batch: Any) -> Any:
    """x, (x, y) or (x, y, sample_weight), as Keras gives them to steps."""
    x, (y, weight) = batch
    if isinstance(y, tuple) and not y:
        return (x,) if isinstance(x, tuple | list) else x
    return (x, y) if isinstance(weight, tuple) and not weight else (x, y, weight)


def _is_mean(metric: Any) -> bool:
    return type(metric).__name__ == "Mean" and compiled.is_keras(type(metric))


def _is_keras3(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "keras"
