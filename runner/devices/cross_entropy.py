"""Cross-entropy in one op on CPUs, where ops are deterministic, too.

TensorFlow then puts seventy ops in the place of its kernel, because that one is not deterministic
on GPUs; on CPUs it is. It also says which label is out of range, where the ops yield NaN.
"""

import tensorflow as tf
from tensorflow.python.ops import nn_ops

_NAME = "_sparse_softmax_cross_entropy_with_rank_2_logits"  # what all of TensorFlow's come down to


def keep_kernel() -> None:
    """Has TensorFlow use its kernel in this process, unless that has a GPU."""
    if not tf.config.list_physical_devices("GPU") and hasattr(nn_ops, _NAME):
        setattr(nn_ops, _NAME, _by_kernel)


def _by_kernel(logits: tf.Tensor, labels: tf.Tensor, name: str | None) -> tf.Tensor:
    """Each example's loss.

    Args:
        logits: float [batch, classes].
        labels: int [batch].
        name: Of the op.
    """
    found = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
        features=logits, labels=labels, name=name
    )
    return found.loss
