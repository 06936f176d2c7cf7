"""Counts and cuts batches; the first dimension of their tensors is the example."""

from typing import Any

import tensorflow as tf


@tf.autograph.experimental.do_not_convert
def examples(batch: Any) -> tf.Tensor:
    """How many examples a batch holds: the first dimension of its first tensor."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    return tf.shape(first)[0] if first.shape.rank != 0 else tf.constant(1)


def size(batch: Any) -> int:
    """The same for a batch of values, which needs no op."""
    shape = tf.nest.flatten(batch)[0].shape
    return shape[0] if shape.rank else 1


def is_endless(dataset: Any) -> bool:
    """Whether a dataset, distributed or not, is known to repeat for ever."""
    known = dataset.cardinality
    return bool((known() if callable(known) else known) == tf.data.INFINITE_CARDINALITY)


def count(dataset: tf.data.Dataset) -> int:
    """How many examples all batches hold; reads every one of them."""
    return int(dataset.reduce(tf.constant(0, tf.int64), lambda n, batch: n + _examples(batch)))


def first(dataset: tf.data.Dataset, number: int) -> tf.data.Dataset:
    """The batches that hold the first `number` examples, or all; the last is cut, scalars stay."""

    def cut(given: tf.Tensor, batch: Any) -> tuple[tf.Tensor, tuple[tf.Tensor, Any]]:
        left = number - given
        return given + _examples(batch), (left, part(batch, 0, tf.maximum(left, 0)))

    counted = dataset.scan(tf.constant(0, tf.int64), cut)
    return counted.take_while(lambda left, _: left > 0).map(lambda _, batch: batch)


def part(batch: Any, begin: int, size: int | tf.Tensor) -> Any:
    """Up to `size` examples of a batch, from `begin` on; scalars stay."""
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
