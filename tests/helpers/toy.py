"""A small task for the tests: three classes of random points, and everything a task may return."""

import dataclasses

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import config, inputs


@dataclasses.dataclass
class ToyConfig(cfg.TaskConfig):
    train_data: inputs.DataConfig = dataclasses.field(
        default_factory=lambda: inputs.DataConfig(is_training=True, global_batch_size=8)
    )
    validation_data: inputs.DataConfig = dataclasses.field(
        default_factory=lambda: inputs.DataConfig(is_training=False, global_batch_size=8)
    )
    examples: int = 30
    validation_examples: int = 17
    dropout: float = 0.5
    repeats: bool = True


@task_factory.register_task_cls(ToyConfig)
class ToyTask(base_task.Task):
    def build_model(self):
        points = tf_keras.Input((4,))
        x = tf_keras.layers.Dense(8, activation="relu")(points)
        x = tf_keras.layers.Dropout(self.task_config.dropout)(x)
        return tf_keras.Model(points, tf_keras.layers.Dense(3, dtype="float32")(x))

    def build_inputs(self, params, input_context=None):
        config = self.task_config
        size = config.examples if params.is_training else config.validation_examples
        points, labels = data(size)
        if not size:
            return tf.data.Dataset.from_tensor_slices((points, labels)).batch(8)

        def load(index):
            return tf.gather(points, index), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        dataset = place(size, load, config=params, input_context=input_context)
        return dataset if self.task_config.repeats else dataset.take(5)

    def build_losses(self, labels, model_outputs, aux_losses=None):
        del aux_losses
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, model_outputs, from_logits=True
        )
        return tf.reduce_mean(losses)  # NaN for no example: an empty replica must not count

    def build_metrics(self, training=True):
        del training
        return [tf_keras.metrics.SparseCategoricalAccuracy("accuracy")]


def data(size):
    """[size, 4] float32 points and [size] labels that depend on them."""
    points = np.random.default_rng(0).normal(size=(size, 4)).astype(np.float32)
    return points, np.argmax(points[:, :3], axis=1).astype(np.int32)


def experiment(overrides=None, **task):
    """An experiment over the toy task; `overrides` are nested as in YAML."""
    made = config.Experiment(task=ToyConfig(**task))
    made.override(
        {
            "runtime": {"distribution_strategy": "off"},
            "trainer": {
                "train_steps": 40,
                "steps_per_loop": 10,
                "summary_interval": 10,
                "checkpoint_interval": 20,
                "validation_interval": 20,
                "best_checkpoint_eval_metric": "accuracy",
                "optimizer_config": {
                    "optimizer": {"type": "adam"},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
                },
            },
        }
    )
    made.override(overrides or {})
    return made
