"""TD-LSTM and TC-LSTM: two LSTMs that read towards the aspect, from either side.

Tang et al., "Effective LSTMs for target-dependent sentiment classification", 2016.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


@dataclasses.dataclass
class TDLSTMConfig(word_layers.UnitsConfig):
    """TD-LSTM.

    Attributes:
        connect_target: use TC-LSTM, which concatenates the mean of the aspect's vectors to every
            word.
    """

    connect_target: bool = False


def build(config: TDLSTMConfig, vectors: embeddings.Embeddings, classes: int) -> tf_keras.Model:
    """Builds the model. Arguments, result and errors are those of `atae_lstm.build`."""
    sentences = word_layers.read(config, vectors)
    x = sentences.words
    if config.connect_target:
        target = word_layers.mean(x, sentences.inside)
        x = tf.concat([x, sentences.repeated(target)], axis=-1)
    left = word_layers.lstm(config, "left")(x, mask=sentences.mask & (sentences.offsets <= 0))
    right = word_layers.lstm(config, "right", go_backwards=True)(
        x, mask=sentences.mask & (sentences.offsets >= 0)
    )
    both = tf.concat([left, right], axis=-1)
    return word_layers.classifier(config, sentences, both, classes, name="td_lstm")
