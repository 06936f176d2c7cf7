"""Attention of one text's words to those of another, with masks for padding."""

from collections.abc import Callable

import tensorflow as tf
import tf_keras

from tasks.questions import answer_spans


class Attend(tf_keras.layers.Layer):
    """For each token of a text, the mean of another text's tokens, weighted by similarity.

    Similarity is the dot product of projections after a ReLU (Chen et al., "Reading Wikipedia to
    answer open-domain questions", 2017, section 3.2).

    Args:
        units: the size of the projections.
        name: the layer's name.
        weighted: whether each of the projections' features has a learned weight.
    """

    def __init__(self, units: int, *, name: str, weighted: bool = False) -> None:
        super().__init__(name=name)
        self._project = tf_keras.layers.Dense(units, activation="relu", name="project")
        if weighted:
            self._weights = self.add_weight("weights", [units], initializer="ones")
        self._weighted = weighted

    def call(
        self, x: tf.Tensor, other: tf.Tensor, mask: tf.Tensor, values: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns means of `values`, `other` by default: [batch, x's tokens, features].

        Args:
            x: [batch, tokens, features].
            other: [batch, others, features], with the same features.
            mask: the tokens that may be attended to: [batch, others], or [batch, tokens, others].
            values: [batch, others, any].
        """
        projected = self._project(x)
        if self._weighted:
            projected *= self._weights
        scores = tf.matmul(projected, self._project(other), transpose_b=True)
        mask = mask if mask.shape.rank == 3 else mask[:, tf.newaxis]
        return tf.matmul(softmax(scores, mask), other if values is None else values)


class SelfAttention(tf_keras.layers.Layer):
    """Attention of a text's tokens to each other, with several heads.

    Vaswani et al., "Attention is all you need", 2017, section 3.2.2. It equals Keras's
    MultiHeadAttention, with the same names of weights, but does not transpose all pairs of tokens,
    which makes it twice as fast on a CPU.

    Args:
        heads: the number of heads.
        units: the size of a token, divided among the heads.
        name: the layer's name.
    """

    def __init__(self, heads: int, units: int, *, name: str) -> None:
        super().__init__(name=name)

        def projected(name: str) -> tf_keras.layers.Layer:
            shape = (None, heads, units // heads)
            return tf_keras.layers.EinsumDense("btf,fhs->bths", shape, bias_axes="hs", name=name)

        self._query_dense, self._key_dense, self._value_dense = map(
            projected, ("query", "key", "value")
        )
        self._output_dense = tf_keras.layers.EinsumDense(
            "bths,hsf->btf", (None, units), bias_axes="f", name="attention_output"
        )
        self._scale = (units // heads) ** -0.5

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [batch, tokens, units] to the same shape, using tokens where `mask` is true.

        `mask` is [batch, tokens].
        """

        def heads(project: tf_keras.layers.Layer) -> tf.Tensor:
            return tf.transpose(project(x), [0, 2, 1, 3])

        def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            scores = tf.matmul(query * self._scale, key, transpose_b=True)
            weights = tf.nn.softmax(masked(scores, mask[:, tf.newaxis, tf.newaxis]))
            return tf.matmul(tf.cast(weights, x.dtype), value)

        if training:  # recompute each head's weights of all pairs of tokens instead of keeping them
            attend = tf.recompute_grad(attend)
        found = attend(*map(heads, (self._query_dense, self._key_dense, self._value_dense)))
        return self._output_dense(tf.transpose(found, [0, 2, 1, 3]))


class Trilinear(tf_keras.layers.Layer):
    """The similarity of each pair of tokens: a learned linear function of [x; y; x * y].

    Seo et al., "Bidirectional attention flow for machine comprehension", 2017, section 2, part 4.
    """

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its size from `shape`, [batch, tokens, features]."""
        self._of_x = tf_keras.layers.Dense(1, name="of_x")
        self._of_y = tf_keras.layers.Dense(1, use_bias=False, name="of_y")
        self._of_both = self.add_weight("of_both", [shape[-1]], initializer="ones")
        super().build(shape)

    def call(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features] and [batch, others, features] to all pairs.

        The result is [batch, tokens, others]. The products are divided by the square root of the
        number of features.
        """
        scale = tf.cast(x.shape[-1], x.dtype) ** -0.5
        products = tf.matmul(x * self._of_both * scale, y, transpose_b=True)
        return self._of_x(x) + tf.linalg.matrix_transpose(self._of_y(y)) + products


Back = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Computes the attention from the other text's tokens to the text's tokens.

Takes similarities [batch, tokens, others], the tokens [batch, tokens, features], their mask and the
others' mask. Returns [batch, tokens or 1, features]."""


class Flow(tf_keras.layers.Layer):
    """Attention from the context's words to the question's words, and back.

    Seo et al., "Bidirectional attention flow for machine comprehension", 2017, section 2, part 4.

    Args:
        back: computes the attention from the question to the context.
        name: the layer's name.
    """

    def __init__(self, back: Back, *, name: str) -> None:
        super().__init__(name=name)
        self._similarity = Trilinear(name="similarity")
        self._back = back

    def call(
        self, told: tf.Tensor, asked: tf.Tensor, told_mask: tf.Tensor, asked_mask: tf.Tensor
    ) -> tf.Tensor:
        """Maps [batch, tokens, features] and the question's to [batch, tokens, 4 * features]."""
        scores = self._similarity(told, asked)
        heard = tf.matmul(softmax(scores, asked_mask[:, tf.newaxis]), asked)
        noticed = self._back(scores, told, told_mask, asked_mask)
        return tf.concat([told, heard, told * heard, told * noticed], -1)


def masked(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Masks scores in float32, because half precision cannot represent so low a number."""
    return tf.where(mask, tf.cast(scores, tf.float32), answer_spans.IMPOSSIBLE)


def softmax(scores: tf.Tensor, mask: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Weights that sum to 1 within the mask and are 0 outside. All 0 if the mask is empty."""
    weights = tf.where(mask, tf.nn.softmax(masked(scores, mask), axis), 0.0)
    return tf.cast(weights, scores.dtype)


def mean(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Maps [batch, tokens, features] and weights [batch, tokens] to [batch, features]."""
    return tf.einsum("btf,bt->bf", x, tf.cast(weights, x.dtype))
