"""FusionNet, which keeps the history of each word: all its vectors from earlier layers.

Huang et al., "FusionNet: fusing via fully-aware attention with application to machine
comprehension", 2018. Attention compares the histories of words and reads one level of them: the
low, high and understanding levels of the question, then the context itself (section 3.2). In this
version, histories begin with word vectors alone, without CoVe, and the shapes of words replace tags
and term frequency.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_features, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class FusionNetConfig(word_reader.WordReaderConfig):
    """The settings of FusionNet, shared by all word-based readers. The paper uses `units = 125`."""


def build(
    config: FusionNetConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)

    def read(text: word_reader.Text, name: str, *levels: tf.Tensor) -> tf.Tensor:
        layer = recurrent.Stack(1, config.units, config.dropout, name=name)
        return layer(tf.concat(levels, -1), text.mask)[-1]

    def attend(name: str) -> attention.Attend:
        return attention.Attend(config.units, name=name, weighted=True)

    align = attention.Attend(config.units, name="align")
    aligned = align(context.vectors, question.vectors, question.mask)
    matches = word_features.matches(context.rows, question.rows)
    shapes = word_features.shapes(context.rows)
    told = word_reader.joined(context.vectors, aligned, matches, shapes)

    asked_low = read(question, "question_low", question.vectors)
    asked_high = read(question, "question_high", asked_low)
    understood = read(question, "understand", asked_low, asked_high)
    low = read(context, "context_low", told)
    high = read(context, "context_high", low)

    asked_history = tf.concat([question.vectors, asked_low, asked_high], -1)
    history = tf.concat([context.vectors, low, high], -1)
    levels = {"low": asked_low, "high": asked_high, "understanding": understood}
    heard = [
        attend(f"fuse_{name}")(history, asked_history, question.mask, values=level)
        for name, level in levels.items()
    ]
    fused = read(context, "fuse", low, high, *heard)
    history = tf.concat([history, *heard, fused], -1)
    boosted = attend("boost_self")(history, history, context.mask, values=fused)
    final = read(context, "boost", fused, boosted)

    summary = pointers.Summarize(name="summary")(understood, question.mask)
    final = recurrent.dropout(config.dropout)(final)
    logits = pointers.Pointer(unanswerable, name="pointer")(final, context.mask, summary)
    return word_reader.model(question, context, logits, "fusion_net")
