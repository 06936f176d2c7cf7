"""Predicts a number from the columns of a table."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import inputs
from runner.errors import ConfigError

TARGET = "price"
HELD_OUT = 5  # every fifth row is used for evaluation
FILE = Path(__file__).with_name("houses.csv")


def load_table(is_training: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows and their targets. Load your own data here, or replace the CSV file.

    Returns:
        [N, columns] and [N] float32.
    """
    names, table = read_table(FILE)
    if TARGET not in names:
        raise ConfigError(f"{FILE} has no column {TARGET!r}; it has {', '.join(names) or 'none'}")
    if len(table) <= HELD_OUT:
        raise ConfigError(f"{FILE} has {len(table)} rows, which are too few to hold some out")
    target = names.index(TARGET)
    is_held_out = np.arange(len(table)) % HELD_OUT == 0
    rows = table[~is_held_out if is_training else is_held_out]
    return np.delete(rows, target, axis=1), rows[:, target]


def read_table(file: Path) -> tuple[list[str], np.ndarray]:
    """Reads a CSV file of numbers with a header: the names, and [rows, columns] float32."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, skipinitialspace=True)
        names = next(reader, [])
        rows = [_numbers(names, row, f"{file}:{reader.line_num}") for row in reader if row]
    return names, np.array(rows, np.float32).reshape(len(rows), len(names))


def _numbers(names: list[str], row: list[str], place: str) -> list[float]:
    if len(row) != len(names):
        raise ConfigError(f"{place}: {len(row)} values for {len(names)} columns")
    numbers = []
    for name, value in zip(names, row, strict=True):
        try:
            number = np.float32(value)
        except ValueError:
            number = np.float32("nan")
        if not np.isfinite(number):
            raise ConfigError(
                f"{place}: column {name!r} has {value!r}, not a number: "
                "fill it in, or remove the row"
            )
        numbers.append(number)
    return numbers


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
    """Learns a number for each row by minimizing the squared error."""

    def build_model(self) -> tf_keras.Model:
        """Builds the model from rows, [batch, columns], to predictions, [batch, 1] float32."""
        rows, targets = load_table(is_training=True)  # scales from training data only
        variance = np.where(rows.var(0) > 0, rows.var(0), 1)  # 1 for constant columns
        model = tf_keras.Sequential(
            [
                tf_keras.Input(rows.shape[1:]),
                tf_keras.layers.Normalization(mean=rows.mean(0), variance=variance),
            ]
        )
        for units in self.task_config.hidden:
            model.add(tf_keras.layers.Dense(units, activation="relu"))
        model.add(tf_keras.layers.Dense(1, dtype="float32"))
        scale = targets.std() or 1.0
        model.add(tf_keras.layers.Rescaling(scale, targets.mean(), dtype="float32"))
        return model

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns batches of rows and targets. Training data repeat without end."""
        rows, targets = map(tf.constant, load_table(params.is_training))

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(rows, index), tf.gather(targets, index)[:, tf.newaxis]

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(targets), load, config=params, input_context=input_context)

    def build_losses(
        self, labels: tf.Tensor, model_outputs: tf.Tensor, aux_losses: list | None = None
    ) -> tf.Tensor:
        """Returns the mean squared error plus the losses of the layers."""
        error = tf.reduce_mean(tf.square(labels - model_outputs))
        return tf.add_n([error, *(aux_losses or [])])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns the metrics to report in addition to the loss."""
        del training
        return [tf_keras.metrics.MeanAbsoluteError("error")]
