"""Question answering's batches: questions and windows, padded to the longest in each batch."""

import numpy as np
import tensorflow as tf

from runner import inputs
from tasks.questions import question_data

Columns = dict[str, tf.Tensor]


def dataset(
    questions: question_data.Questions,
    config: question_data.QuestionData,
    input_context: tf.distribute.InputContext | None = None,
    *,
    table: np.ndarray | None = None,
    pad: int = 0,
    number: int = 0,
) -> tf.data.Dataset:
    """Batches padded to their longest text, grouped by length in training and otherwise in order.

    Args:
        questions: the data.
        config: batch size, seed and so on.
        input_context: from `distribute_datasets_from_function`. None: one replica.
        table: [ids, columns] int32, a reader's features for each id. None: the id itself.
        pad: the id of padding.
        number: identifies the data in each example.

    Returns:
        Pairs of features and labels. Features are `question` and `context`, both
        [batch, tokens(, columns)] int32. Labels are `start` and `end` as in `Windows`, `window`,
        the index of the window, and `data`, the given `number`, all [batch].
    """
    windows, tokens = questions.windows, questions.tokens
    lengths = np.minimum(np.diff(tokens.questions.first), config.max_question)
    first = tokens.questions.first[windows.question]
    asked = _Texts(tokens.questions.ids, first, lengths[windows.question], pad)
    told = _Texts(tokens.contexts.ids, windows.first, windows.length, pad)
    with tf.device("cpu:0"):  # the input pipeline runs there
        rows = None if table is None else tf.constant(table)

    @tf.autograph.experimental.do_not_convert
    def load(index: tf.Tensor) -> tuple[Columns, Columns]:
        features = {"question": asked.padded(index), "context": told.padded(index)}
        if rows is not None:
            features = {name: tf.gather(rows, ids) for name, ids in features.items()}
        labels = {
            "start": tf.gather(windows.start, index),
            "end": tf.gather(windows.end, index),
            "window": index,
            "data": tf.fill(tf.shape(index), number),
        }
        return features, labels

    if config.is_training:
        return inputs.bucketed(windows.length, load, config=config, input_context=input_context)
    return inputs.in_order(len(windows), load, config=config, input_context=input_context)


class _Texts:
    """Texts, as slices of one long array of tokens.

    Args:
        ids: [tokens] int32.
        first: [texts] the index of each text's first token.
        length: [texts] the number of tokens in each.
        pad: the id of padding.
    """

    def __init__(self, ids: np.ndarray, first: np.ndarray, length: np.ndarray, pad: int) -> None:
        self._first, self._length = first.astype(np.int32), length.astype(np.int32)
        with tf.device("cpu:0"):  # the input pipeline runs there
            self._ids = tf.constant(np.append(ids, pad))

    def padded(self, index: tf.Tensor) -> tf.Tensor:
        """Returns the ids of texts, [batch, tokens], with at least one token, maybe padding."""
        first, length = tf.gather(self._first, index), tf.gather(self._length, index)
        column = tf.range(tf.maximum(tf.reduce_max(length), 1))
        place = first[:, tf.newaxis] + column
        inside = column < length[:, tf.newaxis]
        return tf.gather(self._ids, tf.where(inside, place, len(self._ids) - 1))
