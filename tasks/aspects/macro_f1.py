"""Macro-averaged F1 from a confusion matrix, independent of batch size and number of replicas."""

import tensorflow as tf
import tf_keras


class MacroF1(tf_keras.metrics.Metric):
    """The mean over classes of F1, the harmonic mean of precision and recall.

    Like scikit-learn's `f1_score(average="macro")`, it ignores classes that occur in neither the
    labels nor the predictions. Without examples, the result is 0.

    Args:
        classes: the number of classes.
        name: the metric's name.
    """

    def __init__(self, classes: int, name: str = "macro_f1") -> None:
        super().__init__(name=name, dtype=tf.float32)
        self._classes = classes
        self._confusion = self.add_weight(
            "confusion", shape=[classes, classes], initializer="zeros"
        )

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        Args:
            y_true: [batch] class indices.
            y_pred: [batch, classes] scores. The highest is the prediction.
            sample_weight: [batch] weights of the examples. None: 1 each.
        """
        matrix = tf.math.confusion_matrix(
            tf.reshape(y_true, [-1]),
            tf.argmax(y_pred, axis=-1),
            num_classes=self._classes,
            weights=sample_weight,
            dtype=self._confusion.dtype,
        )
        self._confusion.assign_add(matrix)

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar in [0, 1]."""
        hits = tf.linalg.diag_part(self._confusion)
        seen = tf.reduce_sum(self._confusion, axis=0) + tf.reduce_sum(self._confusion, axis=1)
        f1 = tf.math.divide_no_nan(2 * hits, seen)
        occurring = tf.math.count_nonzero(seen, dtype=seen.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(f1), occurring)

    def reset_state(self) -> None:
        """Sets all counts to 0."""
        self._confusion.assign(tf.zeros_like(self._confusion))
