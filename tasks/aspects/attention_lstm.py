"""An ATAE-LSTM that is bidirectional and also sees each word's distance from the aspect.

Wang et al., "Attention-based LSTM for aspect-level sentiment classification", 2016. The aspect's
vector, here the mean of its words' vectors, is concatenated to every word's vector and used in the
attention. Each word's embedded distance from the aspect is also concatenated.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import aspect_features, word_layers
from tasks.text import embeddings


@dataclasses.dataclass
class AttentionLSTMConfig(word_layers.UnitsConfig):
    """A bidirectional LSTM with attention over its states, conditioned on the aspect.

    Attributes:
        units: the size of the LSTM in each direction.
        positions: the size of the embedding of a word's distance from the aspect.
        farthest: larger distances are clipped to this.
    """

    positions: int = 16
    farthest: int = 15


def build(
    config: AttentionLSTMConfig, vectors: embeddings.Embeddings, classes: int
) -> tf_keras.Model:
    """Maps the features of a `SentenceReader` to float32 logits [batch, classes].

    Args:
        config: the sizes.
        vectors: words and their vectors.
        classes: number of outputs.

    Raises:
        ConfigError: a size, rate or penalty is out of range.
    """
    word_layers.check(config, ("units", "positions", "farthest"))
    layers, penalty = tf_keras.layers, tf_keras.regularizers.L2(config.l2)
    ids = tf_keras.Input([None], dtype=tf.int32, name="words")
    aspect = tf_keras.Input([2], dtype=tf.int32, name="aspect")
    mask = ids > 0
    distances = aspect_features.distances(aspect, tf.shape(ids)[1])

    x = word_layers.embed(config, vectors, ids)
    inside = tf.cast(distances == 0, x.dtype)[..., tf.newaxis]
    target = tf.math.divide_no_nan(
        tf.reduce_sum(x * inside, axis=1, keepdims=True),
        tf.reduce_sum(inside, axis=1, keepdims=True),
    )
    targets = tf.repeat(target, tf.shape(ids)[1], axis=1)
    far = layers.Embedding(config.farthest + 1, config.positions, name="positions")(
        tf.minimum(distances, config.farthest)
    )
    x = layers.Dropout(config.dropout)(layers.Concatenate()([x, far, targets]))
    lstm = layers.LSTM(config.units, return_sequences=True, kernel_regularizer=penalty)
    states = layers.Bidirectional(lstm, name="lstm")(x, mask=mask)

    keys = layers.Dense(config.units, activation="tanh", name="keys")(
        layers.Concatenate()([states, targets])
    )
    scores = layers.Dense(1, use_bias=False, name="scores")(keys)
    attention = layers.Softmax(axis=1)(scores, mask=mask[..., tf.newaxis])
    read = layers.Dropout(config.dropout)(tf.reduce_sum(attention * states, axis=1))
    logits = layers.Dense(classes, kernel_regularizer=penalty, dtype="float32", name="logits")
    inputs = {aspect_features.WORDS: ids, aspect_features.ASPECT: aspect}
    return tf_keras.Model(inputs, logits(read), name="attention_lstm")
