"""By hand, and against a recomputation that goes a character and a word at a time."""

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


def test_scores_equal_an_independent_recomputation():
    draw = random.Random(0)
    pieces = [
        "a",
        "The",
        "an",
        " ",
        " ",
        "-",
        "\u2013",
        "cat",
        "Cat",
        "\u00c9",
        "'s",
        "_",
        "\u00df",
    ]

    def text():
        return "".join(draw.choices(pieces, k=draw.randrange(8)))

    for _ in range(3000):
        prediction, answers = text(), [text() for _ in range(draw.randrange(1, 4))]
        expected = recomputed(prediction, answers)
        assert squad_score.score(prediction, answers) == pytest.approx(expected), (
            prediction,
            answers,
        )


@pytest.mark.parametrize(("prediction", "score"), [("", 100), ("the", 100), ("Denver", 0)])
def test_where_there_is_no_answer_only_an_empty_prediction_is_right(prediction, score):
    assert squad_score.score(prediction, []) == (score, score)


def test_the_mean_is_over_questions():
    assert squad_score.mean([squad_score.Score(100, 100), squad_score.Score(0, 50)]) == (50, 75)
