"""The best span of each window, in the graph, and of each question, over all its windows."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

IMPOSSIBLE = -1e9
"""The logit of a place where no answer can start or end; finite, so that its gradient is."""


class Span(NamedTuple):
    """A span of tokens in a window, and the logit of there being none.

    Tensors, [batch] each, or a window's own numbers.

    Attributes:
        score: the logit of its start and that of its end.
        start: its first token, counted from 1.
        end: its last one.
        none: the logits of no answer, which stand at 0.
    """

    score: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    none: tf.Tensor


def best(logits: tf.Tensor, longest: int) -> Span:
    """The span of the highest score, which is the most probable one of the window.

    Args:
        logits: [batch, 1 + tokens, 2] of start and end; at 0, of no answer.
        longest: how many tokens a span may have.
    """
    starts, ends = logits[:, 1:, 0], logits[:, 1:, 1]
    # From each start, the ends within reach: [batch, tokens, longest].
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
    """The best span of each question over all of its windows, in whatever order they come.

    Windows are compared by logits: their probabilities do not compare, since those of each sum to 1
    (Clark and Gardner, "Simple and effective multi-paragraph reading comprehension", 2018,
    section 4).

    Args:
        spans: the fields of `Span`, and `window`, the windows' numbers; all [n].
        questions: [windows] the question of each window.
        threshold: no answer is given where its logits are, in every window, above the best score by
            more than this; None: one is always given.

    Returns:
        Question -> window, start, end; start and end are 0 where no answer is given.
    """
    order = np.lexsort((spans["window"], -spans["score"]))  # of equal ones the first window's
    asked = questions[spans["window"]]
    lowest: dict[int, float] = {}
    for question, none in zip(asked.tolist(), spans["none"].tolist(), strict=True):
        lowest[question] = min(none, lowest.get(question, none))
    chosen: dict[int, tuple[int, int, int]] = {}
    for place in order.tolist():
        question = int(asked[place])
        if question not in chosen:
            given = threshold is None or lowest[question] - spans["score"][place] <= threshold
            span = (int(spans["start"][place]), int(spans["end"][place])) if given else (0, 0)
            chosen[question] = (int(spans["window"][place]), *span)
    return chosen
