"""By hand, and against recomputations that go a character and a word at a time."""

import itertools
import random
import string

import pytest

from tasks.questions import squad_score

BY_HAND = [
    # prediction, answers, exact match, F1
    ("Denver Broncos", ["Denver Broncos"], 100, 100),
    ("The Denver Broncos!", ["denver broncos"], 100, 100),
    ("an apple a day", ["the apple, day"], 100, 100),
    ("theatre", ["atre"], 0, 0),
    ("the", ["a"], 100, 0),
    ("", ["the"], 100, 0),
    ("", ["Denver"], 0, 0),
    ("Denver", ["Paris", "Denver, Colorado", "in Denver"], 0, 200 / 3),
    ("big cat", ["big dog", "big cat"], 100, 100),
    ("New New York", ["New York"], 0, 80),
    ("New York", ["New New York York"], 0, 200 / 3),
    ("$1,000.50", ["100050"], 100, 100),
    ("well-known", ["wellknown"], 100, 100),
    ("well\u2013known", ["well known"], 0, 0),
    ("the\u2013end", ["\u2013end"], 100, 100),
    ("\u201cQuoted\u201d", ["quoted"], 0, 0),
    ("Caf\u00e9", ["CAF\u00c9"], 100, 100),
    ("Cafe\u0301", ["Caf\u00e9"], 0, 0),
    ("stra\u00dfe", ["STRASSE"], 0, 0),
    ("\u4e2d\u56fd", ["\u4e2d\u56fd"], 100, 100),
    ("one\u00a0two\n three\t", [" one  two three"], 100, 100),
    ("a_b", ["ab"], 100, 100),
]


@pytest.mark.parametrize(("prediction", "answers", "exact", "f1"), BY_HAND)
def test_a_hard_case_is_scored_as_squad_scores_it(prediction, answers, exact, f1):
    assert squad_score.score(prediction, answers) == (exact, pytest.approx(f1))


def normalized(text):
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    runs = itertools.groupby(kept, lambda c: c.isalnum())
    parts = ["".join(run) for _, run in runs]
    return "".join(" " if part in ("a", "an", "the") else part for part in parts).split()


def recomputed(prediction, answers):
    exact, f1 = 0.0, 0.0
    ours = normalized(prediction)
    for answer in answers:
        theirs = normalized(answer)
        exact = max(exact, 100.0 * (ours == theirs))
        left, common = list(theirs), 0
        for word in ours:
            if word in left:
                left.remove(word)
                common += 1
        if common:
            precision, recall = common / len(ours), common / len(theirs)
            f1 = max(f1, 100 * 2 * precision * recall / (precision + recall))
    return exact, f1


def recomputed_with_no_answer(prediction, answers):
    """Version 2: exact match and F1 of each answer first, of what is empty by equality."""
    answers = [answer for answer in answers if normalized(answer)] or [""]
    scores = []
    for answer in answers:
        ours, theirs = normalized(prediction), normalized(answer)
        exact, f1 = recomputed(prediction, [answer])
        scores.append((exact, f1 if ours and theirs else 100.0 * (ours == theirs)))
    return tuple(max(column) for column in zip(*scores, strict=True))


PIECES = ["a", "The", "an", " ", " ", "cat", "Cat", "'s", *"-_!\u2013\u00c9\u00df"]


def hard_cases(least):
    """Predictions and `least` to 3 answers, made of words, articles and signs."""
    draw = random.Random(least)

    def text():
        return "".join(draw.choices(PIECES, k=draw.randrange(8)))

    for _ in range(3000):
        yield text(), [text() for _ in range(draw.randrange(least, 4))]


def test_scores_equal_an_independent_recomputation():
    for prediction, answers in hard_cases(1):
        expected = pytest.approx(recomputed(prediction, answers))
        assert squad_score.score(prediction, answers) == expected, (prediction, answers)


def test_scores_of_version_2_equal_an_independent_recomputation():
    differ = 0
    for prediction, answers in hard_cases(0):
        expected = pytest.approx(recomputed_with_no_answer(prediction, answers))
        found = squad_score.score(prediction, answers, unanswerable=True)
        assert found == expected, (prediction, answers)
        differ += bool(answers) and found != squad_score.score(prediction, answers)
    assert differ > 30  # the cases tell the versions apart


VERSION_2 = [
    # prediction, answers, score
    ("", ["the"], 100),
    ("a!", ["the", "!"], 100),
    ("Denver", ["the", "!"], 0),
    ("", ["the", "Denver"], 0),
    ("Denver", ["the", "Denver"], 100),
    ("!", ["Denver"], 0),
]


@pytest.mark.parametrize(("prediction", "answers", "score"), VERSION_2)
def test_in_version_2_an_answer_without_words_is_no_answer(prediction, answers, score):
    assert squad_score.score(prediction, answers, unanswerable=True) == (score, score)


@pytest.mark.parametrize(("prediction", "score"), [("", 100), ("the", 100), ("Denver", 0)])
def test_where_there_is_no_answer_only_an_empty_prediction_is_right(prediction, score):
    assert squad_score.score(prediction, []) == (score, score)


def test_the_mean_is_over_questions():
    assert squad_score.mean([squad_score.Score(100, 100), squad_score.Score(0, 50)]) == (50, 75)
