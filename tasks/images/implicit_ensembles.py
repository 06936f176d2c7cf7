"""Several networks in one: Monte Carlo dropout and BatchEnsemble.

Gal and Ghahramani, "Dropout as a Bayesian approximation", 2016, and Wen et al., "BatchEnsemble: an
alternative approach to efficient ensemble and lifelong learning", 2020. A batch is repeated once
for each network, so that the rows of the first network come first. After the last layer, the
probabilities of the networks are averaged.
"""

import zlib

import tensorflow as tf
import tf_keras


class Repeat(tf_keras.layers.Layer):
    """Repeats a batch for each network.

    Args:
        count: the number of networks.
        in_training: whether it also does so in training.
    """

    def __init__(self, count: int, *, in_training: bool, name: str) -> None:
        super().__init__(name=name)
        self._count, self._in_training = count, in_training

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps [batch, ...] to [count * batch, ...]."""
        if training and not self._in_training:
            return x
        return tf.tile(x, [self._count, *[1] * (x.shape.rank - 1)])


class Average(tf_keras.layers.Layer):
    """Averages the probabilities of all networks in an evaluation.

    Args:
        count: the number of networks.
    """

    def __init__(self, count: int, *, name: str) -> None:
        super().__init__(name=name, dtype="float32")
        self._count = count

    def call(self, logits: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps logits [count * batch, classes] to the logits of the means, [batch, classes]."""
        if training:
            return logits
        logs = tf.nn.log_softmax(tf.reshape(logits, [self._count, -1, logits.shape[-1]]))
        return tf.reduce_logsumexp(logs, axis=0) - tf.math.log(float(self._count))


class SampledDropout(tf_keras.layers.Layer):
    """Dropout in training, and with fixed masks in an evaluation of several samples.

    All examples share the masks of a sample, so that the result does not depend on the batch, and
    a sample is one network.

    Args:
        rate: the dropout rate.
        samples: the number of networks in an evaluation. 1: no dropout there.
    """

    def __init__(self, rate: float, samples: int, *, name: str) -> None:
        super().__init__(name=name)
        self._rate, self._samples = rate, samples
        self._training = tf_keras.layers.Dropout(rate)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps [rows, ...] to the same shape. In an evaluation, rows are those of `Repeat`."""
        if training:
            return self._training(x, training=True)
        if self._samples == 1:
            return x
        shape = [self._samples, 1, *x.shape[1:]]
        seed = [zlib.crc32(self.name.encode()) & 0x7FFFFFFF, self._samples]
        kept = tf.random.stateless_uniform(shape, seed) >= self._rate
        parts = tf.reshape(x, [self._samples, -1, *x.shape[1:]])
        scaled = parts * tf.cast(kept, x.dtype) / (1 - self._rate)
        return tf.reshape(scaled, [-1, *x.shape[1:]])


class MemberScale(tf_keras.layers.Layer):
    """Multiplies channels by each member's own vector: one factor of BatchEnsemble's rank-1 matrix.

    The vectors start as random signs, and have no weight penalty.

    Args:
        members: the number of members.
    """

    def __init__(self, members: int, *, name: str) -> None:
        super().__init__(name=name)
        self._members = members

    def build(self, shape: tf.TensorShape) -> None:
        """Creates the vectors."""
        self._scale = self.add_weight("fast", [self._members, shape[-1]], initializer=_signs)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [members * batch, ..., channels] to the same shape."""
        parts = tf.reshape(x, [self._members, -1, *x.shape[1:]])
        ones = [1] * (x.shape.rank - 1)
        scale = tf.reshape(tf.cast(self._scale, x.dtype), [self._members, *ones, x.shape[-1]])
        return tf.reshape(parts * scale, [-1, *x.shape[1:]])


def _signs(shape: tf.TensorShape, dtype: tf.DType | None = None, **_: object) -> tf.Tensor:
    """Returns random signs, from Keras's seeded generator."""
    return tf.sign(tf_keras.initializers.RandomUniform(-1, 1)(shape, dtype=dtype))
