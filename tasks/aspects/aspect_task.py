"""The common part of the tasks on aspects: their data, classes and vocabulary."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner import inputs
from runner.core import console
from runner.errors import ConfigError
from tasks.aspects import aspect_data, aspect_features, three_lines
from tasks.files import fetching


@dataclasses.dataclass
class AspectConfig(cfg.TaskConfig):
    """Training examples, and the examples that a model is evaluated on.

    `init_checkpoint` may name a checkpoint of another run, or one of Model Garden's pretrained
    encoders, saved as `encoder`. The BERT models take the encoder from either.

    Attributes:
        train_data: by default four fifths of the synthetic sentences.
        validation_data: by default the other fifth.
        vocabulary_paths: more files of examples, such as the test set, whose words are added to the
            vocabulary of a model without a vocabulary file. Their labels are not read.
        polarities: the names of the classes, in order. Empty: those in the training data, sorted.
        window: the maximum number of words or pieces before the aspect, in it, and after it.
    """

    train_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.AspectData(is_training=True)
    )
    validation_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.AspectData(is_training=False)
    )
    vocabulary_paths: tuple[str, ...] = ()
    polarities: tuple[str, ...] = ()
    window: int = 64


class AspectTask(base_task.Task):
    """Reads each source once, when first needed."""

    def __init__(
        self,
        params: AspectConfig,
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
        examples = self.examples(config.train_data)
        train, validation = map(aspect_data.source_of, (config.train_data, config.validation_data))
        if train.paths == validation.paths:  # so the classes do not depend on the split
            examples = examples + self.examples(config.validation_data)
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

    def examples(self, data: aspect_data.AspectData) -> list[three_lines.Example]:
        """The examples of a source."""
        fetching.fetch(data.fetch)
        return self._read(aspect_data.source_of(data))

    def texts(self) -> Iterator[str]:
        """Yields all parts of the sentences whose words the vocabulary must include."""
        config = self.task_config
        examples = self.examples(config.train_data) + self.examples(config.validation_data)
        bad = config.train_data.bad_examples
        for path in config.vocabulary_paths:
            examples += three_lines.read(path, bad=bad)
        return (part for example in examples for part in example[:3])

    def encoded(
        self, data: aspect_data.AspectData, reader: aspect_features.Reader
    ) -> list[tf.RaggedTensor]:
        """The ids before, in and after the aspect of each example, [examples, (ids)] int32."""
        source = aspect_data.source_of(data)
        return aspect_features.encoded(
            reader,
            list(zip(*self.examples(data), strict=True))[:3],
            files=[Path(path) for path in source.paths],
            cache_folder=data.cache_folder,
            settings=[repr(source._replace(paths=()))],
        )

    def probabilities(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Converts logits [batch, polarities] to each polarity's probability, [batch] by name."""
        columns = tf.unstack(tf.nn.softmax(tf.cast(logits, tf.float32)), axis=-1)
        return dict(zip(self.polarities, columns, strict=True))

    def prediction_keys(self, data: aspect_data.AspectData) -> list[str] | None:
        """The location of each example, as file:line. None for synthetic examples."""
        examples = self.examples(data)
        return [example.place for example in examples] if data.input_path else None

    def prediction_rows(
        self, data: aspect_data.AspectData, examples: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sentences, aspects, predicted polarities, all probabilities, and the true polarities."""
        asked = self.asked(data, examples)
        probabilities = examples["probabilities"]
        best = np.argmax([probabilities[name] for name in self.polarities], axis=0)
        return {
            "sentence": [example.sentence for example in asked],
            "aspect": [example.aspect for example in asked],
            "polarity": [self.polarities[number] for number in best],
            "probabilities": probabilities,
            "label": [example.polarity for example in asked],
        }

    def asked(
        self, data: aspect_data.AspectData, examples: Mapping[str, Any]
    ) -> list[three_lines.Example]:
        """The examples of predictions."""
        every = self.examples(data)
        return [every[number] for number in examples["index"]]


def _check(params: AspectConfig) -> None:
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
