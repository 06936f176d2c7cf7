"""The aspect models' input, from the ids before, in and after the aspect.

It is computed in the graph, so that training, evaluation and serving share the code.
"""

import abc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tasks.files import cached
from tasks.text import embeddings, words
from tasks.text import pieces as text_pieces

_VERSION = 1  # version of cached ids, to be raised when they change

Features = dict[str, tf.Tensor]
ASPECT = "aspect"
NEIGHBOURS = "neighbours"
WORDS = "words"


class Reader(tf.Module, metaclass=abc.ABCMeta):
    """Converts strings to a model's features.

    Args:
        window: the maximum number of words or pieces before the aspect, in it, and after it.
    """

    reads_neighbours = False

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    @abc.abstractmethod
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps [batch] strings to ids, [batch, (ids)] int32."""

    @property
    @abc.abstractmethod
    def words(self) -> list[str]:
        """The meaning of ids and the tokenization. Equal values imply equal results of `encode`."""

    @abc.abstractmethod
    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """Features from the ids of the three parts, each [batch, (ids)] int32."""

    def features(
        self,
        left: tf.RaggedTensor,
        aspect: tf.RaggedTensor,
        right: tf.RaggedTensor,
        neighbours: tf.Tensor | None = None,
    ) -> Features:
        """Like `assemble`, but limited to the window around the aspect.

        Args:
            left: the ids before the aspect, as for `assemble`.
            aspect: the ids of the aspect.
            right: the ids after the aspect.
            neighbours: for a reader of neighbours, the result of `around`. None: no neighbours.
        """
        window = self.window
        made = self.assemble(left[:, -window:], aspect[:, :window], right[:, :window])
        if self.reads_neighbours and neighbours is None:
            made[NEIGHBOURS] = tf.repeat(made[ASPECT][:, tf.newaxis], 2, axis=1)
        elif self.reads_neighbours:
            made[NEIGHBOURS] = neighbours + made[ASPECT][:, :1, tf.newaxis]
        return made


class SentenceReader(Reader):
    """Reads sentences as words, for models with word vectors.

    The features are `words`, [batch, words] int32, padded with 0, and `aspect`, [batch, 2] int32:
    the position of the aspect's first word, and of the first word after it.
    """

    def __init__(self, vectors: embeddings.Embeddings, window: int) -> None:
        super().__init__(window)
        self.vectors = vectors
        self._table = vectors.vocabulary.table()

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `Reader.encode`."""
        return self._table(words.in_graph(texts).texts)

    @property
    def words(self) -> list[str]:
        """See `Reader.words`."""
        vocabulary = self.vectors.vocabulary
        return [f"words, lower_case={vocabulary.lower_case}", *vocabulary.words]

    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """See `Reader.assemble`."""
        ids = tf.concat([left, aspect, right], axis=1)
        return {WORDS: ids.to_tensor(embeddings.PADDING), ASPECT: bounds(left, aspect)}


class PairReader(Reader):
    """Reads pairs of sequences of pieces, as BERT does: [CLS] sentence [SEP] aspect [SEP].

    The features are `input_word_ids`, `input_mask` and `input_type_ids`, named as in Model Garden's
    encoders, each [batch, pieces] int32, and `aspect` as in `SentenceReader`. A reader of
    neighbours adds `neighbours`, [batch, 2, 2] int32, with the same positions for the nearest
    aspects to the left and to the right. A missing neighbour is replaced by the aspect itself.
    """

    def __init__(
        self, pieces: text_pieces.Vocabulary, window: int, *, reads_neighbours: bool = False
    ) -> None:
        super().__init__(window)
        self.pieces = pieces
        self._tokenizer = pieces.tokenizer  # for exports
        self.reads_neighbours = reads_neighbours

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `Reader.encode`."""
        return self.pieces.in_graph(texts)

    @property
    def words(self) -> list[str]:
        """See `Reader.words`."""
        return [f"pieces, lower_case={self.pieces.lower_case}", *self.pieces.pieces]

    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """See `Reader.assemble`."""
        cls, sep = self.special(left)
        first = tf.concat([cls, left, aspect, right, sep], axis=1)
        second = tf.concat([aspect, sep], axis=1)
        types = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
        return self.padded(tf.concat([first, second], axis=1), types, bounds(left, aspect))

    @property
    def longest(self) -> int:
        """The maximum number of pieces in a row."""
        return 4 * self.window + 3

    def special(self, rows: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """[CLS] and [SEP] for each row, [batch, 1] each."""
        one = tf.ones([rows.nrows(), 1], tf.int32)
        cls, sep = self.pieces.cls, self.pieces.sep
        return tf.RaggedTensor.from_tensor(one * cls), tf.RaggedTensor.from_tensor(one * sep)

    def padded(self, ids: tf.RaggedTensor, types: tf.RaggedTensor, aspect: tf.Tensor) -> Features:
        """The features of rows that begin with [CLS].

        Args:
            ids: [batch, (pieces)] int32.
            types: [batch, (pieces)] int32.
            aspect: [batch, 2] int32, the aspect's positions after [CLS].
        """
        return {
            "input_word_ids": ids.to_tensor(self.pieces.pad),
            "input_mask": tf.ones_like(ids).to_tensor(),
            "input_type_ids": types.to_tensor(),
            ASPECT: aspect + 1,
        }


def distances(aspect: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The distance of each word from the nearest word of the aspect.

    Args:
        aspect: [batch, 2] int32, as in `SentenceReader`.
        length: the padded length of the sentences.

    Returns:
        [batch, length] int32: 0 in the aspect, 1 next to it.
    """
    place = tf.range(length)[tf.newaxis]
    before, after = aspect[:, :1] - place, place - aspect[:, 1:] + 1
    return tf.maximum(0, tf.maximum(before, after))


