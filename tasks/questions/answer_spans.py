"""The best span of each window, computed in the graph, and of each question over its windows."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

IMPOSSIBLE = -1e9
"""The logit of a position where no answer can start or end. Finite, so that gradients are, too."""


class Span(NamedTuple):
    """A span of tokens in a window, and the score of having no answer.

    The fields are [batch] tensors, or numbers for a single window.

    Attributes:
        score: the sum of the logits of its start and end.
        start: its first token, counted from 1.
        end: its last token.
        none: the sum of the no-answer logits, which are at position 0.
    """

    score: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    none: tf.Tensor


@tf.autograph.experimental.do_not_convert
def best(logits: tf.Tensor, longest: int) -> Span:
    """Finds the span with the highest score, which is the window's most probable one.

    Args:
        logits: [batch, 1 + tokens, 2] of start and end. Position 0 means no answer.
        longest: the maximum number of tokens in a span.
    """
    starts, ends = logits[:, 1:, 0], logits[:, 1:, 1]
    # For each start, the possible ends: [batch, tokens, longest].
    reach = tf.pad(ends, [[0, 0], [0, longest - 1]], constant_values=IMPOSSIBLE)
    reach = tf.signal.frame(reach, longest, 1)
    scores = starts + tf.reduce_max(reach, -1)
    start = tf.argmax(scores, -1, tf.int32)
    further = tf.argmax(tf.gather(reach, start, batch_dims=1), -1, tf.int32)
    return Span(
        score=tf.reduce_max(scores, -1),
        start=start + 1,
        end=start + further + 1,
        none=tf.reduce_sum(logits[:, 0], -1),
    )


def choose(
    spans: Mapping[str, np.ndarray], questions: np.ndarray, threshold: float | None
) -> dict[int, tuple[int, int, int]]:
    """The best span for each question over all of its windows, in any order.

    Windows are compared by logits. Probabilities are not comparable, because they sum to 1 within
    each window (Clark and Gardner, "Simple and effective multi-paragraph reading comprehension",
    2018, section 4).

    Args:
        spans: the fields of `Span`, and `window`, the windows' indices, each [n].
        questions: [windows] the question of each window.
        threshold: an answer is given unless, in every window, the score of no answer minus the best
            score exceeds this. None: always give an answer.

    Returns:
        Question -> window, start, end. Start and end are 0 if no answer is given.
    """
    order = np.lexsort((spans["window"], -spans["score"]))  # ties: the first window
    asked = questions[spans["window"]]
    lowest: dict[int, float] = {}
    for question, none in zip(asked.tolist(), spans["none"].tolist(), strict=True):
        lowest[question] = min(none, lowest.get(question, none))
    chosen: dict[int, tuple[int, int, int]] = {}
    for place in order.tolist():
        question = int(asked[place])
        if question not in chosen:
            answered = threshold is None or lowest[question] - spans["score"][place] <= threshold
            span = (int(spans["start"][place]), int(spans["end"][place])) if answered else (0, 0)
            chosen[question] = (int(spans["window"][place]), *span)
    return chosen
