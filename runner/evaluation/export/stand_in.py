"""A proxy for the model in a task's steps, with which they score an exported file."""

from typing import Any

import numpy as np
import tensorflow as tf

from runner.evaluation.export import signatures
from runner.internals import keras as keras_internals


class StandIn(tf.Module):
    """Replaces a model in a task's steps, and calls `run` instead.

    Args:
        model: Provides its losses, and all other attributes that a task uses.
        own: The model's signature.

    Attributes:
        run: Maps the inputs to the outputs, by name.
        examples: The number of examples received.
        one: The first of them, a batch of one.
        error: The exception of `run`.
    """

    def __init__(self, model: Any, own: signatures.ModelSignature) -> None:
        super().__init__()
        self._model = model
        self._own = own
        self._adds_losses = keras_internals.adds_losses(getattr(model, "network", model))
        self.run: signatures.Run = lambda _: {}
        self.examples = 0
        self.one: dict[str, np.ndarray] = {}
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_model"), name)

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns the outputs, structured like the model's."""
        del training
        if self._adds_losses:  # the file does not have those of activations
            self._model(inputs, training=False)
        given = signatures.named(inputs, self._own)
        names, specs = list(given), list(self._own.outputs.values())

        def run(*arrays: np.ndarray) -> list[np.ndarray]:
            return self._run(dict(zip(names, arrays, strict=True)))

        types = [each.dtype for each in specs]
        flat = tf.nest.flatten(tf.numpy_function(run, list(given.values()), types))
        for tensor, spec in zip(flat, specs, strict=True):
            tensor.set_shape([None, *spec.shape[1:]])  # of any size, regardless of the declared one
        return tf.nest.pack_sequence_as(self._own.nested_outputs, flat)

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        batch = len(next(iter(inputs.values())))
        if not self.examples:
            self.one = {name: array[:1].copy() for name, array in inputs.items()}
        self.examples += batch
        try:
            found = self.run(inputs)
        except Exception as error:
            self.error = error
            raise
        return [
            np.asarray(found[name], spec.dtype.as_numpy_dtype)
            for name, spec in self._own.outputs.items()
        ]
