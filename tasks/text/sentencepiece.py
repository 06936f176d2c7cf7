"""SentencePiece with a given model, as ALBERT uses it, by TensorFlow Text.

Kudo and Richardson, "SentencePiece: a simple and language independent subword tokenizer", 2018.
"""

import tensorflow as tf
import tensorflow_text as tf_text

from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.text import pieces

_SPECIAL = ("<pad>", "[CLS]", "[SEP]")


class SentencePiece(pieces.Vocabulary):
    """Converts texts to ids of a SentencePiece model.

    Args:
        model_file: the model, such as ALBERT's `30k-clean.model`.
        lower_case: decompose characters (NFKD), drop accents and fold case, as ALBERT does.

    Raises:
        ConfigError: the file is missing, is not a model, or lacks a special piece.
    """

    def __init__(self, model_file: str, *, lower_case: bool = True) -> None:
        path = data_copies.local(model_file, "vocab_file")
        if not path.is_file():
            raise ConfigError(f"there is no vocabulary {path}")
        self.name = model_file
        self.lower_case = lower_case
        try:
            self.tokenizer = tf_text.SentencepieceTokenizer(path.read_bytes(), out_type=tf.int32)
            self.size = int(self.tokenizer.vocab_size())
        except tf.errors.OpError as error:
            raise ConfigError(f"{path} is not a SentencePiece model") from error
        names = self.tokenizer.id_to_string(tf.range(self.size)).numpy()
        self.pieces = tuple(name.decode("utf-8", "replace") for name in names)
        missing = [piece for piece in _SPECIAL if piece not in self.pieces]
        if missing:
            raise ConfigError(f"the vocabulary {path} has no {' and no '.join(missing)}")
        self.pad, self.cls, self.sep = map(self.pieces.index, _SPECIAL)

    def in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `pieces.Vocabulary`."""
        return self.tokenizer.tokenize(self._normalized(texts)[0])

    def in_graph_with_offsets(self, texts: tf.Tensor) -> pieces.Offsets:
        """See `pieces.Vocabulary`. A piece starts after the space that it stands for."""
        normalized, characters, lengths = self._normalized(texts)
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(normalized)
        # All positions count from the beginning of the batch, to be searched at once.
        widths = tf.cast(tf.strings.length(characters.flat_values), tf.int64)
        source = tf.cumsum(widths, exclusive=True)
        first = tf.cumsum(lengths, exclusive=True)
        sizes = tf.cast(tf.strings.length(normalized), tf.int64)
        begin = tf.repeat(tf.cumsum(sizes, exclusive=True), starts.row_lengths())
        own = tf.repeat(tf.gather(_padded(source), characters.row_starts()), starts.row_lengths())

        def at(position: tf.Tensor) -> tf.Tensor:
            """The number of the character in which a byte of the normalized texts lies."""
            return tf.searchsorted(first, position + begin, side="right", out_type=tf.int64) - 1

        start = at(starts.flat_values)
        end = tf.maximum(start, at(ends.flat_values - 1))  # a piece may have no character
        spaces = tf.strings.regex_full_match(characters.flat_values, r"\s")
        start = tf.where(tf.gather(spaces, start) & (start < end), start + 1, start)
        return (
            ids,
            starts.with_flat_values(tf.gather(source, start) - own),
            ends.with_flat_values(tf.gather(source + widths, end) - own),
        )

    def _normalized(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.Tensor]:
        """Normalizes texts character by character, so that positions can be mapped back.

        Returns:
            The normalized texts [batch], the original characters [batch, (characters)], and the
            lengths in bytes of what they became, [characters] int64.
        """
        characters = tf.strings.unicode_split(texts, "UTF-8")
        folded = characters.flat_values
        if self.lower_case:
            folded = tf.strings.regex_replace(tf_text.normalize_utf8(folded, "NFKD"), r"\p{Mn}", "")
            folded = tf_text.case_fold_utf8(folded)
        joined = tf.strings.reduce_join(characters.with_flat_values(folded), axis=1)
        return joined, characters, tf.cast(tf.strings.length(folded), tf.int64)


def _padded(values: tf.Tensor) -> tf.Tensor:
    """Appends a 0, for the start of an empty row at the end."""
    return tf.pad(values, [[0, 1]])
