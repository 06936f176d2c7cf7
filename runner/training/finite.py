"""Checks whether all values of a run's variables are finite."""

from collections.abc import Sequence

import tensorflow as tf


class FiniteCheck:
    """Finds the variables with values that are not finite.

    A sum of squares is finite only if all values are, and takes one pass and one operation. But it
    may overflow, so if it is not finite, the check looks at the values.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._floats = [v for v in variables if v.dtype.is_floating]

    def not_finite(self) -> list[str]:
        """The names of these variables."""
        sums = zip(self._floats, tf.math.is_finite(self._sums()).numpy(), strict=True)
        suspects = [variable for variable, finite in sums if not finite]
        return [v.name for v in suspects if not tf.reduce_all(tf.math.is_finite(v))]

    @tf.function(autograph=False)
    def _sums(self) -> tf.Tensor:
        return tf.stack([tf.cast(tf.nn.l2_loss(v), tf.float32) for v in self._floats])
