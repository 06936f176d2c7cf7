"""Classifies sentences as praise or complaint by averaging word vectors."""

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task, export_base, task_factory
from official.core import config_definitions as cfg

from runner import inputs
from runner.errors import ConfigError

CLASSES = ("negative", "positive")
HERE = Path(__file__).parent


def load_texts(is_training: bool) -> tuple[list[str], list[int]]:
    """Returns the texts and their classes. Load your own data here, or replace the files.

    Each line of train.tsv and validation.tsv has a class, a tab and a text.
    """
    file = HERE / ("train.tsv" if is_training else "validation.tsv")
    texts, classes = [], []
    with file.open(encoding="utf-8", newline="") as lines:
        for number, line in enumerate(lines, start=1):
            name, tab, text = line.rstrip("\r\n").partition("\t")
            if not tab or name not in CLASSES or not text:
                raise ConfigError(
                    f"{file}:{number}: expected one of {', '.join(CLASSES)}, a tab and a text; "
                    f"the line is {line[:80]!r}"
                )
            texts.append(text)
            classes.append(CLASSES.index(name))
    if not texts:
        raise ConfigError(f"{file} has no texts")
    return texts, classes


def to_ids(words: int, length: int) -> tf_keras.layers.TextVectorization:
    """Returns a layer that maps texts, [batch], to the ids of their words, [batch, length]."""
    adapted = tf_keras.layers.TextVectorization(words)
    adapted.adapt(tf.constant(load_texts(is_training=True)[0]))  # only training words have vectors
    known = adapted.get_vocabulary(include_special_tokens=False)
    return tf_keras.layers.TextVectorization(output_sequence_length=length, vocabulary=known)


@dataclasses.dataclass
class SentimentConfig(cfg.TaskConfig):
    """The network and its data.

    Attributes:
        words: The maximum number of distinct words. The most frequent ones are kept.
        length: The number of words read from a text.
        dimensions: The size of each word's vector.
        dropout: The dropout rate after averaging them, in [0, 1).
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
        """Builds the model from word ids, [batch, length], to logits, [batch, classes] float32."""
        config = self.task_config
        return tf_keras.Sequential(
            [
                tf_keras.Input((config.length,), dtype=tf.int64),
                tf_keras.layers.Embedding(config.words, config.dimensions, mask_zero=True),
                tf_keras.layers.GlobalAveragePooling1D(),  # over the words, not the padding
                tf_keras.layers.Dropout(config.dropout),
                tf_keras.layers.Dense(len(CLASSES), dtype="float32"),
            ]
        )

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns batches of word ids and labels. Training data repeat without end."""
        texts, classes = load_texts(params.is_training)
        vectorize = to_ids(self.task_config.words, self.task_config.length)
        ids, labels = vectorize(tf.constant(texts)), tf.constant(classes)

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(ids, index), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(classes), load, config=params, input_context=input_context)

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

    def serving(self, model: tf_keras.Model) -> "Texts":
        """Returns the module that an exported SavedModel applies to texts."""
        return Texts(self.task_config, model)


class Texts(export_base.ExportModule):
    """Classifies raw texts."""

    def __init__(self, params: SentimentConfig, model: tf_keras.Model) -> None:
        super().__init__(params, model)
        self.to_ids = to_ids(params.words, params.length)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to the name of the likeliest class, and the probability of each class."""
        probabilities = tf.nn.softmax(self.model(self.to_ids(text), training=False))
        label = tf.gather(tf.constant(CLASSES), tf.argmax(probabilities, axis=-1))
        return {"label": label, "probabilities": probabilities}

    def get_inference_signatures(self, function_keys: dict[str, str]) -> dict[str, Any]:
        """Returns the signature of `serve`, by its name in `function_keys`."""
        return {function_keys["serve"]: self.serve.get_concrete_function()}
