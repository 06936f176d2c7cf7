"""WordPiece with a given vocabulary, in memory and in a graph, using TensorFlow Text.

    tokenizer = wordpiece.WordPiece("vocab.txt")
    ids, starts, ends = tokenizer.encode(["Beyoncé sang"])[0]

Without `lower_case`, the ids equal those of BERT's original Python code. With it, they equal those
of Model Garden's layers and of TensorFlow Hub's preprocessing for BERT. These also apply NFKC ("ﬁ"
becomes "fi", "…" three dots), whereas the original code only lower-cases.
"""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf
import tensorflow_text as tf_text

from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.text import pieces, words

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class WordPiece(pieces.Vocabulary):
    """Converts texts to ids of a vocabulary.

    Args:
        vocab_file: UTF-8, one piece per line. Pieces that continue a word begin with ##.
        lower_case: fold case and drop accents, as the vocabulary expects.
        texts: if there is no file, whole words of these texts are the pieces.

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
            self.tokenizer = tf_text.FastBertTokenizer(
                list(self.pieces),
                token_out_type=tf.int32,
                lower_case_nfd_strip_accents=lower_case,
            )
        except RuntimeError as error:  # only special pieces
            raise ConfigError(f"the vocabulary {vocab_file}: {error}") from error

    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `pieces.Vocabulary`. A word that cannot be split into pieces is one [UNK]."""
        return self.tokenizer.tokenize(texts)

    def in_graph_with_offsets(self, texts: tf.Tensor) -> pieces.Offsets:
        """See `pieces.Vocabulary`."""
        return self.tokenizer.tokenize_with_offsets(texts)


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
