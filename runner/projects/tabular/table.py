"""Predicts a number from the columns of a table."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import inputs

TARGET = "price"
HELD_OUT = 5  # every fifth row is for evaluation
FILE = Path(__file__).with_name("houses.csv")


def load_table(is_training: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows and what is to be predicted from them; put your own data here, or in the file.

    Returns:
        [N, columns] and [N] float32.
    """
    table = np.genfromtxt(FILE, delimiter=",", names=True, dtype=np.float32)
    columns = [name for name in table.dtype.names or () if name != TARGET]
    is_held_out = np.arange(len(table)) % HELD_OUT == 0
    rows = table[~is_held_out if is_training else is_held_out]
    return np.stack([rows[name] for name in columns], axis=1), rows[TARGET]


@dataclasses.dataclass
class TableConfig(cfg.TaskConfig):
    """The network and its data.

    Attributes:
        hidden: The units of each hidden layer.
    """

    hidden: tuple[int, ...] = (32, 32)
    train_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)
    validation_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)


@task_factory.register_task_cls(TableConfig)
class TableTask(base_task.Task):
    """Learns a number for each row, by its squared error."""

    def build_model(self) -> tf_keras.Model:
        """Rows, [batch, columns], to predictions, [batch, 1] float32."""
        rows, targets = load_table(is_training=True)  # only these set the scales
        model = tf_keras.Sequential(
            [
                tf_keras.Input(rows.shape[1:]),
                tf_keras.layers.Normalization(mean=rows.mean(0), variance=rows.var(0)),
            ]
        )
        for units in self.task_config.hidden:
            model.add(tf_keras.layers.Dense(units, activation="relu"))
        model.add(tf_keras.layers.Dense(1, dtype="float32"))
        model.add(tf_keras.layers.Rescaling(targets.std(), targets.mean(), dtype="float32"))
        return model

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Batches of rows and targets; training data have no end."""
        rows, targets = map(tf.constant, load_table(params.is_training))

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(rows, index), tf.gather(targets, index)[:, tf.newaxis]

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(targets), load, config=params, input_context=input_context)

    def build_losses(
        self, labels: tf.Tensor, model_outputs: tf.Tensor, aux_losses: list | None = None
    ) -> tf.Tensor:
        """The mean squared error, and what the layers add."""
        error = tf.reduce_mean(tf.square(labels - model_outputs))
        return tf.add_n([error, *(aux_losses or [])])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """What is reported beside the loss."""
        del training
        return [tf_keras.metrics.MeanAbsoluteError("error")]
