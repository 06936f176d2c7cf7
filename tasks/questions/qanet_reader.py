"""QANet, which reads with convolutions and self-attention instead of recurrent layers.

Yu et al., "QANet: combining local convolution with global self-attention for reading
comprehension", 2018. A block of convolutions, self-attention and a feed-forward layer encodes each
text. Attention goes from the context to the question and back. More blocks read the context three
times with the same weights (section 2.2). In this version, the products in similarities are scaled
as in a transformer, there is one dropout rate and no layer dropout, and the data are not
augmented.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras
from official.nlp.modeling.layers import position_embedding

from runner.errors import ConfigError
from tasks.questions import attention, pointers, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class QANetConfig(word_reader.WordReaderConfig):
    """The settings of QANet. The paper uses `units = 128`, `character_units = 200`.

    Attributes:
        heads: the number of heads in each self-attention, which divide `units` among them.
        blocks: the number of blocks that read the context.
        dropout: the dropout rate before the first and after each layer of a block, in [0, 1).
    """

    dropout: float = 0.1
    characters: int = 16
    heads: int = 8
    blocks: int = 7


def build(
    config: QANetConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)
    if config.units % (2 * config.heads) or config.units < 4:
        raise ConfigError(
            f"QANetConfig.units={config.units}, heads={config.heads}: units must be a multiple of"
            " 2 * heads, and 4 or more"
        )
    drop = tf_keras.layers.Dropout(config.dropout)
    highway = word_reader.Highway(2, name="highway")
    narrow = tf_keras.layers.Dense(config.units, name="narrow")
    encode = Block(config, convolutions=4, width=7, name="encode")
    asked, told = (
        encode(narrow(highway(drop(text.vectors))), text.mask) for text in (question, context)
    )
    flow = attention.Flow(noticed, name="flow")(told, asked, context.mask, question.mask)
    x = tf_keras.layers.Dense(config.units, name="narrow_flow")(drop(flow))
    blocks = [
        Block(config, convolutions=2, width=5, name=f"read_{number}")
        for number in range(config.blocks)
    ]
    passes = []
    for _ in range(3):
        for block in blocks:
            x = block(x, context.mask)
        passes.append(x)
    for_start, for_end = (tf.concat([passes[0], each], -1) for each in passes[1:])
    logits = pointers.LinearPointer(unanswerable, name="pointer")(for_start, for_end, context.mask)
    return word_reader.model(question, context, logits, "qanet")


class Block(tf_keras.layers.Layer):
    """Separable convolutions, self-attention and a feed-forward layer, each added to its input.

    Args:
        config: the settings.
        convolutions: the number of convolutions.
        width: the number of tokens that each convolution covers.
        name: the layer's name.
    """

    def __init__(self, config: QANetConfig, *, convolutions: int, width: int, name: str) -> None:
        super().__init__(name=name)
        layers, units = tf_keras.layers, config.units
        self._place = position_embedding.RelativePositionEmbedding(units, name="place")
        self._convolve = [
            layers.SeparableConv1D(units, width, padding="same", activation="relu")
            for _ in range(convolutions)
        ]
        self._attend = attention.SelfAttention(config.heads, units, name="attend")
        self._feed = [layers.Dense(units, "relu"), layers.Dense(units)]
        self._normalize = [layers.LayerNormalization() for _ in range(convolutions + 2)]
        self._drop = layers.Dropout(config.dropout)

    def call(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, units] to the same shape, 0 outside the mask [batch, tokens]."""
        inside = tf.cast(mask, x.dtype)[..., tf.newaxis]
        steps: list[Callable[[tf.Tensor], tf.Tensor]] = [
            *self._convolve,
            lambda x: self._attend(x, mask),
            lambda x: self._feed[1](self._feed[0](x)),
        ]
        x = (x + tf.cast(self._place(x), x.dtype)) * inside
        for normalize, step in zip(self._normalize, steps, strict=True):
            x = (x + self._drop(step(normalize(x) * inside))) * inside
        return x


def noticed(
    scores: tf.Tensor, told: tf.Tensor, told_mask: tf.Tensor, asked_mask: tf.Tensor
) -> tf.Tensor:
    """Passes the question words' attention to the context back to each of the context's words.

    Xiong et al., "Dynamic coattention networks for question answering", 2017, section 2.2.
    """
    to_asked = attention.softmax(scores, asked_mask[:, tf.newaxis])
    to_told = attention.softmax(scores, told_mask[..., tf.newaxis], axis=1)
    return tf.matmul(to_asked, tf.matmul(to_told, told, transpose_a=True))
