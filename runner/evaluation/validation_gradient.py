"""The norm of the gradient of one batch of validation data, without dropout."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task

from runner.errors import ConfigError
from runner.internals import tensorflow as tf_internals

NAME = "validation_gradient_norm"


class ValidationGradient:
    """Measures the gradient of the validation loss on the first batch.

    Args:
        task: Returns its loss from `validation_step`.
        model: The model.
        strategy: The distribution strategy.
    """

    def __init__(
        self, task: base_task.Task, model: tf_keras.Model, strategy: tf.distribute.Strategy
    ) -> None:
        self._task = task
        self._step = tf_internals.converted(task.validation_step)
        self._model = model
        self._strategy = strategy
        self._norm = tf.function(self._of_batch, autograph=False)

    def norm(self, iterator: Iterator[Any]) -> tf.Tensor:
        """Takes a batch. Returns the global norm of the replicas' mean gradient, a scalar.

        Raises:
            ConfigError: The task's validation has no loss that depends on the model's variables.
        """
        return self._norm(next(iterator))

    def _of_batch(self, batch: Any) -> tf.Tensor:
        norms = self._strategy.run(self._of_replica, args=(batch,))
        return self._strategy.reduce("mean", norms, axis=None)

    def _of_replica(self, batch: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = self._step(batch, model=self._model, metrics=None).get(self._task.loss)
            loss = None if loss is None else tf.reduce_mean(loss)
        variables = self._model.trainable_variables
        found = [] if loss is None else tape.gradient(loss, variables)
        gradients = [tf.convert_to_tensor(each) for each in found if each is not None]
        if not gradients:
            raise ConfigError(
                "RunConfig.log_validation_gradient_norm: the loss that "
                f"{type(self._task).__name__}.validation_step returns has no gradient"
            )
        replicas = tf.distribute.get_replica_context()
        return tf.linalg.global_norm(replicas.all_reduce("mean", gradients))
