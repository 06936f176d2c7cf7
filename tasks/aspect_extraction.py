"""Aspect term extraction with polarity (ATEPC): finds aspects, and the polarity towards each."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import task_factory
from official.modeling import tf_utils

from runner import inputs
from tasks.aspects import (
    aspect_data,
    aspect_features,
    aspect_task,
    fast_lcf_atepc,
    macro_f1,
    term_serving,
    term_tags,
    three_lines,
)
from tasks.text import bert, vocabularies

Labels = Mapping[str, tf.Tensor]


@dataclasses.dataclass
class AspectExtractionConfig(aspect_task.AspectConfig):
    """A model, its training examples, and the examples it is evaluated on.

    The data are those of aspect sentiment, one example per aspect. The aspects of all examples with
    the same sentence are the terms to extract from it.

    Attributes:
        model: the model.
        tag_weight: the weight of the tags' loss. That of the polarities' loss is 1.
    """

    model: fast_lcf_atepc.FastLcfAtepcConfig = dataclasses.field(
        default_factory=fast_lcf_atepc.FastLcfAtepcConfig
    )
    train_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.TermData(is_training=True)
    )
    validation_data: aspect_data.AspectData = dataclasses.field(
        default_factory=lambda: aspect_data.TermData(is_training=False)
    )
    tag_weight: float = 1.0


@task_factory.register_task_cls(AspectExtractionConfig)
class AspectExtractionTask(aspect_task.AspectTask):
    """Learns and scores tags and polarities."""

    @functools.cached_property
    def reader(self) -> fast_lcf_atepc.TermReader:
        """Converts strings to the model's features."""
        model = self.task_config.model
        pieces = vocabularies.load(
            model.vocab_file, lower_case=model.lower_case, texts=self.texts()
        )
        return fast_lcf_atepc.TermReader(pieces, self.task_config.window)

    def build_model(self) -> tf_keras.Model:
        """The configured model. See `fast_lcf_atepc.build`.

        Raises:
            ConfigError: the vocabulary does not fit `init_checkpoint`, or a value is out of range.
        """
        bert.check_vocabulary(self.task_config.init_checkpoint, self.reader.pieces)
        return fast_lcf_atepc.build(self.task_config.model, self.reader, len(self.polarities))

    def build_inputs(
        self,
        params: aspect_data.AspectData,
        input_context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Pairs of the model's features and labels.

        The labels are `polarity` [batch] int32, `tags` [batch, pieces] int32, with negative values
        for [CLS], [SEP] and padding, and `first` [batch] bool: whether the row is the first of its
        sentence, whose tags are scored.

        Raises:
            ConfigError: the data cannot be read, or have an unknown polarity.
        """
        examples = self.examples(params)
        polarity = aspect_data.numbers(examples, self.polarities)
        with tf.device("cpu:0"):  # the input pipeline runs there
            parts = self.encoded(params, self.reader)
            tags = term_tags.of_examples(examples, *parts)
        first = term_tags.firsts(examples)

        @tf.autograph.experimental.do_not_convert
        def load(index: tf.Tensor) -> tuple[aspect_features.Features, Labels]:
            left, aspect, right = (tf.gather(part, index) for part in parts)
            before, within, after = (tf.gather(part, index) for part in tags)
            window = self.reader.window
            cropped = [before[:, -window:], within[:, :window], after[:, :window]]
            rows = tf.concat(cropped, axis=1).to_tensor(term_tags.IGNORED)
            return self.reader.features(left, aspect, right), {
                "polarity": tf.gather(polarity, index),
                "tags": tf.pad(rows, [[0, 0], [1, 1]], constant_values=term_tags.IGNORED),
                "first": tf.gather(first, index),
            }

        place = inputs.place if params.is_training else inputs.in_order
        return place(len(examples), load, config=params, input_context=input_context)

    @tf.autograph.experimental.do_not_convert
    def build_losses(
        self,
        labels: Labels,
        model_outputs: Mapping[str, tf.Tensor],
        aux_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The mean cross-entropies of polarities and of tags, plus the model's own losses.

        Args:
            labels: see `build_inputs`.
            model_outputs: see `fast_lcf_atepc.build`.
            aux_losses: scalars, such as weight penalties.

        Returns:
            A float32 scalar.
        """
        entropy = functools.partial(
            tf_keras.losses.sparse_categorical_crossentropy, from_logits=True
        )
        tags, known = labels["tags"], labels["tags"] != term_tags.IGNORED
        of_tags = entropy(tf.maximum(tags, 0), model_outputs[fast_lcf_atepc.TAGS])
        polarity = entropy(labels["polarity"], model_outputs[fast_lcf_atepc.POLARITY])
        total = tf.reduce_sum(tf.where(known, of_tags, 0.0))
        count = tf.reduce_sum(tf.cast(known, tf.float32))
        losses = [
            tf_utils.safe_mean(polarity),
            self.task_config.tag_weight * tf.math.divide_no_nan(total, count),
        ]
        return tf.add_n([*losses, *(aux_losses or ())])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """PyABSA's metrics.

        `apc_accuracy` and `apc_f1` (macro) score the polarities towards the labelled aspects.
        `ate_f1` scores the extracted terms.
        """
        del training
        return [
            tf_keras.metrics.SparseCategoricalAccuracy("apc_accuracy"),
            macro_f1.MacroF1(len(self.polarities), "apc_f1"),
            term_tags.SpanF1("ate_f1"),
        ]

    @tf.autograph.experimental.do_not_convert
    def process_metrics(
        self,
        metrics: Sequence[tf_keras.metrics.Metric],
        labels: Labels,
        model_outputs: Mapping[str, tf.Tensor],
        **_: Any,
    ) -> None:
        """Adds a batch to the metrics."""
        for metric in metrics:
            if isinstance(metric, term_tags.SpanF1):
                scores = model_outputs[fast_lcf_atepc.TAGS]
                metric.update_state(labels["tags"], scores, labels["first"])
            else:
                scores = model_outputs[fast_lcf_atepc.POLARITY]
                metric.update_state(labels["polarity"], scores)

    def prediction(self, outputs: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        """Each polarity's probability, [batch] by name, and the tags, [batch, longest] int32."""
        tags = tf.argmax(outputs[fast_lcf_atepc.TAGS], axis=-1, output_type=tf.int32)
        missing = self.reader.longest - tf.shape(tags)[1]
        return {
            "probabilities": self.probabilities(outputs[fast_lcf_atepc.POLARITY]),
            "tags": tf.pad(tags, [[0, 0], [0, missing]]),
        }

    def prediction_label(self, labels: Labels) -> tf.Tensor:
        """The true polarities."""
        return labels["polarity"]

    def prediction_rows(
        self, data: aspect_data.AspectData, examples: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As for aspect sentiment, with all terms that are found in a sentence."""
        terms = self._terms(self.asked(data, examples), np.stack(examples["tags"]))
        return {**super().prediction_rows(data, examples), "terms": terms}

    def serving(self, model: tf_keras.Model) -> term_serving.TermServing:
        """The signature for an export, which takes strings."""
        return term_serving.TermServing(self.task_config, model, self.reader, self.polarities)

    def score_served(
        self, serve: Callable[..., Mapping[str, np.ndarray]], data: aspect_data.AspectData
    ) -> dict[str, float]:
        """`ate_f1` of an exported model, which chooses the aspects itself.

        Args:
            serve: maps `sentence` [batch] to the outputs of `serving`.
            data: the validation data.
        """
        terms: dict[str, set[tuple[int, int]]] = {}
        for example in self.examples(data):
            start = len(example.left.encode())
            span = start, start + len(example.aspect.encode())
            terms.setdefault(example.sentence, set()).add(span)
        sentences = list(terms)
        correct = found = 0
        for at in range(0, len(sentences), data.global_batch_size):
            batch = sentences[at : at + data.global_batch_size]
            outputs = serve(sentence=batch)
            for sentence, starts, ends in zip(batch, outputs["start"], outputs["end"], strict=True):
                spans = {*zip(starts.tolist(), ends.tolist(), strict=True)} - {(-1, -1)}
                found += len(spans)
                correct += len(spans & terms[sentence])
        labelled = sum(map(len, terms.values()))
        return {"ate_f1": 2 * correct / max(1, found + labelled)}

    def _terms(self, examples: Sequence[three_lines.Example], tags: np.ndarray) -> list[list[str]]:
        """The terms that tags [examples, longest] mark, as parts of the sentences."""
        window = self.reader.window
        crops = slice(-window, None), slice(window), slice(window)
        parts = [text for example in examples for text in example[:3]]
        pieces = iter(self.reader.pieces.encode(parts))
        bounds = []  # where the pieces of each sentence start and end
        for row, example in enumerate(examples):
            at, own = 0, []
            for text, crop in zip(example[:3], crops, strict=True):
                _, starts, ends = next(pieces)
                own.append(np.stack([starts, ends], axis=1)[crop] + at)
                at += len(text)
            bounds.append(np.concatenate(own))
            tags[row, 1 + len(bounds[row]) :] = term_tags.IGNORED
        begins, lasts = (part.numpy() for part in term_tags.spans(tf.constant(tags[:, 1:])))
        return [
            [
                example.sentence[place[first, 0] : place[lasts[row, first], 1]]
                for first in np.flatnonzero(begins[row])
            ]
            for row, (example, place) in enumerate(zip(examples, bounds, strict=True))
        ]
