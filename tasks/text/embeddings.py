"""Word vectors, from GloVe's text format.

    vectors = embeddings.load(config, words_of_the_data)
    ids = vectors.vocabulary.ids(["the", "food"])
    embed = embeddings.layer(vectors, trainable=config.trainable)  # [batch, length] ids to vectors

GloVe: Pennington et al., "Global vectors for word representation", 2014. The text formats of
word2vec and fastText, which start with a line of two counts, are also supported.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from runner.core import console
from runner.errors import ConfigError
from runner.storage import data_copies

PADDING, UNKNOWN = 0, 1
_FIRST = 2  # the id of the first word


@dataclasses.dataclass
class EmbeddingConfig(base_config.Config):
    """Word vectors.

    Attributes:
        path: a file with a word and its vector on each line, separated by blanks. Empty: vectors
            are initialized at random, and `trainable` must be set.
        dimension: the size of a vector.
        trainable: whether training changes the vectors.
        lower_case: whether words are looked up in lower case, as most files need.
    """

    path: str = ""
    dimension: int = 50
    trainable: bool = False
    lower_case: bool = True


class Vocabulary:
    """Words and their ids. 0 is padding, 1 is any unknown word.

    Args:
        words: in the order of their ids, which start at 2. In lower case if `lower_case`.
        lower_case: whether tokens are looked up in lower case.
    """

    def __init__(self, words: Iterable[str], *, lower_case: bool = True) -> None:
        self.words = tuple(words)
        self.lower_case = lower_case
        self._ids = {word: number for number, word in enumerate(self.words, start=_FIRST)}

    def __len__(self) -> int:
        return _FIRST + len(self.words)

    def ids(self, tokens: Sequence[str]) -> np.ndarray:
        """The ids of tokens, [n] int32."""
        cased = (token.lower() for token in tokens) if self.lower_case else tokens
        return np.array([self._ids.get(token, UNKNOWN) for token in cased], np.int32)

    def table(self) -> "Table":
        """`ids` as TensorFlow ops, for serving."""
        return Table(self)


class Table(tf.Module):
    """A vocabulary in a graph. An exported module must track it, because it owns a resource."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._lower_case = vocabulary.lower_case
        ids = tf.range(_FIRST, len(vocabulary), dtype=tf.int32)
        words = tf.constant([_bytes(word) for word in vocabulary.words], tf.string)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(words, ids), default_value=UNKNOWN
        )

    def __call__(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Maps [batch, (tokens)] strings to int32 ids."""
        if self._lower_case:
            tokens = tf.strings.lower(tokens, encoding="utf-8")
        return tf.ragged.map_flat_values(self._table.lookup, tokens)


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The vectors of the words in a dataset.

    Attributes:
        vocabulary: the words that have vectors.
        dimension: the size of a vector.
        matrix: [len(vocabulary), dimension] float32. The row for padding is zeros, and the row for
            unknown words is the mean of all others. None if vectors are initialized at random.
        missing: the number of distinct words of the data without a vector.
        total: the number of distinct words in the data.
    """

    vocabulary: Vocabulary
    dimension: int
    matrix: np.ndarray | None
    missing: int
    total: int


def load(
    config: EmbeddingConfig, words: Iterable[str], *, note: console.Note = console.say
) -> Embeddings:
    """Reads the vectors of the data's words, and reports how many words have none.

    Args:
        config: the source of the vectors.
        words: the words of the data, with repetitions.
        note: called with a message about words without a vector.

    Raises:
        ConfigError: the file is missing, has invalid lines, or has no vector for any of the words,
            or the vectors are neither read nor trained.
    """
    if config.dimension < 1:
        raise ConfigError(f"EmbeddingConfig.dimension={config.dimension}: must be above 0")
    counts = collections.Counter(word.lower() if config.lower_case else word for word in words)
    if not config.path:
        if not config.trainable:
            raise ConfigError(
                "EmbeddingConfig.path is empty, so vectors start at random: set trainable=True"
            )
        vocabulary = Vocabulary(counts, lower_case=config.lower_case)
        return Embeddings(vocabulary, config.dimension, None, 0, len(counts))
    vectors = _read(
        data_copies.local(config.path, "EmbeddingConfig.path"), config.dimension, counts.keys()
    )
    if not vectors:
        raise ConfigError(f"{config.path} has no vector for any of the {len(counts):,} words")
    covered = [word for word in counts if word in vectors]
    rows = np.stack([vectors[word] for word in covered])
    matrix = np.concatenate([np.zeros_like(rows[:1]), rows.mean(axis=0, keepdims=True), rows])
    missing = len(counts) - len(covered)
    unread = counts.total() - sum(counts[word] for word in covered)
    note(
        f"{config.path}: no vector for {missing:,} of {len(counts):,} words,"
        f" {unread / counts.total():.1%} of the text"
    )
    vocabulary = Vocabulary(covered, lower_case=config.lower_case)
    return Embeddings(vocabulary, config.dimension, matrix, missing, len(counts))


def layer(
    embeddings: Embeddings, *, trainable: bool, name: str = "words"
) -> tf_keras.layers.Embedding:
    """Builds a layer from ids [batch, length] to vectors [batch, length, dimension].

    The layer masks padding. Checkpoints also include fixed vectors, so a restored or exported model
    needs no other file.
    """
    return tf_keras.layers.Embedding(
        len(embeddings.vocabulary),
        embeddings.dimension,
        embeddings_initializer=_Rows(embeddings.matrix),
        mask_zero=True,
        trainable=trainable,
        name=name,
    )


class _Rows(tf_keras.initializers.Initializer):
    """The given rows, or random ones with zeros for padding. Not saved in a Keras configuration."""

    def __init__(self, rows: np.ndarray | None) -> None:
        self._rows = rows

    def __call__(self, shape: Sequence[int], dtype: Any = None, **_: Any) -> tf.Tensor:
        if self._rows is not None:
            return tf.constant(self._rows, dtype)
        random = tf_keras.initializers.RandomUniform(-0.05, 0.05)(shape, dtype)
        return tf.concat([tf.zeros_like(random[:1]), random[1:]], axis=0)


def _read(path: Path, dimension: int, wanted: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads the vectors of the wanted words, [dimension] float32 each.

    A word's first line is used. Other lines are not parsed, because files have millions of them.
    """
    if not path.is_file():
        raise ConfigError(f"EmbeddingConfig.path: there is no file {path}")
    left = {_bytes(word): word for word in wanted}
    vectors = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            line, place = line.rstrip(b" \r\n"), f"{path}:{number}"
            if number == 1 and _is_header(line, dimension, place):
                continue
            word = _word(line, dimension, place)
            if word in left:
                vectors[left.pop(word)] = _vector(line[len(word) :], place)
    return vectors


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")  # JSON may contain halves of surrogate pairs


def _is_header(line: bytes, dimension: int, place: str) -> bool:
    """Whether a line holds the two counts that word2vec and fastText files start with."""
    fields = line.split(b" ")
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return False
    if int(fields[1]) != dimension:
        raise ConfigError(
            f"{place}: vectors of {int(fields[1])} numbers; EmbeddingConfig.dimension={dimension}"
        )
    return True


def _word(line: bytes, dimension: int, place: str) -> bytes:
    """Returns a line's word, which may contain blanks, as in GloVe's largest file."""
    blanks = line.count(b" ") - dimension  # within the word
    parts = line.split(b" ", blanks + 1)[:-1] if blanks >= 0 else []
    if not parts or (blanks and all(map(_is_number, parts[1:]))):
        raise ConfigError(
            f"{place}: {dimension + blanks} numbers after a word;"
            f" EmbeddingConfig.dimension={dimension}"
        )
    word = b" ".join(parts)
    try:
        word.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: not UTF-8: {word!r}") from error
    return word


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _vector(fields: bytes, place: str) -> np.ndarray:
    try:
        vector = np.array(fields.split(), np.float32)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    if not np.isfinite(vector).all():
        raise ConfigError(f"{place}: a number that is not finite")
    return vector
