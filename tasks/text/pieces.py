"""Vocabularies of pieces, for encoders such as BERT's, and the pieces of texts.

vocabulary = vocabularies.load("vocab.txt", lower_case=True)
ids, starts, ends = vocabulary.encode(["Beyoncé sang"])[0]
"""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Offsets = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class Pieces(NamedTuple):
    """The pieces of one text. Several pieces of one character share its position.

    Attributes:
        ids: [n] int32, without [CLS] and [SEP].
        starts: [n] int32, in characters of the original text.
        ends: [n] int32, above `starts`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Vocabulary(abc.ABC):
    """Converts texts to the ids of pieces.

    Attributes:
        name: the vocabulary's file, or a description if there is none.
        lower_case: whether texts are lower-cased and lose their accents.
        pieces: in the order of their ids.
        size: the number of pieces.
        pad: the id of padding. `cls` and `sep` are the ids of [CLS] and [SEP].
        tokenizer: TensorFlow Text's. A module that is exported must have it as an attribute.
    """

    name: str
    lower_case: bool
    pieces: tuple[str, ...]
    size: int
    pad: int
    cls: int
    sep: int
    tokenizer: tf.Module

    @abc.abstractmethod
    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of texts, computed by TensorFlow ops, for serving.

        Args:
            texts: [batch] strings, valid UTF-8.

        Returns:
            [batch, (pieces)] int32.
        """

    @abc.abstractmethod
    def in_graph_with_offsets(self, texts: tf.Tensor) -> Offsets:
        """Computes the same ids, and the start and end of each piece as int64, in UTF-8 bytes.

        If a piece is only the beginning of a character, its start and end are equal.
        """

    def encode(self, texts: Sequence[str]) -> list[Pieces]:
        """Encodes each text as pieces, with the same ids as `in_graph`."""
        if not texts:
            return []
        # JSON may contain half a surrogate pair, which UTF-8 cannot encode.
        encoded = [text.encode("utf-8", "replace") for text in texts]
        found = self.in_graph_with_offsets(tf.constant(encoded))
        ids, starts, ends = (part.values.numpy() for part in found)
        splits = found[0].row_splits.numpy()
        return [
            _pieces(text, ids[first:last], starts[first:last], ends[first:last])
            for text, first, last in zip(encoded, splits, splits[1:], strict=False)
        ]


def _pieces(text: bytes, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Pieces:
    """Converts offsets in bytes to offsets in characters."""
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80  # bytes that begin a character
    characters = np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)
    first = characters[starts]
    return Pieces(ids, first, np.maximum(characters[ends], first + 1))
