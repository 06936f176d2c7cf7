"""The norm of the gradient that an optimizer applies."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling.optimization import legacy_adamw

from runner.models import optimizer as optimizers


def measure(optimizer: tf_keras.optimizers.Optimizer, norm: tf_keras.metrics.Mean) -> None:
    """Makes an optimizer record the global norm of each gradient that it applies, before clipping.

    The gradient is summed over replicas, and unscaled if there is a loss scale. Steps that the loss
    scale skips are not recorded. (`gradient_transformers` would see the gradient only after
    clipping, and new optimizers do not have them.)

    Args:
        optimizer: Built by Model Garden's factory, before any step is traced.
        norm: Records the norms.
    """
    inner = optimizers.innermost(optimizer)
    apply = inner.apply_gradients
    # Model Garden's AdamW clips each replica's gradient before summing. With one replica, it clips
    # by the recorded norm, which TensorFlow then computes only once.
    clips_first = isinstance(inner, legacy_adamw.AdamWeightDecay) and inner.gradient_clip_norm > 0

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        grads_and_vars: Iterable[tuple[Any, tf.Variable]], name: str | None = None, **options: Any
    ) -> Any:
        applied = summed = list(grads_and_vars)
        if _is_to_be_summed(options) and not (clips_first and _is_alone()):
            summed = _sum(inner, applied)
            if not clips_first:
                applied, options = summed, {"experimental_aggregate_gradients": False}
        if any(gradient is not None for gradient, _ in summed):
            norm.update_state(_global_norm([gradient for gradient, _ in summed]))
        return apply(applied, name, **options)

    inner.apply_gradients = apply_gradients


def _is_to_be_summed(options: dict[str, Any]) -> bool:
    """Whether a call with these options sums over replicas."""
    skips = options.get("skip_gradients_aggregation", False)
    return not skips and options.get("experimental_aggregate_gradients", True)


def _is_alone() -> bool:
    return tf.distribute.get_strategy().num_replicas_in_sync == 1


def _sum(inner: tf_keras.optimizers.Optimizer, pairs: Any) -> list[tuple[Any, tf.Variable]]:
    """Sums gradients over replicas in the optimizer's own way."""
    legacy = isinstance(inner, tf_keras.optimizers.legacy.Optimizer)
    return list((inner.gradient_aggregator if legacy else inner.aggregate_gradients)(pairs))


def _global_norm(gradients: Sequence[Any]) -> tf.Tensor:
    """The norm of all gradients together, with None as zeros."""
    values = [_values(gradient) for gradient in gradients if gradient is not None]
    return tf.linalg.global_norm([tf.cast(value, tf.float32) for value in values])


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """The numbers of a gradient, with slices of the same row added up."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
