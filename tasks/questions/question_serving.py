"""A trained reader that takes strings."""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras

from tasks.questions import answer_spans, question_data, word_features
from tasks.text import embeddings, pieces, serving, words

Tokens = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""Maps texts [batch] to a reader's inputs, [batch, tokens(, columns)], padded, and the starts and
ends of tokens in their texts, [batch, (tokens)] each, in UTF-8 bytes."""


class WordTokens(tf.Module):
    """Converts texts to rows of `word_features`. See `Tokens`."""

    def __init__(self, vocabulary: embeddings.Vocabulary, characters: int) -> None:
        super().__init__()
        self._table = vocabulary.table()
        self._rows = functools.partial(word_features.rows, characters=characters)

    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Pads rows with zeros."""
        found = words.in_graph(texts)
        ids = self._table(found.texts)
        rows = tf.ragged.map_flat_values(self._rows, found.texts, ids)
        return rows.to_tensor(), found.starts, found.ends


class PieceTokens(tf.Module):
    """Converts texts to ids of pieces. See `Tokens`."""

    def __init__(self, vocabulary: pieces.Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._tokenizer = vocabulary.tokenizer  # for exports

    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Pads ids with the vocabulary's pad."""
        ids, starts, ends = self._vocabulary.in_graph_with_offsets(texts)
        return ids.to_tensor(self._vocabulary.pad), starts, ends


class QuestionServing(serving.StringServing):
    """Answers questions about contexts.

    Args:
        data: how contexts are cut into windows, and whether there may be no answer.
        model: maps `question` and `context` to logits.
        tokens: the tokenizer of the model's reader.
        pad: the id of padding.
        max_answer: the maximum number of tokens in an answer.
        threshold: as for `answer_spans.choose`. Used if there may be no answer.
    """

    def __init__(
        self,
        data: question_data.QuestionData,
        model: tf_keras.Model,
        tokens: Tokens,
        *,
        pad: int,
        max_answer: int,
        threshold: float,
    ) -> None:
        super().__init__(data, model)
        self._tokens = tokens
        self._pad = pad
        self._max_answer = max_answer
        self._threshold = threshold

    @tf.function(input_signature=(serving.STRINGS, serving.STRINGS))
    def serve(self, question: tf.Tensor, context: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Answers a batch of questions.

        Args:
            question: [batch].
            context: [batch], the text that each is about.

        Returns:
            `answer`, [batch] strings, empty for no answer, `start` and `end`, [batch] int64, its
            offsets in bytes in the context, and `score`, [batch] float32, the sum of the logits of
            its start and end.
        """
        asked = self._tokens(question)[0][:, : self.params.max_question]
        features, starts, ends = self._tokens(context)
        length = tf.cast(starts.row_lengths(), tf.int32)
        windows, used = self._windows(features, length)
        count = tf.shape(used)[1]
        shape = tf.concat([[tf.size(used)], tf.shape(windows)[2:]], 0)
        logits = self.inference_step(
            {"question": tf.repeat(asked, count, axis=0), "context": tf.reshape(windows, shape)}
        )
        span = answer_spans.best(logits, self._max_answer)
        score, start, end, none = (tf.reshape(part, tf.shape(used)) for part in span)
        score = tf.where(used, score, tf.float32.min)
        window = tf.argmax(score, axis=1, output_type=tf.int32)
        score, start, end = (tf.gather(x, window, batch_dims=1) for x in (score, start, end))
        answered = length > 0
        if self.params.unanswerable:
            lowest = tf.reduce_min(tf.where(used, none, tf.float32.max), axis=1)
            answered &= lowest - score <= self._threshold
        first = tf.cast(starts.row_starts(), tf.int32) + window * self.params.stride - 1
        nowhere = tf.size(starts.values)
        start, end = (
            tf.gather(tf.pad(offsets.values, [[0, 1]]), tf.where(answered, token, nowhere))
            for offsets, token in ((starts, first + start), (ends, first + end))
        )
        answer = tf.strings.substr(context, start, end - start, unit="BYTE")
        return {"answer": answer, "start": start, "end": end, "score": score}

    def _windows(self, features: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts contexts like `question_windows.cut`.

        Args:
            features: [batch, tokens(, columns)].
            length: [batch] the number of tokens in each context.

        Returns:
            [batch, windows, tokens(, columns)], with the same number of windows for each context,
            and whether the context needs them, [batch, windows] bool.
        """
        size, stride, most = self.params.max_context, self.params.stride, tf.shape(features)[1]
        number = tf.range(1 - tf.minimum(size - most, 0) // stride)
        place = number[:, tf.newaxis] * stride + tf.range(tf.clip_by_value(most, 1, size))
        missing = tf.reduce_max(place) + 1 - most
        padding = [[0, 0], [0, missing], *[[0, 0]] * (features.shape.rank - 2)]
        windows = tf.gather(tf.pad(features, padding, constant_values=self._pad), place, axis=1)
        used = (number - 1) * stride + size < length[:, tf.newaxis]
        return windows, used | (number == 0)
