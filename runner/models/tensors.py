"""Examples in memory as the rows of an array, a tf.RaggedTensor or a tf.SparseTensor."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

Rows: TypeAlias = Any
"""A numpy array, a tf.RaggedTensor or a tf.SparseTensor, [n, ...]."""


def is_composite(value: Any) -> bool:
    """Whether the rows are those of a ragged or sparse tensor."""
    return isinstance(value, tf.RaggedTensor | tf.SparseTensor)


def count(rows: Rows) -> int | None:
    """The number of rows, or None for a scalar."""
    if is_composite(rows):
        return int(rows.shape[0])
    return len(rows) if rows.ndim else None


def values(rows: Rows) -> np.ndarray:
    """All numbers or strings in the rows."""
    if isinstance(rows, tf.RaggedTensor):
        return rows.flat_values.numpy()
    return rows.values.numpy() if isinstance(rows, tf.SparseTensor) else rows


def content(rows: Rows) -> list[np.ndarray]:
    """Arrays that differ if the rows do."""
    if isinstance(rows, tf.RaggedTensor):
        return [rows.flat_values.numpy(), *(part.numpy() for part in rows.nested_row_splits)]
    if isinstance(rows, tf.SparseTensor):
        return [rows.values.numpy(), rows.indices.numpy()]
    return [np.ascontiguousarray(rows)]


def spec(rows: Rows) -> Any:
    """The specification of a batch of any size."""
    shape = [None, *rows.shape[1:]]
    if isinstance(rows, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, rows.dtype, rows.ragged_rank, rows.row_splits.dtype)
    if isinstance(rows, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, rows.dtype)
    return tf.TensorSpec(shape, rows.dtype)


def lookup(rows: Rows) -> Callable[[tf.Tensor], Any]:
    """The function from indices, [batch] int64, to these rows as tensors, [batch, ...]."""
    if isinstance(rows, tf.SparseTensor):
        return _sparse_lookup(rows)
    held = rows if isinstance(rows, tf.RaggedTensor) else tf.constant(rows)
    return lambda index: tf.gather(held, index)


def taken(rows: Rows, index: np.ndarray) -> Rows:
    """The rows at some indices."""
    return lookup(rows)(tf.constant(index, tf.int64)) if is_composite(rows) else rows[index]


def first(rows: Rows) -> Any:
    """The first row as a tensor, [1, ...]."""
    return lookup(rows)(tf.zeros([1], tf.int64)) if is_composite(rows) else tf.constant(rows[:1])


def shown(rows: Rows) -> str:
    """The kind of the rows: `float32[60, 4]`."""
    if is_composite(rows):
        kind = type(rows).__name__.removesuffix("Tensor").lower()
        return f"{kind} {rows.dtype.name}{rows.shape.as_list()}"
    return f"{rows.dtype}{list(rows.shape)}"


def of_sparse_matrix(matrix: Any) -> tf.SparseTensor:
    """A sparse matrix or array of scipy, [n, m]."""
    entries = matrix.tocoo()
    indices = np.stack([entries.row, entries.col], axis=1).astype(np.int64)
    return tf.sparse.reorder(tf.SparseTensor(indices, entries.data, entries.shape))


def _sparse_lookup(rows: tf.SparseTensor) -> Callable[[tf.Tensor], tf.SparseTensor]:
    rows = tf.sparse.reorder(rows)
    entries = tf.RaggedTensor.from_value_rowids(
        tf.range(tf.size(rows.values, tf.int64)), rows.indices[:, 0], rows.shape[0]
    )

    def look_up(index: tf.Tensor) -> tf.SparseTensor:
        chosen = tf.gather(entries, index)
        row = tf.cast(chosen.value_rowids(), tf.int64)[:, tf.newaxis]
        indices = tf.concat([row, tf.gather(rows.indices[:, 1:], chosen.flat_values)], axis=1)
        size = tf.size(index, tf.int64)[tf.newaxis]
        shape = tf.concat([size, tf.constant(rows.shape[1:].as_list(), tf.int64)], axis=0)
        found = tf.SparseTensor(indices, tf.gather(rows.values, chosen.flat_values), shape)
        found.set_shape([None, *rows.shape[1:]])
        return found

    return look_up
