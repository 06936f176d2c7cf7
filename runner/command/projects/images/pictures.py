"""Classifies images of shapes with a small convolutional network."""

import dataclasses

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import inputs

CLASSES = ("disc", "square", "cross")
SIZE = 24  # pixels


def load_pictures(is_training: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images and their classes. Load your own data here.

    Returns:
        [N, height, width, channels] uint8 and [N] int32. Evaluation data must not overlap with
        training data.
    """
    random = np.random.default_rng(0 if is_training else 1)
    labels = np.arange(900 if is_training else 300, dtype=np.int32) % len(CLASSES)
    pictures = np.stack([draw(CLASSES[label], random) for label in labels])
    return pictures, labels


def draw(shape: str, random: np.random.Generator) -> np.ndarray:
    """Draws a shape at a random position in a noisy image: [SIZE, SIZE, 1] uint8."""
    y, x = np.mgrid[:SIZE, :SIZE] - random.uniform(SIZE / 3, SIZE * 2 / 3, (2, 1, 1))
    radius = random.uniform(3, 7)
    inside = {
        "disc": np.hypot(x, y) < radius,
        "square": np.maximum(abs(x), abs(y)) < radius,
        "cross": (np.minimum(abs(x), abs(y)) < radius / 3) & (np.maximum(abs(x), abs(y)) < radius),
    }[shape]
    noisy = inside * 120 + random.normal(60, 30, inside.shape)
    return noisy.clip(0, 255).astype(np.uint8)[..., None]


@dataclasses.dataclass
class PicturesConfig(cfg.TaskConfig):
    """The network and its data.

    Attributes:
        filters: The number of filters of each convolution.
        dropout: The dropout rate before the last layer, in [0, 1).
    """

    filters: tuple[int, ...] = (16, 32)
    dropout: float = 0.2
    train_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)
    validation_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)


@task_factory.register_task_cls(PicturesConfig)
class PicturesTask(base_task.Task):
    """Learns the class of each image."""

    def build_model(self) -> tf_keras.Model:
        """Builds the model from images to logits, [batch, classes] float32."""
        layers = [tf_keras.Input((SIZE, SIZE, 1)), tf_keras.layers.Rescaling(1 / 255)]
        for filters in self.task_config.filters:
            layers += [
                tf_keras.layers.Conv2D(filters, 3, padding="same", activation="relu"),
                tf_keras.layers.MaxPool2D(),
            ]
        layers += [
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dropout(self.task_config.dropout),
            tf_keras.layers.Dense(len(CLASSES), dtype="float32"),
        ]
        return tf_keras.Sequential(layers)

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns batches of images and labels. Training data repeat without end."""
        pictures, labels = map(tf.constant, load_pictures(params.is_training))

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(pictures, index), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(labels), load, config=params, input_context=input_context)

    def build_losses(
        self, labels: tf.Tensor, model_outputs: tf.Tensor, aux_losses: list | None = None
    ) -> tf.Tensor:
        """Returns the mean cross-entropy plus the losses of the layers."""
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, model_outputs, from_logits=True
        )
        return tf.add_n([tf.reduce_mean(losses), *(aux_losses or [])])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns the metrics to report in addition to the loss."""
        del training
        return [tf_keras.metrics.SparseCategoricalAccuracy("accuracy")]
