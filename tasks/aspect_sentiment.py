"""Aspect sentiment: predicts the polarity of a sentence towards an aspect that it mentions."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg
from official.modeling import tf_utils

from runner import inputs
from runner.core import console
from runner.errors import ConfigError
from tasks.aspects import (
    aspect_data,
    aspect_features,
    aspect_models,
    aspect_serving,
    macro_f1,
    three_lines,
)
from tasks.files import fetching
from tasks.text import bert


@dataclasses.dataclass
class AspectSentimentConfig(cfg.TaskConfig):
    """A model, its training examples, and the examples it is evaluated on.

    `init_checkpoint` may name a checkpoint of another run, or one of Model Garden's pretrained
    encoders, saved as `encoder`. The BERT models take the encoder from either.

    Attributes:
        model: the model.
        train_data: by default four fifths of the synthetic sentences.
        validation_data: by default the other fifth.
        vocabulary_paths: more files of examples, such as the test set, whose words are added to the
            vocabulary of a model that uses word embeddings. Their labels are not read.
        polarities: the names of the classes, in order. Empty: those in the training data, sorted.
        window: the maximum number of words or pieces before the aspect, in it, and after it.
    """

    model: aspect_models.ModelConfig = dataclasses.field(default_factory=aspect_models.ModelConfig)
    train_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.AspectData(is_training=True)
    )
    validation_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.AspectData(is_training=False)
    )
    vocabulary_paths: tuple[str, ...] = ()
    polarities: tuple[str, ...] = ()
    window: int = 64


@task_factory.register_task_cls(AspectSentimentConfig)
class AspectSentimentTask(base_task.Task):
    """Learns and scores polarities. Each source is read once, when first needed."""

    def __init__(
        self,
        params: AspectSentimentConfig,
        logging_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(params, logging_dir=logging_dir, name=name)
        _check(params)
        self._read = functools.cache(aspect_data.read)

    @functools.cached_property
    def polarities(self) -> tuple[str, ...]:
        """The names of the classes.

        Raises:
            ConfigError: there is only one.
        """
        config = self.task_config
        examples = self._examples(config.train_data)
        train, validation = map(aspect_data.source_of, (config.train_data, config.validation_data))
        if train.paths == validation.paths:  # so the classes do not depend on the split
            examples = examples + self._examples(config.validation_data)
        names = tuple(config.polarities) or aspect_data.polarities(examples)
        if train.paths and not config.polarities:
            counts = collections.Counter(example.polarity for example in examples)
            shown = (f"{name} {counts[name]:,}" for name in names)
            console.say(f"polarities of {train}: {', '.join(shown)}")
        if len(names) < 2:
            raise ConfigError(
                f"{train}: the only polarity is {names[0]!r}; at least two are required"
            )
        return names

    @functools.cached_property
    def reader(self) -> aspect_features.Reader:
        """Converts strings to the model's features."""
        config = self.task_config
        examples = self._examples(config.train_data) + self._examples(config.validation_data)
        bad = config.train_data.bad_examples
        for path in config.vocabulary_paths:
            examples += three_lines.read(path, bad=bad)
        texts = (part for example in examples for part in example[:3])
        return aspect_models.build_reader(config.model, config.window, texts)

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
        examples = self._examples(params)
        labels = aspect_data.numbers(examples, self.polarities)
        source = aspect_data.source_of(params)
        with tf.device("cpu:0"):  # the input pipeline runs there
            encoded = aspect_features.encoded(
                self.reader,
                list(zip(*examples, strict=True))[:3],
                files=[Path(path) for path in source.paths],
                cache_folder=params.cache_folder,
                settings=[repr(source._replace(paths=()))],
            )

            if self.reader.reads_neighbours:
                whole = tf.constant([example.sentence for example in examples])
                encoded.append(aspect_features.around(whole, *encoded[:2]))

        def load(index: tf.Tensor) -> tuple[aspect_features.Features, tf.Tensor]:
            parts = [tf.gather(part, index) for part in encoded]
            return self.reader.features(*parts), tf.gather(labels, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(examples), load, config=params, input_context=input_context)

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
        columns = tf.unstack(tf.nn.softmax(tf.cast(outputs, tf.float32)), axis=-1)
        return {"probabilities": dict(zip(self.polarities, columns, strict=True))}

    def averaged(self, outputs: tf.Tensor) -> tf.Tensor:
        """The values that ensembles average: the probabilities, [batch, polarities]."""
        return tf.nn.softmax(tf.cast(outputs, tf.float32))

    def from_averaged(self, averaged: tf.Tensor) -> tf.Tensor:
        """Logits [batch, polarities] with these probabilities."""
        return tf.math.log(tf.maximum(averaged, 1e-12))

    def averaged_classes(self) -> tuple[str, ...]:
        """The polarities."""
        return self.polarities

    def prediction_keys(self, data: aspect_data.AspectData) -> list[str] | None:
        """The location of each example, as file:line. None for synthetic examples."""
        examples = self._examples(data)
        return [example.place for example in examples] if data.input_path else None

    def prediction_rows(
        self, data: aspect_data.AspectData, examples: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sentences, aspects, predicted polarities, all probabilities, and the true polarities."""
        every = self._examples(data)
        asked = [every[number] for number in examples["index"]]
        probabilities = examples["probabilities"]
        best = np.argmax([probabilities[name] for name in self.polarities], axis=0)
        return {
            "sentence": [example.sentence for example in asked],
            "aspect": [example.aspect for example in asked],
            "polarity": [self.polarities[number] for number in best],
            "probabilities": probabilities,
            "label": [example.polarity for example in asked],
        }

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
        for part in _together(self._examples(data), data.global_batch_size):
            sentences = [f"{e.left}{three_lines.MARK}{e.right}" for e in part]
            outputs = serve(sentence=sentences, aspect=[e.aspect for e in part])
            labels = aspect_data.numbers(part, self.polarities)
            self.process_metrics(metrics, labels, outputs["probabilities"])
        return {metric.name: float(metric.result()) for metric in metrics}

    def _examples(self, data: aspect_data.AspectData) -> list[three_lines.Example]:
        fetching.fetch(data.fetch)
        return self._read(aspect_data.source_of(data))


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


def _check(params: AspectSentimentConfig) -> None:
    """Raises ConfigError for settings that contradict each other or are out of range."""
    train, validation = map(aspect_data.source_of, (params.train_data, params.validation_data))
    if train.side and train.paths != validation.paths:
        raise ConfigError(inputs.one_source(train, validation))
    if train.overlaps(validation):
        raise ConfigError(
            f"train_data and validation_data share examples of {train}: use different files, or"
            " set split='train' and split='validation' with the same held_out"
        )
    if params.window < 1:
        raise ConfigError(f"window={params.window}: must be above 0 (words)")
