"""RAM: attention in several hops over the states of an LSTM, combined by a GRU.

Chen et al., "Recurrent attention network on memory for aspect sentiment analysis", 2017. Like
PyABSA, it has one bidirectional layer instead of the paper's two.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


@dataclasses.dataclass
class RAMConfig(word_layers.UnitsConfig):
    """RAM.

    Attributes:
        units: the size of the LSTM in each direction, and of the GRU.
        hops: how often the memory is read.
    """

    hops: int = 3


def build(config: RAMConfig, vectors: embeddings.Embeddings, classes: int) -> tf_keras.Model:
    """Builds the model. Arguments, result and errors are those of `atae_lstm.build`."""
    sentences, layers = word_layers.read(config, vectors), tf_keras.layers
    target = word_layers.mean(sentences.words, sentences.inside)
    both_ways = layers.Bidirectional(
        word_layers.lstm(config, "way", return_sequences=True), name="lstm"
    )
    states = both_ways(sentences.words, mask=sentences.mask)
    near = sentences.nearness()
    side = tf.cast(tf.sign(sentences.offsets), near.dtype)[..., tf.newaxis]
    memory = tf.concat([states * near, side * (1 - near)], axis=-1)
    episode = tf.zeros_like(states[:, 0, : config.units])
    cell = layers.GRUCell(config.units, name="gru")
    for hop in range(config.hops):
        about = sentences.repeated(tf.concat([episode, target], axis=-1))
        scores = layers.Dense(1, name=f"scores_{hop}")(tf.concat([memory, about], axis=-1))
        episode, _ = cell(word_layers.attend(scores, memory, sentences.mask), [episode])
    return word_layers.classifier(config, sentences, episode, classes, name="ram")
