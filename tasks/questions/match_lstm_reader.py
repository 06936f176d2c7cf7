"""A reader over word vectors, related to Match-LSTM and R-Net, that is fast on a CPU.

It combines word vectors, exact matches and the question aligned to each word, as in Chen et al.,
"Reading Wikipedia to answer open-domain questions", 2017; an LSTM over the context's words, each
with its attention over the question, as in Wang and Jiang, "Machine comprehension using Match-LSTM
and answer pointer", 2016; and the pointer of Wang et al., "Gated self-matching networks for reading
comprehension" (R-Net), 2017, section 3.4.
"""

import dataclasses

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from runner.errors import ConfigError
from tasks.questions import answer_spans, word_features
from tasks.text import embeddings


@dataclasses.dataclass
class MatchLSTMConfig(base_config.Config):
    """The reader's settings.

    Attributes:
        words: the word vectors.
        units: the size of each LSTM in each direction.
        dropout: the rate before each LSTM and before the pointer, in [0, 1). It drops the same
            features for all words of a text.
    """

    words: embeddings.EmbeddingConfig = dataclasses.field(
        default_factory=embeddings.EmbeddingConfig
    )
    units: int = 64
    dropout: float = 0.3


def build(
    config: MatchLSTMConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """The network.

    Args:
        config: the settings.
        vectors: the word vectors.
        unanswerable: whether it may predict that there is no answer.

    Returns:
        A model from `question` [batch, tokens, word_features.COLUMNS] and `context` to float32
        logits [batch, 1 + tokens, 2] of the answer's start and end; at 0, of no answer.

    Raises:
        ConfigError: a size or a rate is out of range.
    """
    if config.units < 1 or not 0 <= config.dropout < 1:
        raise ConfigError(
            f"MatchLSTMConfig.units={config.units}, dropout={config.dropout}: units must be"
            " 1 or more, and dropout at least 0 and below 1"
        )
    shape = (None, word_features.COLUMNS)
    question, context = (
        tf_keras.Input(shape, dtype=tf.int32, name=name) for name in ("question", "context")
    )
    embed = Embed(vectors, trainable=config.words.trainable, name="embed")
    asked, told = embed(question), embed(context)
    asked_mask, told_mask = (word_features.ids(rows) != 0 for rows in (question, context))

    def encode(x: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        x = tf_keras.layers.Dropout(config.dropout, noise_shape=(None, 1, None))(x)
        return BiLSTM(config.units, name=name)(x, mask)

    aligned = Attend(config.units, name="align")(told, asked, asked_mask)
    matches = word_features.matches(context, question)
    told = _joined(told, aligned, matches, word_features.shapes(context))
    asked = _joined(asked, word_features.shapes(question))
    told = encode(told, told_mask, "read_context")
    asked = encode(asked, asked_mask, "read_question")
    heard = Attend(config.units, name="match")(told, asked, asked_mask)
    matched = encode(tf.concat([told, heard, told * heard], -1), told_mask, "read_matches")
    matched = tf_keras.layers.Dropout(config.dropout, noise_shape=(None, 1, None))(matched)
    summary = Summarize(name="summary")(asked, asked_mask)
    logits = Pointer(unanswerable, name="pointer")(matched, told_mask, summary)
    return tf_keras.Model({"question": question, "context": context}, logits, name="match_lstm")


class Embed(tf_keras.layers.Layer):
    """Embeds `word_features` [batch, tokens, COLUMNS] as vectors [batch, tokens, dimension]."""

    def __init__(self, vectors: embeddings.Embeddings, *, trainable: bool, name: str) -> None:
        super().__init__(name=name)
        self._vectors = embeddings.layer(vectors, trainable=trainable)

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        """Sets no Keras mask, which would make an LSTM several times slower."""
        return tf.identity(self._vectors(word_features.ids(rows)))


class BiLSTM(tf_keras.layers.Layer):
    """Two LSTMs that read [batch, tokens, features] forwards and backwards."""

    def __init__(self, units: int, *, name: str) -> None:
        super().__init__(name=name)
        self._forwards = tf_keras.layers.LSTM(units, return_sequences=True, name="forwards")
        self._backwards = tf_keras.layers.LSTM(units, return_sequences=True, name="backwards")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """[batch, tokens, 2 * units]; 0 outside the mask [batch, tokens], which keeps prefixes."""
        length = tf.reduce_sum(tf.cast(mask, tf.int32), -1)
        reverse = tf.reverse_sequence(x, length, seq_axis=1)
        backwards = tf.reverse_sequence(self._backwards(reverse), length, seq_axis=1)
        both = tf.concat([self._forwards(x), backwards], -1)
        return both * tf.cast(mask, both.dtype)[..., tf.newaxis]


class Attend(tf_keras.layers.Layer):
    """For each token of a text, the mean of another text's tokens, weighted by similarity."""

    def __init__(self, units: int, *, name: str) -> None:
        super().__init__(name=name)
        self._project = tf_keras.layers.Dense(units, activation="relu", name="project")

    def call(self, x: tf.Tensor, other: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """[batch, x's tokens, features]: means of `other` within its mask."""
        scores = tf.matmul(self._project(x), self._project(other), transpose_b=True)
        return tf.matmul(_softmax(scores, mask[:, tf.newaxis]), other)


class Summarize(tf_keras.layers.Layer):
    """The mean of a text's tokens, with learned weights."""

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name)
        self._score = tf_keras.layers.Dense(1, name="score")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """From [batch, tokens, features] to [batch, features]."""
        return _mean(x, _softmax(self._score(x)[..., 0], mask))


class Pointer(tf_keras.layers.Layer):
    """Points at the start and, given a summary of the likely starts, at the end."""

    def __init__(self, unanswerable: bool, *, name: str) -> None:
        super().__init__(name=name)
        self._unanswerable = unanswerable

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its sizes from `shape`, [batch, tokens, features]."""
        features = shape[-1]
        self._start = tf_keras.layers.Dense(features, name="start")
        self._end = tf_keras.layers.Dense(features, name="end")
        self._turn = tf_keras.layers.GRUCell(features, name="turn")
        if self._unanswerable:
            self._nothing = tf_keras.layers.Dense(features, activation="tanh", name="nothing")
        super().build(shape)

    def call(self, x: tf.Tensor, mask: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
        """From [batch, tokens, features], mask and [batch, features] to [batch, 1 + tokens, 2]."""
        nothing = tf.zeros_like(query)
        if self._unanswerable:  # one more token, from the question and its best match
            found = _mean(x, _softmax(tf.einsum("btf,bf->bt", x, self._start(query)), mask))
            nothing = self._nothing(tf.concat([query, found], -1))
        x = tf.concat([nothing[:, tf.newaxis], x], 1)
        mask = tf.pad(mask, [[0, 0], [1, 0]], constant_values=self._unanswerable)
        starts = _masked(tf.einsum("btf,bf->bt", x, self._start(query)), mask)
        _, query = self._turn(_mean(x, tf.nn.softmax(starts)), query)
        ends = _masked(tf.einsum("btf,bf->bt", x, self._end(query)), mask)
        return tf.cast(tf.stack([starts, ends], -1), tf.float32)


def _joined(x: tf.Tensor, *features: tf.Tensor) -> tf.Tensor:
    return tf.concat([x, *(tf.cast(each, x.dtype) for each in features)], -1)


def _mean(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.einsum("btf,bt->bf", x, tf.cast(weights, x.dtype))


def _masked(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """In float32, as half precision cannot represent so low a number."""
    return tf.where(mask, tf.cast(scores, tf.float32), answer_spans.IMPOSSIBLE)


def _softmax(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(_masked(scores, mask)), scores.dtype)
