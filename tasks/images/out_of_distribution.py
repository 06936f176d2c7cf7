"""Metrics for detecting images of unknown classes by the network's confidence.

The metrics work as in `tasks.images.calibration`. A label below 0 marks an unknown class.
"""

import tensorflow as tf

from tasks.images import calibration

# Confidences are binned by their log-odds, from those of 160,000 equally probable classes to the
# point where a float32 can barely represent the least probable classes.
_LOWEST, _STEP, _BINS = -12.0, 0.002, 41_000


def entropy(_: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The entropy of the probabilities, in nats."""
    logarithms = tf.nn.log_softmax(logits)
    return -tf.reduce_sum(tf.math.multiply_no_nan(logarithms, tf.exp(logarithms)), axis=-1)


class _Detection(calibration.Sums):
    """Histograms of the confidence in examples of known and of unknown classes.

    Results are exact for confidences whose log-odds are rounded down to a multiple of 0.002.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, (2, _BINS))

    @tf.autograph.experimental.do_not_convert
    def update_state(self, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Adds a batch."""
        steps = tf.math.floor((_log_odds(logits) - _LOWEST) / _STEP)
        bins = tf.cast(tf.clip_by_value(steps, 0, _BINS - 1), tf.int32)
        cells = tf.where(labels >= 0, bins, _BINS + bins)
        counted = tf.math.unsorted_segment_sum(tf.ones_like(cells, self.dtype), cells, 2 * _BINS)
        self.sums.assign_add(tf.reshape(counted, self.sums.shape))

    def is_defined(self) -> tf.Tensor:
        """Whether there are examples of both kinds."""
        return tf.reduce_all(tf.reduce_sum(self.sums, axis=1) > 0)


class DetectionAUROC(_Detection):
    """How often confidence is higher for a known than for an unknown class, with ties as half.

    The area under the receiver operating characteristic (Hendrycks and Gimpel, "A baseline for
    detecting misclassified and out-of-distribution examples", 2017). The error is at most half the
    fraction of pairs whose log-odds agree to 0.002.
    """

    def __init__(self, name: str = "ood_auroc") -> None:
        super().__init__(name)

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar, 0 if either kind is missing."""
        known, unknown = tf.unstack(self.sums)
        below = tf.cumsum(unknown, exclusive=True) + unknown / 2
        pairs = tf.reduce_sum(known) * tf.reduce_sum(unknown)
        return tf.math.divide_no_nan(tf.reduce_sum(known * below), pairs)


class DetectionAUPRC(_Detection):
    """The average precision of detecting examples of unknown classes by their low confidence."""

    def __init__(self, name: str = "ood_auprc") -> None:
        super().__init__(name)

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar, 0 if there are no examples of unknown classes."""
        _, unknown = tf.unstack(self.sums)
        precision = tf.math.divide_no_nan(
            tf.cumsum(unknown), tf.cumsum(tf.reduce_sum(self.sums, axis=0))
        )
        return tf.math.divide_no_nan(tf.reduce_sum(unknown * precision), tf.reduce_sum(unknown))


def _log_odds(logits: tf.Tensor) -> tf.Tensor:
    """The most probable class's log-odds, [batch], exact even if its probability rounds to 1."""
    best = tf.one_hot(tf.argmax(logits, axis=-1), logits.shape[-1], on_value=True, off_value=False)
    others = tf.reduce_logsumexp(tf.where(best, -float("inf"), logits), axis=-1)
    return tf.reduce_max(logits, axis=-1) - others
