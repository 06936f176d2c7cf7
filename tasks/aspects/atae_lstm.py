"""ATAE-LSTM: an LSTM with attention, both of which see the aspect.

Wang et al., "Attention-based LSTM for aspect-level sentiment classification", 2016. The aspect's
vector is the mean of its words' vectors, whereas the paper learns one for each of five categories.
"""

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


def build(
    config: word_layers.UnitsConfig, vectors: embeddings.Embeddings, classes: int
) -> tf_keras.Model:
    """Maps the features of a `SentenceReader` to float32 logits [batch, classes].

    Args:
        config: the sizes.
        vectors: words and their vectors.
        classes: number of outputs.

    Raises:
        ConfigError: a value is out of range.
    """
    sentences, dense = word_layers.read(config, vectors), tf_keras.layers.Dense
    target = word_layers.mean(sentences.words, sentences.inside)
    x = tf.concat([sentences.words, sentences.repeated(target)], axis=-1)
    lstm = word_layers.lstm(config, "lstm", return_sequences=True, return_state=True)
    states, last, _ = lstm(x, mask=sentences.mask)
    keys = tf.concat(
        [
            dense(config.units, use_bias=False, name="state_keys")(states),
            sentences.repeated(dense(config.units, use_bias=False, name="aspect_key")(target)),
        ],
        axis=-1,
    )
    scores = dense(1, use_bias=False, name="scores")(tf.tanh(keys))
    read = word_layers.attend(scores, states, sentences.mask)
    both = tf.tanh(
        dense(config.units, use_bias=False, name="read")(read)
        + dense(config.units, use_bias=False, name="last")(last)
    )
    return word_layers.classifier(config, sentences, both, classes, name="atae_lstm")
