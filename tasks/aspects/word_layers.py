"""Shared parts of the aspect models with word vectors: input, masked means and attention."""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from runner.errors import ConfigError
from tasks.aspects import aspect_features
from tasks.text import embeddings

layers = tf_keras.layers


@dataclasses.dataclass
class WordsConfig(base_config.Config):
    """A model with word vectors.

    Attributes:
        vectors: word vectors, such as GloVe's.
        own_vectors: the size of a second vector for each word of the data, which is learned from
            zeros and also covers words missing from the file. 0: none.
        dropout: the dropout rate for the inputs, and for the features before the last layer, in
            [0, 1).
        l2: the penalty on the squared weights of the kernels of LSTMs and of the last layer.
    """

    vectors: embeddings.EmbeddingConfig = dataclasses.field(
        default_factory=embeddings.EmbeddingConfig
    )
    own_vectors: int = 0
    dropout: float = 0.5
    l2: float = 0.0


@dataclasses.dataclass
class UnitsConfig(WordsConfig):
    """A model with word vectors and further layers.

    Attributes:
        units: the size of its layers.
    """

    units: int = 64


class Sentences(NamedTuple):
    """A batch in the form that a model reads.

    Attributes:
        inputs: the features of a `SentenceReader`.
        words: [batch, length, size] the words' vectors.
        mask: [batch, length] bool, whether there is a word.
        offsets: [batch, length] int32, a word's distance from the aspect, negative before it and 0
            in it.
    """

    inputs: aspect_features.Features
    words: tf.Tensor
    mask: tf.Tensor
    offsets: tf.Tensor

    @property
    def inside(self) -> tf.Tensor:
        """[batch, length] bool, whether a word belongs to the aspect."""
        return self.mask & (self.offsets == 0)

    def nearness(self) -> tf.Tensor:
        """[batch, length, 1]: 1 in the aspect, 1/n less for each word away, for n words."""
        length = tf.reduce_sum(tf.cast(self.mask, tf.float32), axis=1, keepdims=True)
        far = tf.cast(tf.abs(self.offsets), tf.float32) / tf.maximum(length, 1.0)
        return tf.cast(tf.maximum(0.0, 1.0 - far), self.words.dtype)[..., tf.newaxis]

    def repeated(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, size] -> [batch, length, size]."""
        return tf.repeat(x[:, tf.newaxis], tf.shape(self.mask)[1], axis=1)


def read(config: WordsConfig, vectors: embeddings.Embeddings) -> Sentences:
    """The input of a model, with dropout on its vectors.

    Raises:
        ConfigError: a size, rate or penalty is out of range.
    """
    check(config)
    ids = tf_keras.Input([None], dtype=tf.int32, name="words")
    aspect = tf_keras.Input([2], dtype=tf.int32, name="aspect")
    x = embed(config, vectors, ids)
    place = tf.range(tf.shape(ids)[1])[tf.newaxis]
    offsets = tf.minimum(place - aspect[:, :1], 0) + tf.maximum(place - aspect[:, 1:] + 1, 0)
    inputs = {aspect_features.WORDS: ids, aspect_features.ASPECT: aspect}
    return Sentences(inputs, layers.Dropout(config.dropout)(x), ids > 0, offsets)


def embed(config: WordsConfig, vectors: embeddings.Embeddings, ids: tf.Tensor) -> tf.Tensor:
    """The vectors of words, [batch, length, size], including those of `own_vectors`."""
    x = embeddings.layer(vectors, trainable=config.vectors.trainable, name="vectors")(ids)
    if config.own_vectors:
        own = layers.Embedding(
            len(vectors.vocabulary), config.own_vectors, "zeros", name="own_vectors"
        )
        x = layers.Concatenate()([x, own(ids)])
    return x


def mean(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[batch, length, size] -> [batch, size], over the words of the mask. Zeros if it is empty."""
    weights = tf.cast(mask, x.dtype)[..., tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(x * weights, axis=1), tf.reduce_sum(weights, axis=1))


def attend(scores: tf.Tensor, values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The values' mean, weighted by the softmax of their scores.

    Args:
        scores: [batch, length, 1].
        values: [batch, length, size].
        mask: [batch, length] bool, the values to include.

    Returns:
        [batch, size]. Zeros if the mask is empty.
    """
    attention = layers.Softmax(axis=1)(scores, mask=mask[..., tf.newaxis])
    return tf.reduce_sum(attention * values * tf.cast(mask, values.dtype)[..., tf.newaxis], axis=1)


def lstm(config: UnitsConfig, name: str, **options: bool) -> tf_keras.layers.LSTM:
    """An LSTM of the configured size."""
    penalty = tf_keras.regularizers.L2(config.l2)
    return layers.LSTM(config.units, kernel_regularizer=penalty, name=name, **options)


def classifier(
    config: WordsConfig, sentences: Sentences, x: tf.Tensor, classes: int, *, name: str
) -> tf_keras.Model:
    """The model from the sentences' features to float32 logits [batch, classes], based on x."""
    logits = layers.Dense(
        classes,
        kernel_regularizer=tf_keras.regularizers.L2(config.l2),
        dtype="float32",
        name="logits",
    )
    return tf_keras.Model(sentences.inputs, logits(layers.Dropout(config.dropout)(x)), name=name)


def check(config: WordsConfig, sizes: Iterable[str] = ("units", "hops", "heads")) -> None:
    """Raises ConfigError for a size, rate or penalty that is out of range."""
    kind = type(config).__name__
    for name in sizes:
        if getattr(config, name, 1) < 1:
            raise ConfigError(f"{kind}.{name}={getattr(config, name)}: must be above 0")
    if config.own_vectors < 0:
        raise ConfigError(f"{kind}.own_vectors={config.own_vectors}: must be 0 or more (units)")
    if not 0 <= config.dropout < 1:
        raise ConfigError(f"{kind}.dropout={config.dropout}: must be at least 0 and below 1")
    if config.l2 < 0:
        raise ConfigError(f"{kind}.l2={config.l2}: must be 0 or more")
