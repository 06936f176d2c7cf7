"""WordPiece with a user's vocabulary, in memory and in a graph, through TensorFlow Text.

    tokenizer = wordpiece.WordPiece("vocab.txt")
    ids, starts, ends = tokenizer.encode(["Beyoncé sang"])[0]

Without `lower_case` the ids are those of BERT's own Python code. With it they are those of Model
Garden's layers and of TensorFlow Hub's preprocessing for BERT, which also fold what is compatible
(NFKC: "ﬁ" becomes "fi", "…" three dots), where that code only lower-cases.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from runner.errors import ConfigError

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Pieces(NamedTuple):
    """The pieces of one text; those of a single character share its place.

    Attributes:
        ids: [n] int32, without [CLS] and [SEP].
        starts: [n] int32, in characters of the original text.
        ends: [n] int32, above `starts`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class WordPiece:
    """Texts into ids of a vocabulary.

    Args:
        vocab_file: UTF-8, one piece per line; pieces that continue a word begin with ##.
        lower_case: fold case and drop accents, as the vocabulary expects.

    Attributes:
        path: the vocabulary file.
        size: how many pieces there are.
        pad: the id of [PAD]; `cls` and `sep`: those of [CLS] and [SEP].

    Raises:
        ConfigError: no such file, invalid UTF-8, a special piece missing, an empty line or one
            that is there twice.
    """

    def __init__(self, vocab_file: str, *, lower_case: bool = True) -> None:
        self.path = Path(vocab_file)
        vocabulary = _read(self.path)
        self.size = len(vocabulary)
        self.pad, _, self.cls, self.sep = (vocabulary[piece] for piece in _SPECIAL)
        try:
            self._tokenizer = tf_text.FastBertTokenizer(
                list(vocabulary),
                token_out_type=tf.int32,
                lower_case_nfd_strip_accents=lower_case,
            )
        except RuntimeError as error:  # nothing but special pieces
            raise ConfigError(f"the vocabulary {vocab_file}: {error}") from error

    def encode(self, texts: Sequence[str]) -> list[Pieces]:
        """The pieces of each text; a word that cannot be made of pieces is one [UNK]."""
        if not texts:
            return []
        # Half a surrogate pair, which JSON may hold, has no UTF-8.
        encoded = [text.encode("utf-8", "replace") for text in texts]
        found = self._tokenizer.tokenize_with_offsets(tf.constant(encoded))
        ids, starts, ends = (part.values.numpy() for part in found)
        splits = found[0].row_splits.numpy()
        return [
            _pieces(text, ids[first:last], starts[first:last], ends[first:last])
            for text, first, last in zip(encoded, splits, splits[1:], strict=False)
        ]

    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids that `encode` gives, as TensorFlow ops, for serving.

        Args:
            texts: [batch] strings, valid UTF-8.

        Returns:
            [batch, (pieces)] int32.
        """
        return self._tokenizer.tokenize(texts)

    def in_graph_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """The same, and where each piece starts and ends: int64, in bytes of UTF-8.

        A piece that is only the beginning of a character ends where it starts.
        """
        return self._tokenizer.tokenize_with_offsets(texts)


def _pieces(text: bytes, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Pieces:
    """Offsets in bytes as offsets in characters."""
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80  # bytes that begin a character
    characters = np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)
    first = characters[starts]
    return Pieces(ids, first, np.maximum(characters[ends], first + 1))


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
            raise ConfigError(f"{path}:{number}: an empty line; expected one piece a line")
        if piece in vocabulary:
            raise ConfigError(
                f"{path}:{number}: {piece!r} is on line {vocabulary[piece] + 1} already"
            )
        vocabulary[piece] = number - 1
    missing = [piece for piece in _SPECIAL if piece not in vocabulary]
    if missing:
        raise ConfigError(f"the vocabulary {path} has no {' and no '.join(missing)}")
    return vocabulary
