"""A reader over word vectors, in the family of Match-LSTM and R-Net, that is quick on a CPU.

Vectors, exact matches and the question aligned to each word, as Chen et al., "Reading Wikipedia to
answer open-domain questions", 2017; an LSTM over what the question says to each word of the
context, as Wang and Jiang, "Machine comprehension using Match-LSTM and answer pointer", 2016; the
pointer of Wang et al., "Gated self-matching networks for reading comprehension" (R-Net), 2017,
section 3.4.
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
    """Its size.

    Attributes:
        words: the word vectors.
        units: the size of each LSTM in each direction.
        dropout: the rate before each LSTM and before the pointer, with the same features left out
            for all words of a text, in [0, 1).
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
        config: its size.
        vectors: of words.
        unanswerable: whether it may find that there is no answer.

    Returns:
        From `question` [batch, tokens, word_features.COLUMNS] and `context` to float32 logits
        [batch, 1 + tokens, 2], of the answer's start and end; at 0, of no answer.

    Raises:
        ConfigError: a size or a share out of range.
    """
    if config.units < 1 or not 0 <= config.dropout < 1:
        raise ConfigError(
            f"MatchLSTMConfig.units={config.units}, dropout={config.dropout}: expected a number"
            " above 0, and a share, at least 0 and below 1"
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
    """Rows of `word_features` [batch, tokens, COLUMNS] to vectors [batch, tokens, dimension]."""

    def __init__(self, vectors: embeddings.Embeddings, *, trainable: bool, name: str) -> None:
        super().__init__(name=name)
        self._vectors = embeddings.layer(vectors, trainable=trainable)

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        """Without Keras's mask, under which an LSTM is several times as slow."""
        return tf.identity(self._vectors(word_features.ids(rows)))


class BiLSTM(tf_keras.layers.Layer):
    """An LSTM that reads [batch, tokens, features] forwards, and one that reads it backwards."""

    def __init__(self, units: int, *, name: str) -> None:
        super().__init__(name=name)
        self._forwards = tf_keras.layers.LSTM(units, return_sequences=True, name="forwards")
        self._backwards = tf_keras.layers.LSTM(units, return_sequences=True, name="backwards")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """[batch, tokens, 2 * units]; 0 outside the mask, [batch, tokens] of whole prefixes."""
        length = tf.reduce_sum(tf.cast(mask, tf.int32), -1)
        reverse = tf.reverse_sequence(x, length, seq_axis=1)
        backwards = tf.reverse_sequence(self._backwards(reverse), length, seq_axis=1)
        both = tf.concat([self._forwards(x), backwards], -1)
        return both * tf.cast(mask, both.dtype)[..., tf.newaxis]


class Attend(tf_keras.layers.Layer):
    """For each token of a text the mean of another one's, weighted by likeness."""

    def __init__(self, units: int, *, name: str) -> None:
        super().__init__(name=name)
        self._project = tf_keras.layers.Dense(units, activation="relu", name="project")

    def call(self, x: tf.Tensor, other: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """[batch, tokens, features] of x's tokens, but of the other's features and its mask."""
        scores = tf.matmul(self._project(x), self._project(other), transpose_b=True)
        return tf.matmul(_softmax(scores, mask[:, tf.newaxis]), other)


class Summarize(tf_keras.layers.Layer):
    """The mean of a text's tokens, weighted by what each of them is."""

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name)
        self._score = tf_keras.layers.Dense(1, name="score")

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """[batch, tokens, features] to [batch, features]."""
        return _mean(x, _softmax(self._score(x)[..., 0], mask))


class Pointer(tf_keras.layers.Layer):
    """Points at the start, and, having read what may stand there, at the end."""

    def __init__(self, unanswerable: bool, *, name: str) -> None:
        super().__init__(name=name)
        self._unanswerable = unanswerable

    def build(self, shape: tf.TensorShape) -> None:
        """Sizes follow the tokens' features, [batch, tokens, features]."""
        features = shape[-1]
        self._start = tf_keras.layers.Dense(features, name="start")
        self._end = tf_keras.layers.Dense(features, name="end")
        self._turn = tf_keras.layers.GRUCell(features, name="turn")
        if self._unanswerable:
            self._nothing = tf_keras.layers.Dense(features, activation="tanh", name="nothing")
        super().build(shape)

    def call(self, x: tf.Tensor, mask: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
        """[batch, tokens, features], their mask, [batch, features] to [batch, 1 + tokens, 2]."""
        nothing = tf.zeros_like(query)
        if self._unanswerable:  # one more token, made of the question and what it finds at best
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
    """In float32: half precision does not hold so low a number."""
    return tf.where(mask, tf.cast(scores, tf.float32), answer_spans.IMPOSSIBLE)


def _softmax(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(_masked(scores, mask)), scores.dtype)
