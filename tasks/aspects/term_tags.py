"""Tags of pieces that mark aspect terms: B at the first piece of a term, I at its others, else O.

Tags and predictions follow the CoNLL convention: an I without a term before it begins one.
"""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from tasks.aspects.three_lines import Example

OUTSIDE, BEGIN, INSIDE = 0, 1, 2
COUNT = 3
IGNORED = -1  # no piece of the sentence

Spans = tuple[tf.Tensor, tf.Tensor]


def of_examples(
    examples: Sequence[Example],
    left: tf.RaggedTensor,
    aspect: tf.RaggedTensor,
    right: tf.RaggedTensor,
) -> list[tf.RaggedTensor]:
    """The tags of each example's sentence, which mark the aspects of all examples of that sentence.

    Args:
        examples: the examples. Those of the same sentence need not be neighbours.
        left: [examples, (ids)] the pieces before the aspect.
        aspect: [examples, (ids)] the pieces of the aspect.
        right: [examples, (ids)] the pieces after the aspect.

    Returns:
        The tags before, in and after the aspect, [examples, (pieces)] int32 each.
    """
    first = left.row_lengths().numpy()
    after = first + aspect.row_lengths().numpy()
    length = after + right.row_lengths().numpy()
    spans = collections.defaultdict(list)
    for number, example in enumerate(examples):
        spans[example.sentence].append((first[number], after[number]))
    parts: tuple[list[np.ndarray], ...] = [], [], []
    for number, example in enumerate(examples):
        tags = np.full(length[number], OUTSIDE, np.int32)
        for begin, end in spans[example.sentence]:
            tags[begin:end] = INSIDE
        for begin, _ in spans[example.sentence]:  # afterwards, because terms may overlap
            tags[begin : begin + 1] = BEGIN
        for part, row in zip(parts, np.split(tags, [first[number], after[number]]), strict=True):
            part.append(row)
    return [
        tf.RaggedTensor.from_row_lengths(np.concatenate(part), [*map(len, part)]) for part in parts
    ]


def firsts(examples: Sequence[Example]) -> np.ndarray:
    """Whether each example is the first of its sentence, [examples] bool."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(e.sentence, n) == n for n, e in enumerate(examples)], bool)


def spans(tags: tf.Tensor) -> Spans:
    """Where terms begin, and where they end.

    Args:
        tags: [batch, pieces] integers. Negative ones belong to no term.

    Returns:
        [batch, pieces] bool, true at the first piece of each term, and [batch, pieces] int32, the
        last piece of a term that begins there.
    """
    inside = tags == INSIDE
    before = tf.pad(tags[:, :-1], [[0, 0], [1, 0]], constant_values=OUTSIDE)
    begins = (tags == BEGIN) | (inside & (before != BEGIN) & (before != INSIDE))
    follows = tf.pad(inside[:, 1:], [[0, 0], [0, 1]])  # the next piece continues the term
    place = tf.range(tf.shape(tags)[1])
    stops = tf.where(follows, tf.shape(tags)[1], place)  # [batch, pieces]
    later = place[tf.newaxis, :] >= place[:, tf.newaxis]
    ends = tf.reduce_min(
        tf.where(later[tf.newaxis], stops[:, tf.newaxis], tf.shape(tags)[1]), axis=2
    )
    return begins, ends


class SpanF1(tf_keras.metrics.Metric):
    """F1 of whole terms. A predicted term counts if both of its ends are correct.

    Without terms in labels and predictions, the result is 0.
    """

    def __init__(self, name: str = "ate_f1") -> None:
        super().__init__(name=name, dtype=tf.float32)
        names = ("correct", "predicted", "labelled")
        self._counts = {each: self.add_weight(each, initializer="zeros") for each in names}

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        Args:
            y_true: [batch, pieces] tags. Predictions where they are negative are ignored.
            y_pred: [batch, pieces, tags] scores. The highest is the prediction.
            sample_weight: [batch] weights of the sentences. None: 1 each.
        """
        predicted = tf.argmax(y_pred, axis=-1, output_type=tf.int32)
        predicted = tf.where(y_true == IGNORED, IGNORED, predicted)
        (begins, ends), (found, found_ends) = spans(y_true), spans(predicted)
        correct = begins & found & (ends == found_ends)
        weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        for name, each in zip(self._counts, (correct, found, begins), strict=True):
            self._counts[name].assign_add(tf.reduce_sum(tf.cast(each, tf.float32) * weight))

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """A scalar in [0, 1]."""
        counts = self._counts
        return tf.math.divide_no_nan(
            2 * counts["correct"], counts["predicted"] + counts["labelled"]
        )
