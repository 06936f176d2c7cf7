"""MemNet: attention in several hops over word vectors that are weighted by their nearness.

Tang et al., "Aspect level sentiment classification with deep memory network", 2016. It implements
the paper's second location model, with distances from the nearest word of the aspect. (PyABSA
ignores locations.)
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


@dataclasses.dataclass
class MemNetConfig(word_layers.WordsConfig):
    """MemNet.

    Attributes:
        hops: how often the memory is read. All hops share their weights.
    """

    hops: int = 3


def build(config: MemNetConfig, vectors: embeddings.Embeddings, classes: int) -> tf_keras.Model:
    """Builds the model. Arguments, result and errors are those of `atae_lstm.build`."""
    sentences = word_layers.read(config, vectors)
    x = word_layers.mean(sentences.words, sentences.inside)
    memory, context = sentences.words * sentences.nearness(), sentences.mask & ~sentences.inside
    score = tf_keras.layers.Dense(1, activation="tanh", name="scores")
    onward = tf_keras.layers.Dense(x.shape[-1], name="onward")
    for _ in range(config.hops):
        scores = score(tf.concat([memory, sentences.repeated(x)], axis=-1))
        x = word_layers.attend(scores, memory, context) + onward(x)
    return word_layers.classifier(config, sentences, x, classes, name="mem_net")
