"""Scores existing predictions with the task's own metrics."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task

from runner.data import batches
from runner.errors import ConfigError
from runner.evaluation import evaluator
from runner.evaluation.prediction import predictor


class _Played:
    """Replaces a model whose outputs are known."""

    compiled_metrics = None
    losses: Sequence[Any] = ()

    def __init__(self, outputs: Any) -> None:
        self._outputs = outputs

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self._outputs


class Scorer:
    """Evaluates means of predictions on one data set.

    The loss excludes weight penalties, which a mean of models does not have.

    Args:
        built: The evaluator whose task scores.
        dataset: Distributed and finite.
    """

    def __init__(self, built: evaluator.Evaluator, dataset: Any) -> None:
        self._task, self._strategy, self._data = built.task, built.strategy, dataset
        self._metrics = self._task.build_metrics(training=False)
        self._loss = tf_keras.metrics.Mean("validation_loss")
        self._step = tf.function(self._score, reduce_retracing=True)
        self._aggregates = type(self._task).aggregate_logs is not base_task.Task.aggregate_logs

    def score(self, parts: Sequence[np.ndarray]) -> dict[str, float]:
        """Returns the metrics that are single numbers.

        Args:
            parts: Of all examples, in the form of `outputs.Predicted`.
        """
        for metric in [*self._metrics, self._loss]:
            metric.reset_state()
        state = None
        for inputs, averaged in self._paired(parts):
            logs = self._step(inputs, tf.constant(averaged))
            if self._aggregates:
                each = {name: (value,) for name, value in logs.items()}
                state = self._task.aggregate_logs(state, each)
        found = {
            metric.name: metric.result()
            for metric in self._metrics
            if getattr(metric, evaluator.IS_DEFINED, lambda: True)()
        }
        found[self._loss.name] = self._loss.result()
        if state:
            found |= self._task.reduce_aggregated_logs(state, global_step=tf.constant(0))
        return {name: float(value) for name, value in found.items() if np.ndim(value) == 0}

    def _score(self, inputs: Any, averaged: tf.Tensor) -> Any:
        model: Any = _Played(self._task.from_averaged(averaged))
        logs = self._task.validation_step(inputs, model=model, metrics=self._metrics)
        if self._task.loss in logs:
            weight = logs.get(evaluator.WEIGHT, tf.cast(batches.examples(inputs), tf.float32))
            mean = tf.reduce_mean(tf.convert_to_tensor(logs[self._task.loss]))
            self._loss.update_state(mean, sample_weight=weight)
        return logs

    def _paired(self, parts: Sequence[np.ndarray]) -> Iterator[tuple[Any, np.ndarray]]:
        """Yields the inputs of each replica's batch with their predictions."""
        together = len(parts) == 1
        rest, begin = iter(parts), 0
        for batch in self._data:
            for inputs in predictor.of_replicas(self._strategy, batch):
                size = int(batches.examples(inputs))
                if not size:
                    continue
                part = parts[0][begin : begin + size] if together else next(rest, np.empty(0))
                if len(part) != size:
                    raise ConfigError(
                        f"members predict in batches of other sizes: {len(part)} and {size}"
                    )
                begin += size
                yield inputs, part
