"""Aspect sentiment: predicts the polarity of a sentence towards an aspect that it mentions."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import task_factory
from official.modeling import tf_utils

from runner import inputs
from tasks.aspects import (
    aspect_data,
    aspect_features,
    aspect_models,
    aspect_serving,
    aspect_task,
    macro_f1,
    three_lines,
)
from tasks.text import bert


@dataclasses.dataclass
class AspectSentimentConfig(aspect_task.AspectConfig):
    """A model, its training examples, and the examples it is evaluated on.

    Attributes:
        model: the model.
    """

    model: aspect_models.ModelConfig = dataclasses.field(default_factory=aspect_models.ModelConfig)


@task_factory.register_task_cls(AspectSentimentConfig)
class AspectSentimentTask(aspect_task.AspectTask):
    """Learns and scores polarities."""

    @functools.cached_property
    def reader(self) -> aspect_features.Reader:
        """Converts strings to the model's features."""
        config = self.task_config
        return aspect_models.build_reader(config.model, config.window, self.texts())

    def build_model(self) -> tf_keras.Model:
        """The configured model, from the reader's features to logits [batch, polarities].

        Raises:
            ConfigError: the vocabulary does not fit `init_checkpoint`, or `aspect_models.build`
                rejects the configuration.
        """
        config, reader = self.task_config, self.reader
        if isinstance(reader, aspect_features.PairReader):
            bert.check_vocabulary(config.init_checkpoint, reader.pieces)
        return aspect_models.build(config.model, reader, len(self.polarities))

    def build_inputs(
        self,
        params: aspect_data.AspectData,
        input_context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Pairs of the model's features and polarities [batch] int32.

        Raises:
            ConfigError: the data cannot be read, or have an unknown polarity.
        """
        examples = self.examples(params)
        labels = aspect_data.numbers(examples, self.polarities)
        with tf.device("cpu:0"):  # the input pipeline runs there
            encoded = self.encoded(params, self.reader)
            if self.reader.reads_neighbours:
                whole = tf.constant([example.sentence for example in examples])
                encoded.append(aspect_features.around(whole, *encoded[:2]))

        @tf.autograph.experimental.do_not_convert
        def load(index: tf.Tensor) -> tuple[aspect_features.Features, tf.Tensor]:
            parts = [tf.gather(part, index) for part in encoded]
            return self.reader.features(*parts), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(examples), load, config=params, input_context=input_context)

    @tf.autograph.experimental.do_not_convert
    def build_losses(
        self,
        labels: tf.Tensor,
        model_outputs: tf.Tensor,
        aux_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The mean cross-entropy of a batch (0 if it is empty) plus the model's own losses.

        Args:
            labels: [batch] integers.
            model_outputs: logits, [batch, polarities].
            aux_losses: scalars, such as weight penalties.

        Returns:
            A float32 scalar.
        """
        losses = tf_keras.losses.sparse_categorical_crossentropy(
            labels, model_outputs, from_logits=True
        )
        return tf.add_n([tf_utils.safe_mean(losses), *(aux_losses or ())])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Accuracy and macro-averaged F1, in training and in validation."""
        del training
        return [
            tf_keras.metrics.SparseCategoricalAccuracy("accuracy"),
            macro_f1.MacroF1(len(self.polarities)),
        ]

    def prediction(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Converts logits [batch, polarities] to each polarity's probability, [batch] by name."""
        return {"probabilities": self.probabilities(outputs)}

    def averaged(self, outputs: tf.Tensor) -> tf.Tensor:
        """The values that ensembles average: the probabilities, [batch, polarities]."""
        return tf.nn.softmax(tf.cast(outputs, tf.float32))

    def from_averaged(self, averaged: tf.Tensor) -> tf.Tensor:
        """Logits [batch, polarities] with these probabilities."""
        return tf.math.log(tf.maximum(averaged, 1e-12))

    def averaged_classes(self) -> tuple[str, ...]:
        """The polarities."""
        return self.polarities

    def serving(self, model: tf_keras.Model) -> aspect_serving.AspectServing:
        """The signature for an export, which takes strings."""
        return aspect_serving.AspectServing(self.task_config, model, self.reader, self.polarities)

    def score_served(
        self, serve: Callable[..., Mapping[str, np.ndarray]], data: aspect_data.AspectData
    ) -> dict[str, float]:
        """The validation metrics of an exported model that takes strings.

        Args:
            serve: maps `sentence` and `aspect`, [batch] each, to the outputs of `serving`.
            data: the validation data.
        """
        metrics = self.build_metrics(training=False)
        for part in _together(self.examples(data), data.global_batch_size):
            sentences = [f"{e.left}{three_lines.MARK}{e.right}" for e in part]
            outputs = serve(sentence=sentences, aspect=[e.aspect for e in part])
            labels = aspect_data.numbers(part, self.polarities)
            self.process_metrics(metrics, labels, outputs["probabilities"])
        return {metric.name: float(metric.result()) for metric in metrics}


def _together(
    examples: Sequence[three_lines.Example], size: int
) -> Iterator[list[three_lines.Example]]:
    """Yields batches of at least `size`, except the last. A sentence's aspects stay together."""
    sentences: dict[str, list[three_lines.Example]] = {}
    for example in examples:
        sentences.setdefault(example.sentence, []).append(example)
    batch: list[three_lines.Example] = []
    for part in sentences.values():
        batch += part
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
