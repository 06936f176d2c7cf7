"""The aspect models' input, from the ids before, in and after the aspect.

It is all computed in the graph, so that training, evaluation and serving share it.
"""

import abc

import tensorflow as tf

from tasks.text import embeddings, wordpiece, words

Features = dict[str, tf.Tensor]
ASPECT = "aspect"
WORDS = "words"


class Reader(tf.Module, metaclass=abc.ABCMeta):
    """Converts strings to a model's features.

    Args:
        window: the maximum number of words or pieces before the aspect, in it, and after it.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    @abc.abstractmethod
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """From [batch] strings to ids, [batch, (ids)] int32."""

    @abc.abstractmethod
    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """Features from the ids of the three parts, each [batch, (ids)] int32."""

    def features(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """Like `assemble`, but limited to the window around the aspect."""
        window = self.window
        return self.assemble(left[:, -window:], aspect[:, :window], right[:, :window])


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

    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """See `Reader.assemble`."""
        ids = tf.concat([left, aspect, right], axis=1)
        return {WORDS: ids.to_tensor(embeddings.PADDING), ASPECT: _bounds(left, aspect)}


class PairReader(Reader):
    """Reads pairs of WordPiece sequences, as BERT does: [CLS] sentence [SEP] aspect [SEP].

    The features are, as official's encoders name them, `input_word_ids`, `input_mask` and
    `input_type_ids`, each [batch, pieces] int32, and `aspect` as in `SentenceReader`.
    """

    def __init__(self, pieces: wordpiece.WordPiece, window: int) -> None:
        super().__init__(window)
        self.pieces = pieces

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `Reader.encode`."""
        return self.pieces.in_graph(texts)

    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> Features:
        """See `Reader.assemble`."""
        one = tf.ones([left.nrows(), 1], tf.int32)
        cls, sep = (
            tf.RaggedTensor.from_tensor(one * id_) for id_ in (self.pieces.cls, self.pieces.sep)
        )
        first = tf.concat([cls, left, aspect, right, sep], axis=1)
        second = tf.concat([aspect, sep], axis=1)
        ids = tf.concat([first, second], axis=1)
        types = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
        return {
            "input_word_ids": ids.to_tensor(self.pieces.pad),
            "input_mask": tf.ones_like(ids).to_tensor(),
            "input_type_ids": types.to_tensor(),
            ASPECT: _bounds(left, aspect) + 1,  # after [CLS]
        }


def distances(aspect: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The distance of each word from the nearest word of the aspect.

    Args:
        aspect: [batch, 2] int32, as in `SentenceReader`.
        length: the padded length of the sentences.

    Returns:
        [batch, length] int32: 0 in the aspect, 1 beside it.
    """
    place = tf.range(length)[tf.newaxis]
    before, after = aspect[:, :1] - place, place - aspect[:, 1:] + 1
    return tf.maximum(0, tf.maximum(before, after))


def _bounds(left: tf.RaggedTensor, aspect: tf.RaggedTensor) -> tf.Tensor:
    first = tf.cast(left.row_lengths(), tf.int32)
    return tf.stack([first, first + tf.cast(aspect.row_lengths(), tf.int32)], axis=1)
