"""BiDAF: Seo et al., "Bidirectional attention flow for machine comprehension", 2017.

Words and characters pass through highways and an LSTM. Attention flows from each of the context's
words to the question, and from the question to the context. Two more LSTMs read the result, and a
third one reads it for the ends (section 2). In this version, the products in similarities are
scaled as in a transformer, dropout drops the same features of all words, and there may be no
answer.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class BiDAFConfig(word_reader.WordReaderConfig):
    """The settings of BiDAF. The paper uses `units = 100`, `character_units = 100`."""

    dropout: float = 0.2
    characters: int = 16


def build(
    config: BiDAFConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)

    def layer(name: str) -> recurrent.Stack:
        return recurrent.Stack(1, config.units, config.dropout, name=name)

    def read(x: tf.Tensor, name: str) -> tf.Tensor:
        return layer(name)(x, context.mask)[-1]

    highway = word_reader.Highway(2, name="highway")
    encode = layer("encode")
    asked, told = (encode(highway(text.vectors), text.mask)[-1] for text in (question, context))
    flow = attention.Flow(noticed, name="flow")(told, asked, context.mask, question.mask)
    modelled = read(read(flow, "model_0"), "model_1")
    ended = read(modelled, "ends")
    drop = recurrent.dropout(config.dropout)
    for_start, for_end = (drop(tf.concat([flow, x], -1)) for x in (modelled, ended))
    logits = pointers.LinearPointer(unanswerable, name="pointer")(for_start, for_end, context.mask)
    return word_reader.model(question, context, logits, "bidaf")


def noticed(
    scores: tf.Tensor, told: tf.Tensor, told_mask: tf.Tensor, asked_mask: tf.Tensor
) -> tf.Tensor:
    """Returns a mean of the context's words, weighted by each one's closest question word."""
    closest = tf.reduce_max(attention.masked(scores, asked_mask[:, tf.newaxis]), -1)
    return attention.mean(told, attention.softmax(closest, told_mask))[:, tf.newaxis]
