"""Computes cross-entropy in one op on CPUs, even if ops must be deterministic.

In that case TensorFlow replaces its kernel by seventy ops, because the kernel is not deterministic
on GPUs. On CPUs it is. The kernel also reports a label that is out of range, for which the ops
return NaN.
"""

import tensorflow as tf

from runner.internals import tensorflow as tf_internals


def keep_kernel() -> None:
    """Makes TensorFlow use its kernel in this process, unless there is a GPU."""
    if not tf.config.list_physical_devices("GPU"):
        tf_internals.replace_cross_entropy(_by_kernel)


def _by_kernel(logits: tf.Tensor, labels: tf.Tensor, name: str | None) -> tf.Tensor:
    """Returns each example's loss, [batch], from logits [batch, classes] and labels [batch]."""
    return tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
        features=logits, labels=labels, name=name
    ).loss
