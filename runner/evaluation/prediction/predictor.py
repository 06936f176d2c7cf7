"""Computes a model's outputs batch by batch, on all replicas."""

import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.configuration import prediction_contract
from runner.data import batches
from runner.errors import ConfigError
from runner.evaluation import evaluator
from runner.evaluation.prediction import rows
from runner.internals import keras as keras_internals

_LABEL = "label"
_HALF = (tf.float16, tf.bfloat16)
_SECONDS = 0.1  # the maximum time to collect batches that are passed on together,
_BYTES = 2**22  # and their maximum size, unless one is larger


class Batch(NamedTuple):
    """A batch of inputs and its predictions, as structures of tensors for each replica.

    Attributes:
        inputs: The inputs, in the form of the task's data.
        outputs: The columns.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def checksum(self) -> int:
        """A checksum of the inputs."""
        found = 0
        for part in tf.nest.flatten(self.inputs, expand_composites=True):
            array = part.numpy()
            found = zlib.crc32(
                repr(array.tolist()).encode() if array.dtype == object else array.tobytes(), found
            )
        return found

    @property
    def size(self) -> int:
        """The size in bytes."""
        parts = tf.nest.flatten((self.inputs, self.outputs), expand_composites=True)
        return sum(math.prod(each.shape) * each.dtype.size for each in parts)

    def columns(self) -> Iterator[rows.Columns]:
        """Yields the columns of each replica that has examples, in order.

        Raises:
            ConfigError: a column does not match these examples.
        """
        for inputs, outputs in zip(self.inputs, self.outputs, strict=True):
            if size := batches.size(inputs):
                own = tf.nest.map_structure(lambda each: each.numpy(), outputs)
                rows.check_length(own, size)
                yield own


class Predictor:
    """Predicts with an evaluator's current weights.

    Args:
        built: The evaluator.
        predict: Maps features and labels to columns, or None for the task's predictions.
    """

    def __init__(
        self,
        built: evaluator.Evaluator,
        predict: Callable[[Any, Any], dict[str, Any]] | None = None,
    ) -> None:
        self._columns = predict or self._predictions
        self._task, self._model, self._strategy = built.task, built.model, built.strategy
        function = tf.function if built.config.trainer.eval_tf_function else lambda f: f
        self._next = function(self._predict_next)

    def batches(self, iterator: Any) -> Iterator[Batch]:
        """Predicts each batch of an iterator over distributed data."""
        while True:
            try:
                inputs, outputs = self._next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                return
            yield Batch(*(of_replicas(self._strategy, each) for each in (inputs, outputs)))

    def _predict_next(self, iterator: Any) -> tuple[Any, Any]:
        inputs = next(iterator)
        return inputs, self._strategy.run(evaluator.skip_empty(self._predict), args=(inputs,))

    def _predict(self, inputs: Any) -> dict[str, Any]:
        """Returns the columns of a replica's part of a batch."""
        return self._columns(*_split(inputs))

    def _predictions(self, features: Any, labels: Any) -> dict[str, Any]:
        if labels is not None and hasattr(self._task, prediction_contract.PREDICTION_LABEL):
            labels = self._task.prediction_label(labels)
        try:
            outputs = self._task.inference_step(features, self._model)
        except ValueError as error:
            if misfit := _misfit(features, error):
                raise misfit from error
            raise
        if hasattr(self._task, prediction_contract.PREDICTION):
            outputs = self._task.prediction(outputs)
        columns = prediction_contract.columns_of(self._task, outputs)
        columns = {**columns, **_labels(labels), **columns}  # their own `label` takes precedence
        return tf.nest.map_structure(_whole_precision, columns)


def of_replicas(strategy: tf.distribute.Strategy, structure: Any) -> tuple[Any, ...]:
    """Returns each replica's part of a distributed structure."""
    local = strategy.experimental_local_results
    return tuple(
        tf.nest.map_structure(lambda each, number=number: local(each)[number], structure)
        for number in range(strategy.num_replicas_in_sync)
    )


def groups(each: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Groups successive batches that arrive within a short time, which is faster than singly."""
    group: list[Batch] = []
    size, begin = 0, time.monotonic()
    for batch in each:
        group.append(batch)
        size += batch.size
        if size > _BYTES or time.monotonic() - begin > _SECONDS:
            yield group
            group, size, begin = [], 0, time.monotonic()
    if group:
        yield group


def joined(parts: Iterable[rows.Columns]) -> Iterator[rows.Columns]:
    """Concatenates successive columns whose examples have the same shapes."""
    for _, group in itertools.groupby(parts, _shapes):
        yield tf.nest.map_structure(lambda *each: np.concatenate(each), *group)


def _shapes(columns: rows.Columns) -> list[tuple[int, ...]]:
    return [each.shape[1:] for each in tf.nest.flatten(columns)]


def _split(inputs: Any) -> tuple[Any, Any]:
    """Returns features and labels, from pairs or from Keras' triples with weights."""
    if isinstance(inputs, tuple) and len(inputs) in (2, 3):
        return inputs[0], inputs[1]
    return inputs, None


def _labels(labels: Any) -> dict[str, Any]:
    """Returns the column of the labels, unless they do not belong to single examples."""
    flat = tf.nest.flatten(labels)
    single = all(isinstance(each, tf.Tensor) and each.shape.rank for each in flat)
    if labels is None or not flat or not single:
        return {}
    return {_LABEL: prediction_contract.named(labels)}


def _misfit(features: Any, error: ValueError) -> ConfigError | None:
    """Returns an error for an input that Keras finds incompatible with a layer."""
    said = keras_internals.misfit(error)
    if not said:
        return None
    given = tf.nest.map_structure(lambda x: f"{x.dtype.name}{x.shape.as_list()}", features)
    return ConfigError(f"these data do not fit the model: they have {given}, and {said}")


def _whole_precision(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.float32) if values.dtype in _HALF else values
