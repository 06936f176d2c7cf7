"""DrQA's document reader: Chen et al., "Reading Wikipedia to answer open-domain questions", 2017.

Section 3.2: stacked LSTMs read the context's words, each with its exact matches and the aligned
question, and the question's words. Start and end are bilinear in a context's word and a summary of
the question. In this version, the shapes of words replace tags and term frequency, either all
or no word vectors are tuned, and spans are scored by logits, as in all readers.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_features, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class DrQAConfig(word_reader.WordReaderConfig):
    """The settings of DrQA's document reader. The paper uses `units = 128`.

    Attributes:
        layers: the number of stacked LSTMs that read each text.
    """

    layers: int = 3


def build(
    config: DrQAConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)

    def read(x: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        stack = recurrent.Stack(config.layers, config.units, config.dropout, name=name)
        return recurrent.dropout(config.dropout)(tf.concat(stack(x, mask), -1))

    aligned = attention.Attend(config.units, name="align")(
        context.vectors, question.vectors, question.mask
    )
    matches = word_features.matches(context.rows, question.rows)
    shapes = word_features.shapes(context.rows)
    told = word_reader.joined(context.vectors, aligned, matches, shapes)
    told = read(told, context.mask, "read_context")
    asked = read(question.vectors, question.mask, "read_question")
    summary = pointers.Summarize(name="summary")(asked, question.mask)
    pointer = pointers.Pointer(unanswerable, name="pointer", chained=False)
    logits = pointer(told, context.mask, summary)
    return word_reader.model(question, context, logits, "drqa")
