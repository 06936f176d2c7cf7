"""The last layers of readers, with logits of an answer's start and end, and of no answer."""

import tensorflow as tf
import tf_keras

from tasks.questions import attention


class Summarize(tf_keras.layers.Layer):
    """The mean of a text's tokens, with learned weights."""

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name)
        self._score = tf_keras.layers.Dense(1, name="score")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features] to [batch, features]."""
        return attention.mean(x, attention.softmax(self._score(x)[..., 0], mask))


class Pointer(tf_keras.layers.Layer):
    """Points at the start, then uses a summary of the likely starts to point at the end.

    Wang et al., "Gated self-matching networks for reading comprehension" (R-Net), 2017, section
    3.4, with the bilinear scores of Chen et al., "Reading Wikipedia to answer open-domain
    questions", 2017, section 3.2.

    Args:
        unanswerable: whether there may be no answer.
        name: the layer's name.
        chained: whether the end depends on the start, as in R-Net.
    """

    def __init__(self, unanswerable: bool, *, name: str, chained: bool = True) -> None:
        super().__init__(name=name)
        self._unanswerable = unanswerable
        self._chained = chained

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its sizes from `shape`, [batch, tokens, features]."""
        features = shape[-1]
        self._start = tf_keras.layers.Dense(features, name="start")
        self._end = tf_keras.layers.Dense(features, name="end")
        if self._chained:
            self._turn = tf_keras.layers.GRUCell(features, name="turn")
        if self._unanswerable:
            self._nothing = tf_keras.layers.Dense(features, activation="tanh", name="nothing")
        super().build(shape)

    def call(self, x: tf.Tensor, mask: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features], mask and [batch, features] to [batch, 1 + tokens, 2]."""
        nothing = tf.zeros_like(query)
        if self._unanswerable:  # one more token, based on the question and its best match
            scores = tf.einsum("btf,bf->bt", x, self._start(query))
            found = attention.mean(x, attention.softmax(scores, mask))
            nothing = self._nothing(tf.concat([query, found], -1))
        x = tf.concat([nothing[:, tf.newaxis], x], 1)
        mask = tf.pad(mask, [[0, 0], [1, 0]], constant_values=self._unanswerable)
        starts = attention.masked(tf.einsum("btf,bf->bt", x, self._start(query)), mask)
        if self._chained:
            _, query = self._turn(attention.mean(x, tf.nn.softmax(starts)), query)
        ends = attention.masked(tf.einsum("btf,bf->bt", x, self._end(query)), mask)
        return tf.cast(tf.stack([starts, ends], -1), tf.float32)


class LinearPointer(tf_keras.layers.Layer):
    """Scores starts and ends linearly, from separate features.

    Args:
        unanswerable: whether there may be no answer. Its score is based on the mean of the
            features, weighted by the probability of each start.
        name: the layer's name.
    """

    def __init__(self, unanswerable: bool, *, name: str) -> None:
        super().__init__(name=name)
        self._start = tf_keras.layers.Dense(1, name="start")
        self._end = tf_keras.layers.Dense(1, name="end")
        self._nothing = tf_keras.layers.Dense(2, name="nothing") if unanswerable else None

    def call(self, for_start: tf.Tensor, for_end: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features] twice and a mask to [batch, 1 + tokens, 2]."""
        starts, ends = self._start(for_start)[..., 0], self._end(for_end)[..., 0]
        nothing = None
        if self._nothing is not None:
            weights = attention.softmax(starts, mask)
            found = [attention.mean(x, weights) for x in (for_start, for_end)]
            nothing = self._nothing(tf.concat(found, -1))
        return logits(starts, ends, mask, nothing)


def logits(
    starts: tf.Tensor, ends: tf.Tensor, mask: tf.Tensor, nothing: tf.Tensor | None
) -> tf.Tensor:
    """A reader's output, float32 [batch, 1 + tokens, 2].

    Args:
        starts: [batch, tokens], the logits of each token as the start.
        ends: [batch, tokens], the logits of each token as the end.
        mask: [batch, tokens], true except for padding.
        nothing: [batch, 2], the logits of no answer. None if there is always one.
    """
    both = attention.masked(tf.stack([starts, ends], -1), mask[..., tf.newaxis])
    none = attention.masked(tf.zeros_like(both[:, 0]), tf.constant(False))
    first = none if nothing is None else tf.cast(nothing, tf.float32)
    return tf.concat([first[:, tf.newaxis], both], 1)
