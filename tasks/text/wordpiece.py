"""WordPiece with a given vocabulary, in memory and in a graph, using TensorFlow Text.

    tokenizer = wordpiece.WordPiece("vocab.txt")
    ids, starts, ends = tokenizer.encode(["Beyoncé sang"])[0]

Without `lower_case`, the ids equal those of BERT's original Python code. With it, they equal those
of Model Garden's layers and of TensorFlow Hub's preprocessing for BERT. These also apply NFKC ("ﬁ"
becomes "fi", "…" three dots), whereas the original code only lower-cases.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.text import words

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


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


class WordPiece:
    """Converts texts to ids of a vocabulary.

    Args:
        vocab_file: UTF-8, one piece per line. Pieces that continue a word begin with ##.
        lower_case: fold case and drop accents, as the vocabulary expects.
        texts: if there is no file, whole words of these texts are the pieces.

    Attributes:
        name: the vocabulary file, or a description if there is none.
        lower_case: as given.
        pieces: in the order of their ids.
        size: the number of pieces.
        pad: the id of [PAD]. `cls` and `sep` are the ids of [CLS] and [SEP].

    Raises:
        ConfigError: the file is missing, not UTF-8, lacks a special piece, or has an empty or a
            duplicate line.
    """

    def __init__(
        self, vocab_file: str, *, lower_case: bool = True, texts: Iterable[str] = ()
    ) -> None:
        self.name = vocab_file or "made of the data's words"
        self.lower_case = lower_case
        if vocab_file:
            vocabulary = _read(data_copies.local(vocab_file, "vocab_file"))
        else:
            vocabulary = _words(texts, lower_case=lower_case)
        self.pieces = tuple(vocabulary)
        self.size = len(vocabulary)
        self.pad, _, self.cls, self.sep = (vocabulary[piece] for piece in _SPECIAL)
        try:
            self._tokenizer = tf_text.FastBertTokenizer(
                list(self.pieces),
                token_out_type=tf.int32,
                lower_case_nfd_strip_accents=lower_case,
            )
        except RuntimeError as error:  # only special pieces
            raise ConfigError(f"the vocabulary {vocab_file}: {error}") from error

    def encode(self, texts: Sequence[str]) -> list[Pieces]:
        """Encodes each text as pieces. A word that cannot be split into pieces is one [UNK]."""
        if not texts:
            return []
        # JSON may contain half a surrogate pair, which UTF-8 cannot encode.
        encoded = [text.encode("utf-8", "replace") for text in texts]
        found = self._tokenizer.tokenize_with_offsets(tf.constant(encoded))
        ids, starts, ends = (part.values.numpy() for part in found)
        splits = found[0].row_splits.numpy()
        return [
            _pieces(text, ids[first:last], starts[first:last], ends[first:last])
            for text, first, last in zip(encoded, splits, splits[1:], strict=False)
        ]

    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The same ids as `encode`, computed by TensorFlow ops, for serving.

        Args:
            texts: [batch] strings, valid UTF-8.

        Returns:
            [batch, (pieces)] int32.
        """
        return self._tokenizer.tokenize(texts)

    def in_graph_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Computes the same ids, and the start and end of each piece as int64, in UTF-8 bytes.

        If a piece is only the beginning of a character, its start and end are equal.
        """
        return self._tokenizer.tokenize_with_offsets(texts)


def _pieces(text: bytes, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Pieces:
    """Converts offsets in bytes to offsets in characters."""
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80  # bytes that begin a character
    characters = np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)
    first = characters[starts]
    return Pieces(ids, first, np.maximum(characters[ends], first + 1))


def _words(texts: Iterable[str], *, lower_case: bool) -> dict[str, int]:
    """The texts' words, split as in BERT, and their ids."""
    normalizer = tf_text.FastBertNormalizer(lower_case_nfd_strip_accents=lower_case)
    encoded = [text.encode("utf-8", "replace") for text in dict.fromkeys(texts)]
    found = dict.fromkeys(_SPECIAL)
    for text in normalizer.normalize(tf.constant(encoded, tf.string)).numpy():
        characters = text.decode("utf-8")
        spaced = (f" {each} " if _is_a_word(each) else each for each in characters)
        found.update(dict.fromkeys("".join(spaced).split()))
    return {piece: number for number, piece in enumerate(found)}


def _is_a_word(character: str) -> bool:
    """Whether BERT treats a character as a separate word: a sign or an ideograph."""
    ascii_sign = character.isascii() and character.isprintable() and not character.isalnum()
    sign = ascii_sign or unicodedata.category(character).startswith("P")
    return sign or bool(words.IDEOGRAPH.match(character))


def _read(path: Path) -> dict[str, int]:
    """The pieces of a vocabulary file and their ids."""
    if not path.is_file():
        raise ConfigError(f"there is no vocabulary {path}")
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        try:
            piece = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}:{number}: not UTF-8: {line!r}") from error
        if not piece:
            raise ConfigError(f"{path}:{number}: an empty line; expected one piece per line")
        if piece in vocabulary:
            raise ConfigError(
                f"{path}:{number}: {piece!r} is already on line {vocabulary[piece] + 1}"
            )
        vocabulary[piece] = number - 1
    missing = [piece for piece in _SPECIAL if piece not in vocabulary]
    if missing:
        raise ConfigError(f"the vocabulary {path} has no {' and no '.join(missing)}")
    return vocabulary
