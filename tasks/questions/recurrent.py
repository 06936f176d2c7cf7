"""Recurrent layers over texts that are padded at their ends."""

import tensorflow as tf
import tf_keras

LSTM, GRU = tf_keras.layers.LSTM, tf_keras.layers.GRU


class BiRNN(tf_keras.layers.Layer):
    """Two recurrent layers that read [batch, tokens, features] forwards and backwards.

    Args:
        units: the size of each layer.
        name: the layer's name.
        kind: `LSTM` or `GRU`.
    """

    def __init__(self, units: int, *, name: str, kind: type[tf_keras.layers.Layer] = LSTM) -> None:
        super().__init__(name=name)
        self._forwards = kind(units, return_sequences=True, name="forwards")
        self._backwards = kind(units, return_sequences=True, name="backwards")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns [batch, tokens, 2 * units], with 0 outside the mask.

        The mask [batch, tokens] must select prefixes.
        """
        length = tf.reduce_sum(tf.cast(mask, tf.int32), -1)
        reverse = tf.reverse_sequence(x, length, seq_axis=1)
        backwards = tf.reverse_sequence(self._backwards(reverse), length, seq_axis=1)
        both = tf.concat([self._forwards(x), backwards], -1)
        return both * tf.cast(mask, both.dtype)[..., tf.newaxis]


class Stack(tf_keras.layers.Layer):
    """Several `BiRNN` layers, each of which reads the output of the previous one.

    Args:
        layers: the number of layers.
        units: the size of each layer in each direction.
        rate: the dropout rate before each layer. See `dropout`.
        name: the layer's name.
        kind: `LSTM` or `GRU`.
    """

    def __init__(
        self,
        layers: int,
        units: int,
        rate: float,
        *,
        name: str,
        kind: type[tf_keras.layers.Layer] = LSTM,
    ) -> None:
        super().__init__(name=name)
        self._drops = [dropout(rate) for _ in range(layers)]
        self._reads = [BiRNN(units, name=f"read_{n}", kind=kind) for n in range(layers)]

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> list[tf.Tensor]:
        """Returns the output of each layer, [batch, tokens, 2 * units]. See `BiRNN`."""
        outputs = []
        for drop, read in zip(self._drops, self._reads, strict=True):
            x = read(drop(x), mask)
            outputs.append(x)
        return outputs


def dropout(rate: float) -> tf_keras.layers.Dropout:
    """Drops the same features of all tokens of a text.

    Gal and Ghahramani, "A theoretically grounded application of dropout in recurrent neural
    networks", 2016.
    """
    return tf_keras.layers.Dropout(rate, noise_shape=(None, 1, None))
