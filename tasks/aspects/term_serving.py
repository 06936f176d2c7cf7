"""A trained model that extracts aspect terms from strings."""

from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg

from tasks.aspects import aspect_features, fast_lcf_atepc, term_tags
from tasks.text import serving


class TermServing(serving.StringServing):
    """Maps sentences to their aspect terms and the polarity towards each.

    Args:
        params: the task's configuration.
        model: the result of `fast_lcf_atepc.build`.
        reader: converts strings to its features.
        polarities: the names of the classes.
    """

    def __init__(
        self,
        params: cfg.TaskConfig,
        model: tf_keras.Model,
        reader: fast_lcf_atepc.TermReader,
        polarities: Sequence[str],
    ) -> None:
        super().__init__(params, model)
        self._reader = reader
        self._polarities = tf.constant(list(polarities))

    @tf.function(input_signature=(serving.STRINGS,))
    def serve(self, sentence: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Extracts the terms of a batch. The pieces of a sentence beyond the window are ignored.

        Args:
            sentence: [batch].

        Returns:
            For each sentence and each of its terms, in order: `term` and `polarity`, [batch, terms]
            strings, padded with '', `start` and `end`, [batch, terms] int32 in UTF-8 bytes, padded
            with -1, and `probabilities`, [batch, terms, polarities]. Also `polarities`, the names
            of all classes, in the order of the probabilities.
        """
        reader = self._reader
        most = reader.longest - 2  # [CLS] and [SEP]
        ids, starts, ends = (
            part[:, :most] for part in reader.pieces.in_graph_with_offsets(sentence)
        )
        nothing = ids[:, :0]
        features = reader.assemble(nothing, nothing, ids)
        logits = self.inference_step(features)[fast_lcf_atepc.TAGS][:, 1:-1]
        width = tf.shape(logits)[1]
        known = tf.sequence_mask(ids.row_lengths(), width)
        tags = tf.argmax(logits, axis=-1, output_type=tf.int32)
        begins, lasts = term_tags.spans(tf.where(known, tags, term_tags.IGNORED))

        found = tf.where(begins)  # [terms, 2]: sentence, first piece
        rows, first = tf.cast(found[:, 0], tf.int32), tf.cast(found[:, 1], tf.int32)
        last = tf.gather_nd(lasts, found)
        each = {name: tf.gather(part, rows) for name, part in features.items()}
        each[aspect_features.ASPECT] = tf.stack([first, last + 1], axis=1) + 1  # after [CLS]
        polarity = self.inference_step(each)[fast_lcf_atepc.POLARITY]
        start = tf.cast(tf.gather_nd(starts.to_tensor(shape=[None, None]), found), tf.int32)
        stop = tf.stack([rows, last], axis=1)
        end = tf.cast(tf.gather_nd(ends.to_tensor(shape=[None, None]), stop), tf.int32)
        terms = tf.strings.substr(tf.gather(sentence, rows), start, end - start)
        probabilities = tf.nn.softmax(polarity)
        names = tf.gather(self._polarities, tf.argmax(probabilities, axis=-1))

        def of_sentences(values: tf.Tensor) -> tf.RaggedTensor:
            count = tf.shape(sentence, tf.int64)[0]
            return tf.RaggedTensor.from_value_rowids(values, found[:, 0], count)

        return {
            "term": of_sentences(terms).to_tensor(""),
            "polarity": of_sentences(names).to_tensor(""),
            "start": of_sentences(start).to_tensor(-1),
            "end": of_sentences(end).to_tensor(-1),
            "probabilities": of_sentences(probabilities).to_tensor(0.0),
            "polarities": self._polarities,
        }
