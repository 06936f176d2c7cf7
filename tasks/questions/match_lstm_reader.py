"""A reader with word vectors, related to Match-LSTM and R-Net, that is fast on a CPU.

It combines

- word vectors, exact matches and the question aligned to each word, as in Chen et al., "Reading
  Wikipedia to answer open-domain questions", 2017
- an LSTM over the context's words, each with its attention over the question, as in Wang and Jiang,
  "Machine comprehension using Match-LSTM and answer pointer", 2016
- the pointer of Wang et al., "Gated self-matching networks for reading comprehension" (R-Net),
  2017, section 3.4
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_features, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class MatchLSTMConfig(word_reader.WordReaderConfig):
    """The settings of Match-LSTM, shared by all word-based readers."""


def build(
    config: MatchLSTMConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network, described in `readers.Reader.network`.

    Args:
        config: the settings.
        vectors: the word vectors.
        unanswerable: whether it may predict that there is no answer.

    Raises:
        ConfigError: a size or a rate is out of range.
    """
    question, context = word_reader.texts(config, vectors)

    def encode(x: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        return recurrent.BiRNN(config.units, name=name)(recurrent.dropout(config.dropout)(x), mask)

    aligned = attention.Attend(config.units, name="align")(
        context.vectors, question.vectors, question.mask
    )
    matches = word_features.matches(context.rows, question.rows)
    told = word_reader.joined(context.vectors, aligned, matches, word_features.shapes(context.rows))
    asked = word_reader.joined(question.vectors, word_features.shapes(question.rows))
    told = encode(told, context.mask, "read_context")
    asked = encode(asked, question.mask, "read_question")
    heard = attention.Attend(config.units, name="match")(told, asked, question.mask)
    matched = encode(tf.concat([told, heard, told * heard], -1), context.mask, "read_matches")
    matched = recurrent.dropout(config.dropout)(matched)
    summary = pointers.Summarize(name="summary")(asked, question.mask)
    logits = pointers.Pointer(unanswerable, name="pointer")(matched, context.mask, summary)
    return word_reader.model(question, context, logits, "match_lstm")
