"""Reads the data of `runner.fit`, splits them and weights their classes, as Keras's `fit` does."""

import functools
import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from runner.command import fit_arguments
from runner.errors import ConfigError
from runner.models import examples, tables

_EXPECTED = "expected a dict from class numbers to weights, such as {0: 1.0, 1: 5.0}"


def read(
    given: fit_arguments.Data, keras: fit_arguments.OfKeras, model: Any
) -> tuple[examples.Examples, examples.Examples | None]:
    """Reads training and validation data.

    Args:
        given: The data.
        keras: Has `validation_split` and `class_weight`, which weights the training data only.
        model: The model that they are for, which takes a table's columns together or by name.

    Raises:
        ConfigError: they cannot be read, split or weighted.
    """
    train = part(given.train, "train", model)
    validation = None
    if given.validation is not None:
        validation = part(given.validation, "validation", model)
    elif keras.validation_split:
        train, validation = _split(train, keras.validation_split)
    if keras.class_weight is not None:
        train = _by_class(train, _table(keras.class_weight))
    return train, validation


def part(data: Any, name: str, model: Any) -> examples.Examples:
    """Reads the data of one argument, unless they have been read.

    Args:
        data: The data.
        name: The name of the argument.
        model: The model that they are for.

    Raises:
        ConfigError: a model cannot learn from them.
    """
    if isinstance(data, examples.Arrays):
        return data
    if name == "validation" and isinstance(data, Iterator):
        raise ConfigError(
            "runner.fit: validation: a generator cannot be read at each evaluation: pass the "
            "function that returns it"
        )
    takes = functools.partial(tables.inputs_of, model)
    return examples.read(data, f"runner.fit: {name}", takes=takes)


def _split(found: examples.Examples, share: float) -> tuple[examples.Arrays, examples.Arrays]:
    """Takes the last examples for validation."""
    if not isinstance(found, examples.Arrays):
        raise ConfigError(
            "runner.fit: validation_split needs arrays, and train has batches: pass "
            "validation, such as dataset.take(n), and train on dataset.skip(n)"
        )
    first = math.floor(found.size * (1 - share))
    if first in (0, found.size):
        raise ConfigError(
            f"runner.fit: validation_split={share} of {found.size:,} examples leaves none "
            f"{'to validate' if first else 'to train'}"
        )
    return found.taken(np.arange(first)), found.taken(np.arange(first, found.size))


def _table(given: Any) -> dict[int, float]:
    """Checks class weights, and returns them with plain numbers."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"runner.fit: class_weight: {_EXPECTED}; got {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, numbers.Integral) or not isinstance(value, numbers.Real):
            raise ConfigError(f"runner.fit: class_weight: {_EXPECTED}; got {{{key!r}: {value!r}}}")
    return {int(key): float(value) for key, value in given.items()}


def _by_class(found: examples.Examples, table: dict[int, float]) -> examples.Examples:
    """Multiplies each example's weight by that of its class, which is 1 if it has none."""
    if isinstance(found, examples.BatchSequence):
        raise ConfigError(
            "runner.fit: class_weight needs arrays or a tf.data.Dataset: return the weights as the "
            "third part of each batch"
        )
    if not isinstance(found, examples.Arrays):
        return found.map(lambda x, labels: (x, (labels[0], _product(labels[0], labels[1], table))))
    weight = _product(found.y, found.weight, table)
    return found._replace(weight=np.asarray(weight, np.float32))


def _product(y: Any, weight: Any, table: dict[int, float]) -> tf.Tensor:
    """The product of each example's weight and that of its class, [n] float32."""
    weighted = not isinstance(weight, tuple) or bool(weight)
    if tf.nest.is_nested(y) or (weighted and tf.nest.is_nested(weight)):
        raise ConfigError(
            "runner.fit: class_weight needs a model with one output: pass sample_weight instead"
        )
    with tf.device("cpu:0"):
        classes = _classes(tf.convert_to_tensor(y))
        keys = tf.constant([*table], tf.int64)
        matches = classes[:, tf.newaxis] == keys
        known = tf.reduce_sum(tf.where(matches, tf.constant([*table.values()]), 0.0), axis=1)
        of_class = tf.where(tf.reduce_any(matches, axis=1), known, 1.0)
        if not weighted:
            return of_class
        return of_class * tf.reshape(tf.cast(weight, tf.float32), [-1])


def _classes(y: tf.Tensor) -> tf.Tensor:
    """The class of each example, [n] int64, for labels that are numbers or one-hot."""
    if y.shape.rank is not None and y.shape.rank > 2:
        raise ConfigError(
            f"runner.fit: class_weight needs one label for each example, and y has the shape "
            f"{y.shape.as_list()}: pass sample_weight instead"
        )
    if y.shape.rank == 2 and y.shape[1] != 1:
        return tf.argmax(y, axis=1)
    return tf.cast(tf.reshape(y, [-1]), tf.int64)
