"""The words of a text, each with its exact position.

    words.tokenize("Beyoncé didn't pay $1,000.")
    # Beyoncé | did | n't | pay | $ | 1,000 | .

Words and numbers stay whole. Hyphens, slashes, quotes and other signs are separate tokens, so an
annotated answer nearly always starts and ends at token boundaries. Contractions are split as in the
Penn Treebank, as for GloVe's vectors. An ideograph is a word, as in BERT. Zero-width marks and
joiners belong to the character before them.
"""

import functools
import re
import sys
import unicodedata
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text


class Token(NamedTuple):
    """A word, number or sign. `text == original[start:end]`, in characters."""

    text: str
    start: int
    end: int


class Words(NamedTuple):
    """Tokens in a graph: [batch, (tokens)] strings, and int64 offsets in UTF-8 bytes."""

    texts: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


_APOSTROPHE = "['\u2019]"
_NOT = f"[nN]{_APOSTROPHE}[tT]"
# Treated like white space: zero-width characters that separate words (others join them), and NUL.
_MORE_BLANKS = "\u200b\ufeff\0"
IDEOGRAPH = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def tokenize(text: str) -> list[Token]:
    """Returns the tokens of a text, in order. Only blanks separate them."""
    token, negation = (re.compile(pattern, re.ASCII) for pattern in _patterns()[:2])
    tokens = []
    for match in token.finditer(text):
        start, end = match.span()
        middle = end - 3 if negation.search(match[0]) else start
        tokens += [Token(text[a:b], a, b) for a, b in ((start, middle), (middle, end)) if a < b]
    return tokens


def in_graph(texts: tf.Tensor) -> Words:
    """Computes the same tokens as `tokenize` with TensorFlow ops, for serving.

    Args:
        texts: [batch] strings, valid UTF-8.
    """
    token, negation, blank = _patterns()
    texts = tf.strings.regex_replace(texts, r"\x00", " ")  # splitting would stop at NUL
    whole, starts, _ = tf_text.regex_split_with_offsets(texts, f"{token}|{blank}", token)
    parts, begins, ends = tf_text.regex_split_with_offsets(whole, negation, negation)
    origin = starts[..., tf.newaxis]
    return Words(*(part.merge_dims(1, 2) for part in (parts, origin + begins, origin + ends)))


@functools.cache
def _patterns() -> tuple[str, str, str]:
    """Patterns of a token, a negation at its end, and blanks, for both Python's re and RE2.

    Character classes are spelled out, because the two use different versions of Unicode.
    """
    kinds = "".join(_kind(chr(code)) for code in range(sys.maxunicode + 1))
    letter, digit, mark, blank, rest = (
        "".join(
            f"{re.escape(chr(run.start()))}-{re.escape(chr(run.end() - 1))}"
            for run in re.finditer(f"[{wanted}]+", kinds)
        )
        for wanted in ("L", "N", "M", "Z", "LNM")
    )
    token = "|".join(
        (
            r"(?:[A-Za-z]\.){2,}",
            rf"{_APOSTROPHE}(?:[sStTdDmM]|[rR][eE]|[vV][eE]|[lL][lL])\b",
            rf"[{letter}]*?{_NOT}\b",
            rf"(?:[{digit}]+(?:[.,][{digit}]+)*|[{letter}])[{rest}]*",
            rf"[^{blank}][{mark}]*",
        )
    )
    return token, f"{_NOT}$", f"[{blank}]+"


def _kind(character: str) -> str:
    """L for letters, N for digits, M for joining marks, Z for blanks, - for other signs."""
    category = unicodedata.category(character)
    if character.isspace() or character in _MORE_BLANKS:
        return "Z"
    if category == "Nd":
        return "N"
    if category[0] == "M" or category == "Cf":
        return "M"
    return "L" if category[0] == "L" and not IDEOGRAPH.match(character) else "-"
