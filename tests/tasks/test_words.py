# ruff: noqa: RUF001 -- look-alike characters are what is tested
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from tasks.text import words

HARD = [
    "",
    " \t\n\u00a0\u3000",
    "Beyoncé's cafe\u0301 in İstanbul cost $1,000.50 (5%)",
    "don't, DON’T, isn't. n't 's 'salt' we'll they’re rock'n'roll O'Neil",
    "the U.S. at 3:00 a.m. e.g. in 1990–1995, the 1980s/20th",
    "well-known\u00adsoft the\u200bthe\ufeffthe a\u200db",
    "中国人民 ひらがな 한국어 ไทย हिन्दी عربى",
    "👩\u200d👧 👍🏽! 🇸🇪 ❤\ufe0f",
    "½ x² Ⅷ _under_ #tag @name a\0b \u0301alone",
    "١٢٣,٤٥ ΟΔΥΣΣΕΥΣ ǅ ﬁne ß",
]


def at_random(count):
    """Texts of characters from everywhere, those that matter to words more often."""
    choose = random.Random(0)
    often = "aZ9é' ’.,nt-$\u0301\u200b\u200d\u00a0中👍"
    everywhere = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    return [
        "".join(choose.choice(choose.choice((often, everywhere))) for _ in range(30))
        for _ in range(count)
    ]


def texts_of(text):
    return [token.text for token in words.tokenize(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Beyoncé didn't pay $1,000.", "Beyoncé|did|n't|pay|$|1,000|."),
        ("He said: “Don’t!”", "He|said|:|“|Do|n’t|!|”"),
        ("Newton's laws, 'salt', it 's", "Newton|'s|laws|,|'|salt|'|,|it|'s"),
        ("1990–1995, 20th-century and/or", "1990|–|1995|,|20th|-|century|and|/|or"),
        ("the U.S. at 3:00 a.m.", "the|U.S.|at|3|:|00|a.m."),
        ("cafe\u0301 中国", "cafe\u0301|中|国"),
        ("👩\u200d👧❤\ufe0f", "👩\u200d|👧|❤\ufe0f"),
        ("non\u00adsense no\u200bsense", "non\u00adsense|no|sense"),
    ],
)
def test_a_text_is_cut_into_words_numbers_and_signs(text, tokens):
    assert texts_of(text) == tokens.split("|")


def test_tokens_stand_where_they_say_in_order_with_only_blanks_between():
    for text in HARD + at_random(300):
        tokens = words.tokenize(text)
        assert all(token.text == text[token.start : token.end] for token in tokens)
        assert all(token.start < token.end for token in tokens)
        assert all(a.end <= b.start for a, b in itertools.pairwise(tokens))
        covered = {place for token in tokens for place in range(token.start, token.end)}
        between = {character for place, character in enumerate(text) if place not in covered}
        assert all(character.isspace() or character in "\u200b\ufeff\0" for character in between)


def test_no_token_holds_a_blank():
    for text in HARD + at_random(300):
        assert not any(character.isspace() for token in texts_of(text) for character in token)


def test_half_a_surrogate_pair_is_a_sign():
    assert texts_of("a\ud800b") == ["a", "\ud800", "b"]


def test_a_graph_finds_the_same_tokens():
    texts = HARD + at_random(300)
    encoded = np.array([text.encode() for text in texts], object)
    found = tf.function(words.in_graph)(tf.constant(encoded))
    for text, strings, starts, ends in zip(
        texts, found.texts.to_list(), found.starts.to_list(), found.ends.to_list(), strict=True
    ):
        tokens = words.tokenize(text)
        assert [token.text.encode() for token in tokens] == strings
        assert [len(text[: token.start].encode()) for token in tokens] == starts
        assert [len(text[: token.end].encode()) for token in tokens] == ends


def test_a_graph_takes_no_texts_at_all():
    assert words.in_graph(tf.constant([], tf.string)).texts.to_list() == []
