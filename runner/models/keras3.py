"""Wraps a Keras 3 model as a tf_keras model with the TensorFlow variables behind its weights.

Optimizers, averages, checkpoints and tables then see variables that they know. Checkpoints also
hold Keras 3's other state: that of seed generators and recurrent layers.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from runner.errors import ConfigError
from runner.internals import keras3 as keras3_internals


def is_keras3(model: Any) -> bool:
    """Whether a model is a Keras 3 model rather than a tf_keras one."""
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__)


class Network(tf_keras.Model):
    """A built Keras 3 model.

    Raises:
        ConfigError: it computes with a library other than TensorFlow.
    """

    def __init__(self, network: Any) -> None:
        _check_backend()
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            keras3_internals.average_over_replicas(network.non_trainable_variables)
        super().__init__(name=network.name, autocast=False)
        self._network = lambda: network  # hidden, or tf_keras would track it as a layer
        seen: set[int] = set()
        self.parts = []
        for layer in _layers(network):
            new = [variable for variable in layer.weights if id(variable) not in seen]
            seen |= {id(variable) for variable in new}
            self.parts += [_part(layer, new)] if new else []
        own = [*network.variables, *keras3_internals.recurrent_states(network)]
        others = [v.value for v in own if id(v) not in seen]
        self._state = lambda: others
        self.built = True

    @property
    def network(self) -> Any:
        """The Keras 3 model."""
        return self._network()

    @property
    def inner_layers(self) -> list[Any]:
        """The layers of the Keras 3 model, which tf_keras does not see."""
        return [layer for layer in _layers(self.network) if layer is not self.network]

    @property
    def output_names(self) -> Any:
        """The names of a functional model's outputs, or None for others."""
        return getattr(self.network, "output_names", None)

    @output_names.setter
    def output_names(self, _: Any) -> None:  # tf_keras sets it to None in its constructor
        pass

    @property
    def checkpoint_items(self) -> dict[str, Any]:
        """A checkpoint's content in addition to weights, as Model Garden's trainers expect it."""
        return {"seeds": self._state()}

    @property
    def losses(self) -> list[tf.Tensor]:
        """The losses of `add_loss` and regularizers, from the last call."""
        return self.network.losses

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The network's outputs."""
        return self.network(inputs, training=training)


class _Part(tf_keras.layers.Layer):
    """The variables of one layer."""

    def __init__(self, layer: Any, variables: list[Any]) -> None:
        super().__init__(name=layer.name)
        self._variables = lambda: variables
        self.values = [variable.value for variable in variables]
        self.built = True

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that are neither frozen nor statistics."""
        return [v.value for v in self._variables() if v.trainable]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """The other weights."""
        return [v.value for v in self._variables() if not v.trainable]


@contextlib.contextmanager
def in_precision() -> Iterator[None]:
    """A context in which Keras 3, if the user has imported it, builds in tf_keras's precision."""
    keras: Any = sys.modules.get("keras")
    if keras is None:
        yield
        return
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(tf_keras.mixed_precision.global_policy().name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _part(layer: Any, variables: list[Any]) -> _Part:
    """A part that has its layer's class name in the table of layers."""
    return type(type(layer).__name__, (_Part,), {})(layer, variables)


def _layers(network: Any) -> Iterator[Any]:
    """Yields the layers, also of nested models. The model is last, for its own variables."""
    for layer in network.layers:
        yield from _layers(layer) if hasattr(layer, "layers") else [layer]
    yield network


def _check_backend() -> None:
    keras: Any = sys.modules["keras"]
    if (backend := keras.backend.backend()) != "tensorflow":
        raise ConfigError(
            f"this Keras 3 model computes with {backend}; only TensorFlow can be trained here: set "
            "KERAS_BACKEND=tensorflow before keras is imported"
        )
