"""A trained aspect sentiment model that takes strings."""

from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg

from tasks.aspects import aspect_features, three_lines
from tasks.text import serving


class AspectServing(serving.StringServing):
    """Maps sentences, with `$T$` in place of the aspect, and aspects to polarities.

    Args:
        params: the task's configuration.
        model: maps the reader's features to logits.
        reader: converts strings to features.
        polarities: the names of the classes.
    """

    def __init__(
        self,
        params: cfg.TaskConfig,
        model: tf_keras.Model,
        reader: aspect_features.Reader,
        polarities: Sequence[str],
    ) -> None:
        super().__init__(params, model)
        self._reader = reader
        self._polarities = tf.constant(list(polarities))

    @tf.function(input_signature=(serving.STRINGS, serving.STRINGS))
    def serve(self, sentence: tf.Tensor, aspect: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Predicts the polarities of a batch.

        Args:
            sentence: [batch]. A sentence without `$T$` raises `InvalidArgumentError`. The first
                `$T$` is the aspect to classify, and others are only replaced by its words. Rows
                with the same sentence are neighbours, for a model that reads them.
            aspect: [batch], the texts that `$T$` replaces.

        Returns:
            `polarity`, [batch] strings, `probabilities`, [batch, polarities], and `polarities`, the
            names of all classes, in the order of the probabilities.
        """
        parts = tf.strings.split(sentence, three_lines.MARK)
        marked = tf.debugging.assert_greater(
            parts.row_lengths(), tf.constant(1, tf.int64), "each sentence needs $T$"
        )
        with tf.control_dependencies([marked]):
            left, right = tf.unstack(parts[:, :2].to_tensor(shape=[None, 2]), axis=1)
        more = parts[:, 2:]
        between = tf.repeat(aspect, more.row_lengths())
        more = more.with_flat_values(tf.strings.join([between, more.flat_values]))
        right = tf.strings.join([right, tf.strings.reduce_join(more.to_tensor(""), axis=1)])
        ids = self._reader.encode(
            tf.concat([left, aspect, right], 0)
        )  # a single call, because its graph is large
        rows = tf.shape(sentence)[0]
        encoded = [ids[part * rows : (part + 1) * rows] for part in range(3)]
        if self._reader.reads_neighbours:
            whole = tf.strings.join([left, aspect, right])
            encoded.append(aspect_features.around(whole, *encoded[:2]))
        probabilities = tf.nn.softmax(self.inference_step(self._reader.features(*encoded)))
        return {
            "polarity": tf.gather(self._polarities, tf.argmax(probabilities, axis=-1)),
            "probabilities": probabilities,
            "polarities": self._polarities,
        }
