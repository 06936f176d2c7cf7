"""Exact match and F1 as SQuAD's own scripts compute them, for version 1.1 and version 2.

Rajpurkar et al., "SQuAD: 100,000+ questions for machine comprehension of text", 2016, section 6.1;
"Know what you don't know: unanswerable questions for SQuAD", 2018.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Score(NamedTuple):
    """The scores of one prediction, or means over many, from 0 to 100."""

    exact_match: float
    f1: float


def normalize(text: str) -> str:
    """Lower-cases, then removes ASCII punctuation, then articles, and uses single spaces."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def score(prediction: str, answers: Sequence[str], *, unanswerable: bool = False) -> Score:
    """Scores a prediction against the best matching answer, separately for exact match and F1.

    Args:
        prediction: a text. Empty: no answer.
        answers: the correct ones. If empty, the question has no answer (version 2), and only a
            prediction that `normalize` makes empty is correct.
        unanswerable: whether to score as in version 2, which drops answers that `normalize` makes
            empty. If none is left, the question has no answer.
    """
    if unanswerable:
        answers = [answer for answer in answers if normalize(answer)]
    if not answers:
        right = 100.0 * (not normalize(prediction))
        return Score(right, right)
    return Score(
        100.0 * max(normalize(prediction) == normalize(answer) for answer in answers),
        100.0 * max(_f1(prediction, answer) for answer in answers),
    )


def mean(scores: Sequence[Score]) -> Score:
    """The mean over questions. 0 if there are none."""
    if not scores:
        return Score(0.0, 0.0)
    exact, f1 = zip(*scores, strict=True)
    return Score(sum(exact) / len(scores), sum(f1) / len(scores))


def _f1(prediction: str, answer: str) -> float:
    """Computes F1 from the common words, counted with multiplicity."""
    predicted, right = normalize(prediction).split(), normalize(answer).split()
    common = (Counter(predicted) & Counter(right)).total()
    # Equal to the harmonic mean of precision and recall.
    return 2 * common / (len(predicted) + len(right)) if common else 0.0
