"""Question answering: finds the span that answers a question, scored by SQuAD's EM and F1."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg
from official.modeling import tf_utils

from runner import inputs
from runner.core import files
from runner.errors import ConfigError
from tasks.questions import (
    answer_spans,
    question_batches,
    question_data,
    question_serving,
    question_windows,
    readers,
    squad,
    squad_score,
)
from tasks.text import bert

_SPAN = answer_spans.Span._fields
_COLUMNS = ("data", "window", *_SPAN)  # a validation step's outputs for each window

Features = Mapping[str, tf.Tensor]


@dataclasses.dataclass
class QuestionAnsweringConfig(cfg.TaskConfig):
    """A reader, its training questions, and the questions it is evaluated on.

    `init_checkpoint` may name a checkpoint of another run, or one of Model Garden's pretrained
    encoders, saved as `encoder`. BERT takes the encoder from either. The vocabulary of any other
    reader consists of the words in its training and validation data, so changing these files
    changes the network. To evaluate further data, use named sets or test data.

    Attributes:
        model: the reader.
        train_data: by default synthetic questions.
        validation_data: by default other synthetic questions.
        max_answer: the maximum length of an answer, in tokens.
        no_answer_threshold: for questions that may have no answer. An answer is given only if its
            score exceeds that of no answer by more than this, as a difference of logits.
    """

    model: readers.ReaderConfig = dataclasses.field(default_factory=readers.ReaderConfig)
    train_data: question_data.QuestionData = dataclasses.field(
        default_factory=lambda: question_data.QuestionData(is_training=True)
    )
    validation_data: question_data.QuestionData = dataclasses.field(
        default_factory=lambda: question_data.QuestionData(is_training=False)
    )
    max_answer: int = 30
    no_answer_threshold: float = 0.0


@task_factory.register_task_cls(QuestionAnsweringConfig)
class QuestionAnsweringTask(base_task.Task):
    """Learns the positions of answers, and scores their texts.

    Each question is scored once, by its best span over all windows of its context. With several
    worker processes, each process scores its own part of the windows.
    """

    def __init__(
        self,
        params: QuestionAnsweringConfig,
        logging_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(params, logging_dir=logging_dir, name=name)
        _check(params)
        self._evaluated: list[question_data.QuestionData] = []

    @functools.cached_property
    def reader(self) -> readers.Reader:
        """The configured reader. Its vocabulary covers the training and validation data."""
        config = self.task_config
        return readers.make(config.model, config.train_data, config.validation_data)

    def build_model(self) -> tf_keras.Model:
        """The reader's network, described in `readers.Reader.network`.

        Raises:
            ConfigError: a setting is out of range, or `init_checkpoint` has another vocabulary.
        """
        if isinstance(self.reader, readers.PieceReader):
            bert.check_vocabulary(self.task_config.init_checkpoint, self.reader.vocabulary)
        return self.reader.network()

    def build_inputs(
        self,
        params: question_data.QuestionData,
        input_context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Pairs of features and labels, as returned by `question_batches.dataset`.

        Raises:
            ConfigError: the data cannot be read, or their settings differ from the training data's.
        """
        self.reader.check(params)
        questions = question_data.read(params)
        return question_batches.dataset(
            questions,
            params,
            input_context,
            table=self.reader.table(questions),
            pad=self.reader.pad,
            number=0 if params.is_training else self._number(params),
        )

    @tf.autograph.experimental.do_not_convert
    def build_losses(
        self,
        labels: Features,
        model_outputs: tf.Tensor,
        aux_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The mean cross-entropy of start and end, over the windows with a known answer.

        Args:
            labels: `start` and `end`, [batch], as in `question_windows.Windows`.
            model_outputs: logits, [batch, 1 + tokens, 2].
            aux_losses: scalars, such as weight penalties.

        Returns:
            A float32 scalar. If no window has a known answer, the sum of `aux_losses`.
        """
        known = _known(labels)
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.boolean_mask(labels[name], known),
                tf.boolean_mask(model_outputs[..., column], known),
            )
            for column, name in enumerate(("start", "end"))
        ]
        return tf.add_n([tf_utils.safe_mean(tf.add_n(losses)) / 2, *(aux_losses or ())])

    def validation_step(
        self,
        inputs: tuple[Features, Features],
        model: tf_keras.Model,
        metrics: Sequence[tf_keras.metrics.Metric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Returns the loss, its weight, and the best span of each window."""
        del metrics  # unused: `reduce_aggregated_logs` computes the scores
        features, labels = inputs
        logits = self.inference_step(features, model)
        spans = answer_spans.best(logits, self.task_config.max_answer)
        known = tf.reduce_sum(tf.cast(_known(labels), tf.float32))
        return {
            self.loss: self.build_losses(labels, logits, model.losses),
            "weight": tf.maximum(known, 1e-6),  # above 0, because windows were evaluated
            "data": labels["data"],
            "window": labels["window"],
            **spans._asdict(),
        }

    def aggregate_logs(
        self, state: list[dict[str, np.ndarray]] | None, step_logs: Mapping[str, Any]
    ) -> list[dict[str, np.ndarray]]:
        """Collects the spans on the host, batch by batch."""
        batch = {name: np.concatenate([p.numpy() for p in step_logs[name]]) for name in _COLUMNS}
        return [*(state or ()), batch]

    def reduce_aggregated_logs(
        self, aggregated_logs: list[dict[str, np.ndarray]], global_step: tf.Tensor | None = None
    ) -> dict[str, float]:
        """Returns exact match and F1, from 0 to 100, as means over the evaluated questions.

        Writes the predictions if all questions were evaluated and `QuestionData.predictions` names
        a file.
        """
        del global_step
        columns = {
            name: np.concatenate([batch[name] for batch in aggregated_logs]) for name in _COLUMNS
        }
        config = self._evaluated[int(columns["data"][0])]
        questions = question_data.read(config)
        spans = answer_spans.choose(
            columns,
            questions.windows.question,
            self.task_config.no_answer_threshold if config.unanswerable else None,
        )
        texts = {question: questions.text(*span) for question, span in spans.items()}
        if config.predictions and len(columns["window"]) == len(questions.windows):
            _write(Path(self.logging_dir, config.predictions), questions.by_id(texts))
        return squad_score.mean(
            [
                _score(texts[number], question, config)
                for number, question in enumerate(questions.squad.questions)
                if number in texts and question_data.is_scored(question, config.unanswerable)
            ]
        )._asdict()

    def prediction(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best span of each window in logits [batch, 1 + tokens, 2]."""
        logits = tf.cast(outputs, tf.float32)
        return answer_spans.best(logits, self.task_config.max_answer)._asdict()

    def averaged(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of each start and end, [batch, 2, 1 + tokens].

        Ensembles average these, so all members must tokenize texts the same way.
        """
        logits = tf.transpose(tf.cast(outputs, tf.float32), [0, 2, 1])
        return tf.nn.softmax(logits)

    def averaged_labels(self, labels: Features) -> tf.Tensor:
        """The true start and end, [batch, 2]. Negative for windows without that information."""
        return tf.stack([labels["start"], labels["end"]], axis=1)

    def from_averaged(self, averaged: tf.Tensor) -> tf.Tensor:
        """Logits [batch, 1 + tokens, 2] with these probabilities."""
        return tf.transpose(tf.math.log(tf.maximum(averaged, 1e-12)), [0, 2, 1])

    def prediction_keys(self, data: question_data.QuestionData) -> list[str]:
        """The id of each window's question."""
        questions = question_data.read(data)
        return [questions.squad.questions[number].id for number in questions.windows.question]

    def prediction_rows(
        self, data: question_data.QuestionData, examples: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """The answer to each question of some windows, in order, and a correct one.

        `start` and `end` are the answer's character positions in the context. `score` is the sum
        of its logits. If questions may have no answer, `no_answer_probability` compares that case
        with the best answer, whether or not that answer is given.
        """
        questions = question_data.read(data)
        windows = questions.windows.question[examples["index"]]
        threshold = self.task_config.no_answer_threshold if data.unanswerable else None
        spans = answer_spans.choose(
            {**examples, "window": examples["index"]}, questions.windows.question, threshold
        )
        first = np.flatnonzero(np.append(True, windows[1:] != windows[:-1]))
        asked = windows[first].tolist()
        places = [questions.place(*spans[number]) for number in asked]
        score = np.maximum.reduceat(examples["score"], first)
        rows: dict[str, Any] = {
            "answer": [questions.text(*spans[number]) for number in asked],
            "start": np.array([place.start for place in places]),
            "end": np.array([place.stop for place in places]),
            "score": score,
        }
        if data.unanswerable:
            none = np.minimum.reduceat(examples["none"], first)
            rows["no_answer_probability"] = 1 / (1 + np.exp(score - none))
        right = (questions.squad.questions[number].answers[:1] for number in asked)
        return {**rows, "label": ["".join(answer.text for answer in each) for each in right]}

    def serving(self, model: tf_keras.Model) -> question_serving.QuestionServing:
        """The signature for an export, which takes strings."""
        config = self.task_config
        return question_serving.QuestionServing(
            config.validation_data,
            model,
            self.reader.tokens(),
            pad=self.reader.pad,
            max_answer=config.max_answer,
            threshold=config.no_answer_threshold,
        )

    def score_served(
        self, serve: Callable[..., Mapping[str, np.ndarray]], data: question_data.QuestionData
    ) -> dict[str, float]:
        """Exact match and F1 of an exported model that takes strings.

        Args:
            serve: maps `question` and `context`, [batch] each, to the outputs of `serving`.
            data: the validation data.
        """
        read = question_data.read(data).squad
        asked = [q for q in read.questions if question_data.is_scored(q, data.unanswerable)]
        scores = []
        for first in range(0, len(asked), data.global_batch_size):
            part = asked[first : first + data.global_batch_size]
            outputs = serve(
                question=[question.text for question in part],
                context=[read.contexts[question.context] for question in part],
            )
            for question, answer in zip(part, outputs["answer"], strict=True):
                scores.append(_score(answer.decode(), question, data))
        return squad_score.mean(scores)._asdict()

    def _number(self, data: question_data.QuestionData) -> int:
        """Returns the number that identifies the data in `reduce_aggregated_logs`."""
        if data not in self._evaluated:
            self._evaluated.append(data)
        return self._evaluated.index(data)


def _known(labels: Features) -> tf.Tensor:
    return labels["start"] != question_windows.UNKNOWN


def _score(
    prediction: str, question: squad.Question, data: question_data.QuestionData
) -> squad_score.Score:
    answers = [answer.text for answer in question.answers]
    return squad_score.score(prediction, answers, unanswerable=data.unanswerable)


def _write(path: Path, predictions: Mapping[str, str]) -> None:
    files.write_text(path, json.dumps(predictions, ensure_ascii=False, indent=0))


def _check(params: QuestionAnsweringConfig) -> None:
    train, validation = params.train_data, params.validation_data
    if train.folds and train.input_path != validation.input_path:
        made_up = "synthetic questions"
        raise ConfigError(
            inputs.one_source(train.input_path or made_up, validation.input_path or made_up)
        )
    if params.max_answer < 1:
        raise ConfigError(f"max_answer={params.max_answer}: must be 1 or more (tokens)")
