"""AEN: attention only, of the sentence to itself and of the aspect to the sentence.

Song et al., "Attentional encoder network for targeted sentiment classification", 2019: AEN-GloVe,
but with Keras's scaled dot products instead of the paper's tanh scores, and without its label
smoothing.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


@dataclasses.dataclass
class AENConfig(word_layers.UnitsConfig):
    """AEN.

    Attributes:
        heads: the number of attention heads.
    """

    heads: int = 8


def build(config: AENConfig, vectors: embeddings.Embeddings, classes: int) -> tf_keras.Model:
    """Builds the model. Arguments, result and errors are those of `atae_lstm.build`."""
    sentences = word_layers.read(config, vectors)
    mask, inside = sentences.mask, sentences.inside
    context, target = (_encoded(config, name, sentences) for name in ("context", "aspect"))
    specific = _attention(config, "specific")(target, context, attention_mask=mask[:, tf.newaxis])
    x = tf.concat(
        [
            word_layers.mean(context, mask),
            word_layers.mean(specific, inside),
            word_layers.mean(target, inside),
        ],
        axis=-1,
    )
    return word_layers.classifier(config, sentences, x, classes, name="aen")


def _encoded(config: AENConfig, name: str, sentences: word_layers.Sentences) -> tf.Tensor:
    """Applies self-attention and a transformation of each word: [batch, length, units]."""
    words, mask = sentences.words, sentences.mask[:, tf.newaxis]
    x = _attention(config, name)(words, words, attention_mask=mask)
    for number, activation in enumerate(("relu", None)):
        x = tf_keras.layers.Dense(config.units, activation, name=f"{name}_{number}")(x)
    return tf_keras.layers.Dropout(config.dropout)(x)


def _attention(config: AENConfig, name: str) -> tf_keras.layers.MultiHeadAttention:
    return tf_keras.layers.MultiHeadAttention(
        config.heads,
        max(1, config.units // config.heads),
        output_shape=config.units,
        name=f"{name}_attention",
    )