def bounds(left: tf.RaggedTensor, aspect: tf.RaggedTensor) -> tf.Tensor:
    """The position of the aspect's first id, and of the first id after it, [batch, 2] int32."""
    first = tf.cast(left.row_lengths(), tf.int32)
    return tf.stack([first, first + tf.cast(aspect.row_lengths(), tf.int32)], axis=1)


def around(
    sentences: tf.Tensor, left: tf.RaggedTensor, aspect: tf.RaggedTensor, size: int = 1024
) -> tf.Tensor:
    """The nearest other aspects of the same sentence, on either side of each aspect.

    Args:
        sentences: [texts] strings, complete.
        left: [texts, (ids)] the ids before the aspect.
        aspect: [texts, (ids)] the ids of the aspect.
        size: how many texts are compared with all others at a time.

    Returns:
        [texts, 2, 2] int32: for the aspect to the left and the aspect to the right, the first id
        and the one after the last, relative to the first id of the aspect. If there is none, those
        of the aspect itself.
    """
    starts = tf.cast(left.row_lengths(), tf.int32)
    lengths = tf.cast(aspect.row_lengths(), tf.int32)
    _, number = tf.unique(sentences)
    far = tf.constant(2**30)

    def nearest(rows: tf.Tensor) -> tf.Tensor:
        same = tf.gather(number, rows)[:, tf.newaxis] == number
        gap = starts - tf.gather(starts, rows)[:, tf.newaxis]
        found = []
        for side in (-1, 1):
            away = tf.where(same & (side * gap > 0), side * gap, far)
            one = tf.argmin(away, axis=1, output_type=tf.int32)
            one = tf.where(tf.reduce_min(away, axis=1) < far, one, rows)
            first = tf.gather(starts, one) - tf.gather(starts, rows)
            found.append(tf.stack([first, first + tf.gather(lengths, one)], axis=1))
        return tf.stack(found, axis=1)

    rows = tf.range(tf.size(starts))
    if not tf.executing_eagerly():
        return nearest(rows)
    return tf.concat([nearest(rows[at : at + size]) for at in range(0, len(rows), size)], axis=0)


def encoded(
    reader: Reader,
    parts: Sequence[Sequence[str]],
    *,
    files: Sequence[Path],
    cache_folder: str,
    settings: Sequence[str],
) -> list[tf.RaggedTensor]:
    """Returns the ids of many texts, from a cache if possible.

    Args:
        reader: converts the texts.
        parts: lists of texts.
        files: the files they were read from. If empty, the result is not cached.
        cache_folder: the cache's directory. If empty, nothing is cached.
        settings: everything else that the texts depend on.

    Returns:
        [texts, (ids)] int32 for each list.
    """

    def make() -> dict[str, np.ndarray]:
        arrays = {}
        for number, texts in enumerate(parts):
            ids = reader.encode(tf.constant(texts))
            arrays[f"ids_{number}"] = ids.flat_values.numpy()
            arrays[f"ends_{number}"] = ids.row_splits.numpy()
        return arrays

    arrays = cached.cached(
        cache_folder if files else "",
        "aspects",
        files=files,
        settings=[*settings, reader.words],
        version=_VERSION,
        make=make,
    )
    return [
        tf.RaggedTensor.from_row_splits(arrays[f"ids_{number}"], arrays[f"ends_{number}"])
        for number in range(len(parts))
    ]
