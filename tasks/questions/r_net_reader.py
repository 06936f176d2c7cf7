"""R-Net: Wang et al., "Gated self-matching networks for reading comprehension", 2017.

GRUs read both texts. Each of the context's words is matched with the question, then with the whole
context, and a gate selects the input of the following GRU. A pointer is the last layer (section 3).
This version differs in three ways:

- Attention compares projections instead of adding them.
- Attention does not depend on the state of the GRU that reads it, so that all words are matched at
  once.
- A convolution reads the characters instead of a GRU.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class RNetConfig(word_reader.WordReaderConfig):
    """The settings of R-Net. The paper uses `units = 75`, `dropout = 0.2`.

    Attributes:
        layers: the number of stacked GRUs that read each text before it is matched.
    """

    dropout: float = 0.2
    characters: int = 16
    layers: int = 3


def build(
    config: RNetConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)
    read = recurrent.Stack(
        config.layers, config.units, config.dropout, name="read", kind=recurrent.GRU
    )
    asked, told = (read(text.vectors, text.mask)[-1] for text in (question, context))

    def match(told: tf.Tensor, other: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        found = attention.Attend(config.units, name=f"match_{name}")(told, other, mask)
        gated = Gate(name=f"gate_{name}")(tf.concat([told, found], -1))
        layer = recurrent.BiRNN(config.units, name=f"read_{name}", kind=recurrent.GRU)
        return layer(recurrent.dropout(config.dropout)(gated), context.mask)

    matched = match(told, asked, question.mask, "question")
    matched = match(matched, matched, context.mask, "self")
    matched = recurrent.dropout(config.dropout)(matched)
    summary = pointers.Summarize(name="summary")(asked, question.mask)
    logits = pointers.Pointer(unanswerable, name="pointer")(matched, context.mask, summary)
    return word_reader.model(question, context, logits, "r_net")


class Gate(tf_keras.layers.Layer):
    """Multiplies each feature by a gate that depends on all features."""

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its size from `shape`, [..., features]."""
        self._open = tf_keras.layers.Dense(shape[-1], "sigmoid", use_bias=False, name="open")
        super().build(shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the gated input, of the same shape."""
        return self._open(x) * x
