"""Quality of predicted probabilities: accuracy, likelihood, calibration.

Every metric takes labels [batch] and logits [batch, classes]. A label below 0 marks an example
without a known class, which metrics that need a label skip. All sums are additive over examples, in
float64 if the device supports it, so results depend on neither batches nor replicas. A metric
without any examples has no result, and its `is_defined` is false.
"""

import abc
from collections.abc import Callable

import tensorflow as tf
import tf_keras

RELIABILITY_BINS = 15


def correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """1 if the most probable class is correct, else 0. The first class wins ties."""
    best = tf.argmax(logits, axis=-1, output_type=labels.dtype)
    return tf.cast(best == labels, logits.dtype)


def correct_in_5(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """1 if the correct class is among the five most probable, else 0. The first class wins ties."""
    best = tf.math.top_k(logits, 5).indices
    found = tf.reduce_any(best == tf.cast(labels, best.dtype)[:, tf.newaxis], axis=-1)
    return tf.cast(found, logits.dtype)


def negative_log_likelihood(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The negative logarithm of the correct class's probability."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def brier_score(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The squared distance of the probabilities from the one-hot label (Brier, 1950), in [0, 2]."""
    right = tf.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return tf.reduce_sum(tf.square(tf.nn.softmax(logits) - right), axis=-1)


def confidence(_: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """The probability of the most probable class."""
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)
    # For so few numbers, tf.nn.softmax takes ten times as long, because it wakes every thread.
    return 1 / tf.reduce_sum(tf.exp(logits - highest), axis=-1)


class Sums(tf_keras.metrics.Metric):
    """A metric whose state is one tensor of sums over examples.

    Args:
        name: the metric's name.
        shape: the shape of the sums.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
        super().__init__(name=name, dtype=tf.float32 if on_tpu else tf.float64)
        self.sums = self.add_weight("sums", shape, initializer="zeros")

    def reset_state(self) -> None:
        """Sets all sums to 0."""
        self.sums.assign(tf.zeros(self.sums.shape, self.dtype))

    @abc.abstractmethod
    def is_defined(self) -> tf.Tensor:
        """Whether there are enough examples for a result, a boolean scalar."""


class Mean(Sums):
    """The mean over examples of a number.

    Args:
        number: computes [batch] numbers from labels and logits.
        name: the metric's name.
        of_all: also include examples without a known class. `number` must not use the labels.
    """

    def __init__(
        self,
        number: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        name: str,
        *,
        of_all: bool = False,
    ) -> None:
        super().__init__(name, (2,))  # sum of the numbers, count of the examples
        self._number = number
        self._of_all = of_all

    @tf.autograph.experimental.do_not_convert
    def update_state(self, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Adds a batch."""
        counts = tf.ones_like(labels, tf.bool) if self._of_all else labels >= 0
        numbers = tf.where(counts, self._number(tf.maximum(labels, 0), logits), 0)
        rows = tf.stack([tf.cast(numbers, self.dtype), tf.cast(counts, self.dtype)])
        self.sums.assign_add(tf.reduce_sum(rows, axis=1))

    def is_defined(self) -> tf.Tensor:
        """Whether there are any examples."""
        return self.sums[1] > 0

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar, 0 without examples."""
        return tf.math.divide_no_nan(self.sums[0], self.sums[1])


class Reliability(Sums):
    """Sums over the examples whose confidence falls in each of 15 equal bins of [0, 1].

    A bin includes its upper end but not its lower one. The result is [15, 3]: the number of
    examples, the sum of their confidences, and the number of correct predictions.
    """

    def __init__(self, name: str = "reliability") -> None:
        super().__init__(name, (RELIABILITY_BINS, 3))

    @tf.autograph.experimental.do_not_convert
    def update_state(self, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Adds a batch."""
        sure = confidence(labels, logits)
        bins = tf.cast(tf.math.ceil(sure * RELIABILITY_BINS), tf.int32) - 1
        rows = tf.stack([tf.ones_like(sure), sure, correct(labels, logits)], axis=1)
        # unsorted_segment_sum drops segments below 0.
        bins = tf.where(labels >= 0, tf.clip_by_value(bins, 0, RELIABILITY_BINS - 1), -1)
        rows = tf.cast(rows, self.dtype)
        self.sums.assign_add(tf.math.unsorted_segment_sum(rows, bins, RELIABILITY_BINS))

    def is_defined(self) -> tf.Tensor:
        """Whether there is an example with a known class."""
        return tf.reduce_sum(self.sums[:, 0]) > 0

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """The sums, [15, 3]."""
        return tf.convert_to_tensor(self.sums)


class ExpectedCalibrationError(Reliability):
    """The mean distance of confidence from accuracy in 15 bins, weighted by their examples.

    Guo et al., "On calibration of modern neural networks", 2017.
    """

    def __init__(self, name: str = "expected_calibration_error") -> None:
        super().__init__(name)

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar, 0 without examples."""
        count, sure, right = tf.unstack(self.sums, axis=1)
        return tf.math.divide_no_nan(tf.reduce_sum(tf.abs(right - sure)), tf.reduce_sum(count))


class ConfusionMatrix(Sums):
    """How many examples of each class (rows) were predicted as each class (columns).

    Args:
        classes: the number of classes.
        name: the metric's name.
    """

    def __init__(self, classes: int, name: str = "confusion_matrix") -> None:
        super().__init__(name, (classes, classes))
        self._classes = classes

    @tf.autograph.experimental.do_not_convert
    def update_state(self, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Adds a batch."""
        taken = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        cells = tf.where(labels >= 0, labels * self._classes + taken, -1)
        counted = tf.math.unsorted_segment_sum(
            tf.ones_like(cells, self.dtype), cells, self._classes**2
        )
        self.sums.assign_add(tf.reshape(counted, self.sums.shape))

    def is_defined(self) -> tf.Tensor:
        """Whether there is an example with a known class."""
        return tf.reduce_sum(self.sums) > 0

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """The counts, [classes, classes]."""
        return tf.convert_to_tensor(self.sums)
