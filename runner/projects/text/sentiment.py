"""Tells praise from complaints: a bag of words, averaged and classified."""

import csv
import dataclasses
from pathlib import Path

import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import inputs

CLASSES = ("negative", "positive")
HERE = Path(__file__).parent


def load_texts(is_training: bool) -> tuple[list[str], list[int]]:
    """The texts and their classes; put your own data here, or in the files.

    A line of train.tsv and validation.tsv is a class, a tab and a text.
    """
    file = HERE / ("train.tsv" if is_training else "validation.tsv")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [text for _, text in rows], [CLASSES.index(name) for name, _ in rows]


@dataclasses.dataclass
class SentimentConfig(cfg.TaskConfig):
    """The network and its data.

    Attributes:
        words: How many different words are known at most, the most frequent ones.
        length: How many words of a text are read.
        dimensions: The size of each word's vector.
        dropout: The rate after averaging them, in [0, 1).
    """

    words: int = 2000
    length: int = 50
    dimensions: int = 32
    dropout: float = 0.3
    train_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)
    validation_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)


@task_factory.register_task_cls(SentimentConfig)
class SentimentTask(base_task.Task):
    """Learns the class of each text."""

    def build_model(self) -> tf_keras.Model:
        """Ids of words, [batch, length], to logits, [batch, classes] float32."""
        config = self.task_config
        return tf_keras.Sequential(
            [
                tf_keras.Input((config.length,), dtype=tf.int64),
                tf_keras.layers.Embedding(config.words, config.dimensions, mask_zero=True),
                tf_keras.layers.GlobalAveragePooling1D(),  # of the words, not of the padding
                tf_keras.layers.Dropout(config.dropout),
                tf_keras.layers.Dense(len(CLASSES), dtype="float32"),
            ]
        )

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Batches of the words' ids and labels; training data have no end."""
        known, _ = load_texts(is_training=True)  # only these words have vectors
        to_ids = tf_keras.layers.TextVectorization(
            self.task_config.words, output_sequence_length=self.task_config.length
        )
        to_ids.adapt(tf.constant(known))
        texts, classes = load_texts(params.is_training)
        ids, labels = to_ids(tf.constant(texts)), tf.constant(classes)

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(ids, index), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(classes), load, config=params, input_context=input_context)

    def build_losses(
        self, labels: tf.Tensor, model_outputs: tf.Tensor, aux_losses: list | None = None
    ) -> tf.Tensor:
        """The mean cross-entropy, and what the layers add."""
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, model_outputs, from_logits=True
        )
        return tf.add_n([tf.reduce_mean(losses), *(aux_losses or [])])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """What is reported beside the loss."""
        del training
        return [tf_keras.metrics.SparseCategoricalAccuracy("accuracy")]
