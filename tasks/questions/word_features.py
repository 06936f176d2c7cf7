"""A word reader's features of each word: integers, computed identically in training and serving.

    id of its vector | hashes of its spelling, its lower case, its stem | capital? number? sign?
    | its first characters, for readers that read them

Exact match and alignment with the question are the features of Chen et al., "Reading Wikipedia to
answer open-domain questions", 2017, section 3.2. The last three replace their part-of-speech tags.
"""

import numpy as np
import tensorflow as tf

from tasks.text import embeddings

COLUMNS = 7
"""The number of columns before the characters."""

CHARACTERS = 1024
"""The number of character ids: 0 for padding, one of the others for each code point."""

_FORMS = slice(1, 4)
_SHAPES = slice(4, 7)

# English endings, removed if three letters remain. The result is a rough stem, which matches
# "bridges" to "bridge", but "built" only to itself.
_ENDING = r"^(.{3,}?)(?:ies|es|s|ed|ing|ly|e|y)$"
_LARGEST = 2**31 - 2


def table(words: np.ndarray, vocabulary: embeddings.Vocabulary, characters: int = 0) -> np.ndarray:
    """The feature rows of words, [n, COLUMNS + characters] int32.

    Args:
        words: [n] strings. An empty one is padding.
        vocabulary: the words that have vectors.
        characters: how many of each word's characters to include.
    """
    # JSON may contain half a surrogate pair, which UTF-8 cannot encode.
    encoded = tf.constant([word.encode("utf-8", "replace") for word in words.tolist()], tf.string)
    return rows(encoded, tf.constant(vocabulary.ids(words.tolist())), characters).numpy()


def rows(words: tf.Tensor, ids: tf.Tensor, characters: int = 0) -> tf.Tensor:
    """Computes the rows with TensorFlow ops, [n, COLUMNS + characters]. Zeros for empty words.

    Args:
        words: [n] strings, valid UTF-8.
        ids: [n] int32, the ids of their vectors.
        characters: how many of each word's characters to include.
    """
    lower = tf.strings.lower(words, encoding="utf-8")
    stem = tf.strings.regex_replace(lower, _ENDING, r"\1")
    hashes = [tf.strings.to_hash_bucket_fast(form, _LARGEST) + 1 for form in (words, lower, stem)]
    shapes = [
        tf.strings.regex_full_match(words, pattern)
        for pattern in (r"\p{Lu}.*", r".*\p{Nd}.*", r"[\p{P}\p{S}]+")
    ]
    columns = [ids, *(tf.cast(column, tf.int32) for column in (*hashes, *shapes))]
    columns = tf.where(words[:, tf.newaxis] == "", 0, tf.stack(columns, axis=1))
    if not characters:
        return columns
    codes = tf.strings.unicode_decode(words, "UTF-8")
    codes = codes.with_values(1 + codes.values % (CHARACTERS - 1))
    return tf.concat([columns, codes.to_tensor(0, shape=[None, characters])], 1)


def ids(rows: tf.Tensor) -> tf.Tensor:
    """Maps rows [..., tokens, COLUMNS] to the ids of their vectors, [..., tokens]. 0 is padding."""
    return rows[..., 0]


def characters(rows: tf.Tensor) -> tf.Tensor:
    """The ids of the words' characters, [..., characters]. 0 is padding."""
    return rows[..., COLUMNS:]


def shapes(rows: tf.Tensor) -> tf.Tensor:
    """Whether a word starts with a capital, contains a digit, is a sign: [..., 3] float32."""
    return tf.cast(rows[..., _SHAPES], tf.float32)


def matches(context: tf.Tensor, question: tf.Tensor) -> tf.Tensor:
    """Whether each context word occurs in the question, by spelling, lower case and stem.

    Args:
        context: [batch, tokens, COLUMNS].
        question: [batch, others, COLUMNS].

    Returns:
        [batch, tokens, 3] float32, 0 for padding.
    """
    here, there = context[:, :, tf.newaxis, _FORMS], question[:, tf.newaxis, :, _FORMS]
    return tf.cast(tf.reduce_any((here == there) & (here != 0), axis=2), tf.float32)
