"""Trains with Model Garden's `train_lib.run_experiment`, in the command's directory."""

import dataclasses
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging
from official.core import base_task, train_lib
from official.core import config_definitions as cfg

from scripts.ckpt_chaos import data


@dataclasses.dataclass
class SumConfig(cfg.TaskConfig):
    """The task."""


class Sum(base_task.Task):
    """Adds the numbers of each example."""

    def build_model(self) -> tf_keras.Model:
        """See `base_task.Task`."""
        return data.keras_model()

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        """See `base_task.Task`."""
        del params, input_context
        dataset = tf.data.Dataset.from_tensor_slices(data.examples())
        return dataset.shuffle(320, seed=1).repeat().batch(data.BATCH, drop_remainder=True)

    def build_losses(self, labels: Any, model_outputs: Any, aux_losses: Any = None) -> tf.Tensor:
        """See `base_task.Task`."""
        del aux_losses
        return tf.reduce_mean(tf.square(labels - model_outputs))


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    tf_keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    steps = data.EPOCHS * data.STEPS_PER_EPOCH
    every = data.STEPS_PER_EPOCH
    trainer = cfg.TrainerConfig(
        train_steps=steps, steps_per_loop=10, checkpoint_interval=every, summary_interval=every
    )
    trainer.max_to_keep = 10
    trainer.optimizer_config.override(
        {
            "optimizer": {"type": "adam"},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
        }
    )
    experiment = cfg.ExperimentConfig(
        task=SumConfig(train_data=cfg.DataConfig(is_training=True)), trainer=trainer
    )
    train_lib.run_experiment(
        distribution_strategy=tf.distribute.OneDeviceStrategy("cpu:0"),
        task=Sum(experiment.task),
        mode="train",
        params=experiment,
        model_dir=str(data.folder()),
    )
