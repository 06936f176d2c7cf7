"""Checks whether all values of a run's variables are finite."""

from collections.abc import Sequence

import tensorflow as tf


class FiniteCheck:
    """Finds the variables with values that are not finite.

    A sum is finite only if all its terms are, and takes one pass without a temporary. But a sum may
    overflow, so if it is not finite, the check looks at the values.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._floats = [v for v in variables if v.dtype.is_floating]

    def not_finite(self) -> list[str]:
        """The names of these variables."""
        sums = zip(self._floats, self._sums_are_finite().numpy(), strict=True)
        suspects = [variable for variable, finite in sums if not finite]
        return [v.name for v in suspects if not tf.reduce_all(tf.math.is_finite(v))]

    @tf.function(autograph=False)
    def _sums_are_finite(self) -> tf.Tensor:
        return tf.stack([tf.math.is_finite(tf.reduce_sum(v)) for v in self._floats])
