"""Shared parts of the word-based readers: their settings, their inputs, the vectors of words."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from runner.errors import ConfigError
from tasks.questions import word_features
from tasks.text import embeddings

_CHARACTER_VECTOR = 16
_CHARACTER_WINDOW = 5


@dataclasses.dataclass
class WordReaderConfig(base_config.Config):
    """The settings of all word-based readers.

    Attributes:
        words: the word vectors.
        units: the size of each layer. For a recurrent layer, the size in each direction.
        dropout: the dropout rate before each recurrent layer and before the pointer, in [0, 1). It
            drops the same features for all words of a text.
        characters: how many characters of each word are read, from its start. 0: none.
        character_units: the size of the vector computed from them, appended to the word's.
    """

    words: embeddings.EmbeddingConfig = dataclasses.field(
        default_factory=embeddings.EmbeddingConfig
    )
    units: int = 64
    dropout: float = 0.3
    characters: int = 0
    character_units: int = 32


class Text(NamedTuple):
    """A text in a network.

    Attributes:
        rows: [batch, tokens, columns] int32, see `word_features`.
        mask: [batch, tokens] bool, true except for padding.
        vectors: [batch, tokens, features], for the words, and for their characters if read.
    """

    rows: tf.Tensor
    mask: tf.Tensor
    vectors: tf.Tensor


def texts(config: WordReaderConfig, vectors: embeddings.Embeddings) -> tuple[Text, Text]:
    """The inputs `question` and `context`.

    Raises:
        ConfigError: a setting is out of range.
    """
    _check(config)
    shape = (None, word_features.COLUMNS + config.characters)
    rows = [tf_keras.Input(shape, dtype=tf.int32, name=name) for name in ("question", "context")]
    embed = Embed(config, vectors, name="embed")
    question, context = (Text(each, word_features.ids(each) != 0, embed(each)) for each in rows)
    return question, context


def model(question: Text, context: Text, logits: tf.Tensor, name: str) -> tf_keras.Model:
    """Builds a network from both texts to logits [batch, 1 + tokens, 2]."""
    return tf_keras.Model({"question": question.rows, "context": context.rows}, logits, name=name)


def joined(x: tf.Tensor, *features: tf.Tensor) -> tf.Tensor:
    """Joins `x` and further features of each token, [batch, tokens, any], in the type of `x`."""
    return tf.concat([x, *(tf.cast(each, x.dtype) for each in features)], -1)


class Embed(tf_keras.layers.Layer):
    """Maps `word_features` [batch, tokens, columns] to vectors [batch, tokens, features]."""

    def __init__(
        self, config: WordReaderConfig, vectors: embeddings.Embeddings, *, name: str
    ) -> None:
        super().__init__(name=name)
        self._vectors = embeddings.layer(vectors, trainable=config.words.trainable)
        self._characters = (
            Characters(config.character_units, name="characters") if config.characters else None
        )

    def call(self, rows: tf.Tensor) -> tf.Tensor:
        """Sets no Keras mask, because it would make an LSTM several times slower."""
        vectors = tf.identity(self._vectors(word_features.ids(rows)))
        if self._characters is None:
            return vectors
        return tf.concat([vectors, self._characters(word_features.characters(rows))], -1)


class Characters(tf_keras.layers.Layer):
    """Vectors of words, from their characters.

    Kim, "Convolutional neural networks for sentence classification", 2014, as applied to characters
    by Seo et al., 2017. It takes the maximum of each feature of a convolution over the word.
    """

    def __init__(self, units: int, *, name: str) -> None:
        super().__init__(name=name)
        self._embed = tf_keras.layers.Embedding(
            word_features.CHARACTERS, _CHARACTER_VECTOR, name="embed"
        )
        self._convolve = tf_keras.layers.Conv1D(
            units, _CHARACTER_WINDOW, padding="same", activation="relu", name="convolve"
        )

    def call(self, characters: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, characters] int32 to [batch, tokens, units], with 0 for padding."""
        inside = (characters != 0)[..., tf.newaxis]
        x = self._embed(characters)
        inside = tf.cast(inside, x.dtype)
        return tf.reduce_max(self._convolve(x * inside) * inside, axis=2)


class Highway(tf_keras.layers.Layer):
    """Layers whose gates control how much they change [..., features].

    Srivastava et al., "Highway networks", 2015.
    """

    def __init__(self, layers: int, *, name: str) -> None:
        super().__init__(name=name)
        self._number = layers

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its size from `shape`, [..., features]."""
        dense, closed = tf_keras.layers.Dense, tf_keras.initializers.Constant(-1)
        self._changes = [dense(shape[-1], "relu") for _ in range(self._number)]
        self._gates = [
            dense(shape[-1], "sigmoid", bias_initializer=closed) for _ in range(self._number)
        ]
        super().build(shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the changed input, of the same shape."""
        for change, open_by in zip(self._changes, self._gates, strict=True):
            gate = open_by(x)
            x = gate * change(x) + (1 - gate) * x
        return x


def _check(config: WordReaderConfig) -> None:
    name = type(config).__name__
    if config.units < 1 or not 0 <= config.dropout < 1:
        raise ConfigError(
            f"{name}.units={config.units}, dropout={config.dropout}: units must be"
            " 1 or more, and dropout at least 0 and below 1"
        )
    for field in dataclasses.fields(config):
        value, least = getattr(config, field.name), int(field.name != "characters")
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{name}.{field.name}={value}: must be {least} or more")
