"""The norm of the gradient that an optimizer applies."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling.optimization import legacy_adamw

from runner.optimizers import optimizer as optimizers


def measure(optimizer: tf_keras.optimizers.Optimizer, norm: tf_keras.metrics.Mean) -> None:
    """Makes an optimizer tell the global norm of each gradient that it applies, before clipping.

    The gradient is summed over replicas, and unscaled where there is a loss scale; a step that the
    loss scale leaves out has none.

    Args:
        optimizer: What official's factory built; no step has been traced.
        norm: Takes the norms up.
    """
    innermost = optimizers.innermost(optimizer)
    kind: type = _Legacy if optimizers.is_legacy(optimizer) else _New
    if isinstance(innermost, legacy_adamw.AdamWeightDecay) and innermost.gradient_clip_norm > 0:
        kind = _ClipsFirst
    optimizers.extend(optimizer, kind, norm=norm)


class _Legacy(tf_keras.optimizers.legacy.Optimizer):
    norm: tf_keras.metrics.Mean

    def _transform_gradients(self, grads_and_vars: Sequence[tuple[Any, tf.Variable]]) -> Any:
        self.norm.update_state(_global_norm([gradient for gradient, _ in grads_and_vars]))
        return super()._transform_gradients(grads_and_vars)


class _ClipsFirst(tf_keras.optimizers.legacy.Optimizer):
    """Official's AdamW, which clips each replica's gradient before it sums them."""

    norm: tf_keras.metrics.Mean

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[Any, tf.Variable]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Applies gradients to variables."""
        summed = grads_and_vars = list(grads_and_vars)
        # One replica clips by the very norm that is told: TensorFlow then computes it once.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if experimental_aggregate_gradients and replicas > 1:
            summed = self._aggregate_gradients(grads_and_vars)
        self.norm.update_state(_global_norm([gradient for gradient, _ in summed]))
        return super().apply_gradients(grads_and_vars, name, experimental_aggregate_gradients)


class _New(tf_keras.optimizers.Optimizer):
    norm: tf_keras.metrics.Mean

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        self.norm.update_state(_global_norm(grads))
        return super()._clip_gradients(grads)


def _global_norm(gradients: Sequence[Any]) -> tf.Tensor:
    """The norm of all gradients together; None stands for zeros."""
    found = [_values(gradient) for gradient in gradients if gradient is not None]
    return tf.linalg.global_norm([tf.cast(each, tf.float32) for each in found])


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """The numbers of a gradient, where slices of the same row are one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
