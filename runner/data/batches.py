"""Counts and cuts batches, whose tensors have the examples as their first dimension."""

from typing import Any

import tensorflow as tf


@tf.autograph.experimental.do_not_convert
def examples(batch: Any) -> tf.Tensor:
    """Returns the number of examples in a batch, the first dimension of its first tensor."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    return tf.shape(first)[0] if first.shape.rank != 0 else tf.constant(1)


def size(batch: Any) -> int:
    """Returns the number of examples in a batch of values, which needs no op."""
    shape = tf.nest.flatten(batch)[0].shape
    return shape[0] if shape.rank else 1


def is_endless(dataset: Any) -> bool:
    """Returns whether a dataset, distributed or not, is known to repeat forever."""
    return cardinality(dataset) == tf.data.INFINITE_CARDINALITY


def cardinality(dataset: Any) -> int:
    """Returns the number of batches of a dataset, distributed or not, or one of TensorFlow's codes.

    The codes, for endless and for unknown, are negative.
    """
    known = dataset.cardinality
    return int(known() if callable(known) else known)


def count(dataset: tf.data.Dataset) -> int:
    """Returns the number of examples in all batches. It reads all of them."""
    return int(dataset.reduce(tf.constant(0, tf.int64), lambda n, batch: n + _examples(batch)))


def first(dataset: tf.data.Dataset, number: int) -> tf.data.Dataset:
    """Returns the batches with the first `number` examples, or all, and keeps scalars.

    The last batch is cut.
    """

    def cut(given: tf.Tensor, batch: Any) -> tuple[tf.Tensor, tuple[tf.Tensor, Any]]:
        left = number - given
        return given + _examples(batch), (left, part(batch, 0, tf.maximum(left, 0)))

    counted = dataset.scan(tf.constant(0, tf.int64), cut)
    return counted.take_while(lambda left, _: left > 0).map(lambda _, batch: batch)


def part(batch: Any, begin: int, size: int | tf.Tensor) -> Any:
    """Returns up to `size` examples of a batch, starting at `begin`. Scalars stay."""
    return tf.nest.map_structure(lambda each: _cut(each, begin, size), batch)


def _examples(batch: Any) -> tf.Tensor:
    return tf.cast(examples(batch), tf.int64)


def _cut(each: Any, begin: int, size: int | tf.Tensor) -> Any:
    if isinstance(each, tf.SparseTensor):
        rest = each.dense_shape[1:]
        ends = ((begin, tf.zeros_like(rest)), (size, rest))
        return tf.sparse.slice(
            each, *(tf.concat([[tf.cast(first, tf.int64)], others], 0) for first, others in ends)
        )
    return each if each.shape.rank == 0 else each[begin : begin + size]
