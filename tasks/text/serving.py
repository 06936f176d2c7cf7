"""The common part of exported models that take strings."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import export_base
from official.modeling.hyperparams import base_config

STRINGS = tf.TensorSpec([None], tf.string)


class StringServing(export_base.ExportModule):
    """A model with a `serve` method, which a subclass defines as a `tf.function` with a signature.

    To load the export, import `tensorflow_text` first. None of our code is needed.
    """

    def __init__(self, params: base_config.Config, model: tf_keras.Model) -> None:
        super().__init__(params, model)
        # Only the weights and `serve` are saved. If TensorFlow tracked the model as an attribute,
        # it would also save it as a Keras model, tracing each of its layers several times.
        self._weights = model.variables
        del self.model
        object.__setattr__(self, "model", model)

    def get_inference_signatures(self, function_keys: Mapping[str, str]) -> Mapping[str, Any]:
        """The signature of `serve`, by its name in `function_keys`."""
        return {function_keys["serve"]: self.serve.get_concrete_function()}
