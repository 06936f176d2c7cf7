"""Gradient accumulation: processes a batch in parts, with one update at the end.

Like T5X's microbatches, this limits the memory for activations to that of one part.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from runner.data import batches
from runner.errors import ConfigError, RunnerError

Step = Callable[..., dict[str, Any]]
"""Model Garden's `Task.train_step(inputs, model, optimizer, metrics)`, which returns logs."""


def accumulated(task_step: Step, parts: int, loss: str) -> Step:
    """A step that splits its batch into equal parts and applies the mean of their gradients once.

    The first part is traced outside the loop over the others. It creates missing variables, and
    shows which gradients exist.

    Args:
        task_step: Calls `optimizer.apply_gradients` once.
        parts: The number of parts. 1 returns `task_step` itself.
        loss: The name of the loss among the logs.

    Returns:
        A step of the same signature that logs only the mean of the loss.

    Raises:
        RunnerError: when traced, if `task_step` does not call `apply_gradients` exactly once.
        ConfigError: when traced, if the batch cannot be split into equal parts.
    """
    if parts == 1:
        return task_step

    def step(
        inputs: Any,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        metrics: Any = None,
    ) -> dict[str, Any]:
        def run(index: Any) -> tuple[tf.Tensor, _Recorder]:
            recorder = _Recorder(optimizer)
            part = tf.nest.map_structure(lambda each: _part(each, index, parts), inputs)
            logs = task_step(part, model=model, optimizer=recorder, metrics=metrics)
            return tf.cast(logs[loss], tf.float32), recorder

        def turn(index: tf.Tensor, total: tf.Tensor, sums: list[Any]) -> tuple[Any, ...]:
            value, recorder = run(index)
            return index + 1, total + value, _add(sums, recorder.gradients, index)

        total, first = run(0)
        sums = _start(first.gradients, parts)
        _, total, sums = tf.while_loop(
            lambda index, *_: index < parts,
            turn,
            (tf.constant(1), total, sums),
            parallel_iterations=1,
        )
        first.apply(_means(sums, first.gradients, parts))
        return {loss: total / parts}

    return step


class _Recorder:
    """Replaces an optimizer of any class, recording gradients instead of applying them."""

    def __init__(self, optimizer: tf_keras.optimizers.Optimizer) -> None:
        self._optimizer = optimizer
        self._calls: list[tuple[list[Any], tuple[Any, ...], dict[str, Any]]] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # tasks check whether it is a LossScaleOptimizer
        return type(self._optimizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **options: Any) -> None:
        self._calls.append((list(grads_and_vars), args, options))

    @property
    def gradients(self) -> list[Any]:
        """The gradients that are not None."""
        return [gradient for gradient, _ in self._only()[0] if gradient is not None]

    def apply(self, gradients: list[Any]) -> None:
        """Applies other gradients instead of the recorded ones."""
        pairs, args, options = self._only()
        left = iter(gradients)
        given = [(None if old is None else next(left), variable) for old, variable in pairs]
        self._optimizer.apply_gradients(given, *args, **options)

    def _only(self) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
        if len(self._calls) != 1:
            raise RunnerError(
                "RunConfig.gradient_accumulation needs a task whose train_step calls "
                f"optimizer.apply_gradients once; it was called {len(self._calls)} times"
            )
        return self._calls[0]


def _start(gradients: list[Any], parts: int) -> list[Any]:
    """Initializes sums with the first part's gradients. Sparse slices are concatenated."""

    def kept(tensor: tf.Tensor) -> tf.TensorArray:
        array = tf.TensorArray(
            tensor.dtype, size=parts, infer_shape=False, element_shape=tensor.shape
        )
        return array.write(0, tensor)

    return [
        (kept(each.values), kept(each.indices)) if isinstance(each, tf.IndexedSlices) else each
        for each in gradients
    ]


def _add(sums: list[Any], gradients: list[Any], index: tf.Tensor) -> list[Any]:
    return [
        (total[0].write(index, each.values), total[1].write(index, each.indices))
        if isinstance(each, tf.IndexedSlices)
        else total + each
        for total, each in zip(sums, gradients, strict=True)
    ]


def _means(sums: list[Any], gradients: list[Any], parts: int) -> list[Any]:
    return [
        tf.IndexedSlices(total[0].concat() / parts, total[1].concat(), each.dense_shape)
        if isinstance(each, tf.IndexedSlices)
        else total / parts
        for total, each in zip(sums, gradients, strict=True)
    ]


def _part(batch: Any, index: Any, parts: int) -> Any:
    """The examples of one part. Scalars belong to every part."""
    if batch.shape.rank == 0:
        return batch
    size = _share(batch, parts)
    if isinstance(batch, tf.RaggedTensor):
        return batch[index * size : (index + 1) * size]
    if isinstance(batch, tf.SparseTensor):
        start = tf.one_hot(0, batch.shape.rank, tf.cast(index * size, tf.int64), dtype=tf.int64)
        rest = tf.shape(batch, tf.int64)[1:]
        return tf.sparse.slice(batch, start, tf.concat([[tf.cast(size, tf.int64)], rest], 0))
    rest = [each or tf.shape(batch)[axis] for axis, each in enumerate(batch.shape)][1:]
    return tf.reshape(batch, [parts, size, *rest])[index]  # keeps static sizes static


def _share(batch: Any, parts: int) -> Any:
    """The number of examples in one part of a batch."""
    said = (
        "RunConfig.gradient_accumulation: a replica's batch{} cannot be split into {} equal parts"
    )
    size = batch.shape[0]
    if size is None:
        size = tf.cast(batches.examples(batch), tf.int32)
        with tf.control_dependencies(
            [tf.debugging.assert_equal(size % parts, 0, said.format("", parts))]
        ):
            size = tf.identity(size)
    elif size % parts:
        raise ConfigError(said.format(f" of {size}", parts))
    return size // parts
