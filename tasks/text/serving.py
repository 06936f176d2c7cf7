"""What exported models that take strings have in common."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import export_base
from official.modeling.hyperparams import base_config

STRINGS = tf.TensorSpec([None], tf.string)


class StringServing(export_base.ExportModule):
    """A model behind `serve`, which a subclass makes a `tf.function` with a signature.

    Import `tensorflow_text` before loading it; none of our code is needed.
    """

    def __init__(self, params: base_config.Config, model: tf_keras.Model) -> None:
        super().__init__(params, model)
        # What is saved: the weights and `serve`. As an attribute that TensorFlow tracks, the model
        # would be saved as a Keras model, too, and each of its layers be traced several times.
        self._weights = model.variables
        del self.model
        object.__setattr__(self, "model", model)

    def get_inference_signatures(self, function_keys: Mapping[str, str]) -> Mapping[str, Any]:
        """The signature of `serve`, by the name that `function_keys` gives it."""
        return {function_keys["serve"]: self.serve.get_concrete_function()}
