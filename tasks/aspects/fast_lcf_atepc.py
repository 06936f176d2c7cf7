"""FAST-LCF-ATEPC: extracts aspect terms and classifies the polarity towards each.

Yang et al., "A multi-task learning model for Chinese-oriented aspect polarity classification and
aspect term extraction", 2021 (LCF-ATEPC), with PyABSA's single run of the encoder ("fast"). The
encoder reads the sentence alone, so that tags cannot depend on the aspect whose polarity is asked.
Each WordPiece has a tag. In PyABSA, only the first piece of a word has one.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.aspects import aspect_bert, aspect_features, term_tags
from tasks.text import bert

TAGS = "tags"
POLARITY = "polarity"


@dataclasses.dataclass
class FastLcfAtepcConfig(aspect_bert.LcfBertConfig):
    """FAST-LCF-ATEPC. All fields are those of LCF-BERT."""


class TermReader(aspect_features.PairReader):
    """Reads [CLS] sentence [SEP], with the features of `PairReader`."""

    @property
    def longest(self) -> int:
        """See `PairReader`."""
        return 3 * self.window + 2

    def assemble(
        self, left: tf.RaggedTensor, aspect: tf.RaggedTensor, right: tf.RaggedTensor
    ) -> aspect_features.Features:
        """See `aspect_features.Reader`."""
        cls, sep = self.special(left)
        ids = tf.concat([cls, left, aspect, right, sep], axis=1)
        return self.padded(ids, tf.zeros_like(ids), aspect_features.bounds(left, aspect))


def build(config: FastLcfAtepcConfig, reader: TermReader, classes: int) -> bert.BertModel:
    """Builds the model.

    Args:
        config: the sizes.
        reader: supplies the vocabulary and the window.
        classes: the number of polarities.

    Returns:
        A model from the reader's features to float32 logits: `tags` [batch, pieces, 3] for the
        sentence, and `polarity` [batch, classes] for the aspect.

    Raises:
        ConfigError: a value is out of range, or the encoder is too short for the window.
    """
    focuses = aspect_bert.focuses(config)
    inputs, encoder = aspect_bert.begin(config, reader, pooled=False)
    mask, options = inputs["input_mask"], config.encoder
    whole = bert.encode(encoder, inputs, reader.pieces.pad)["sequence_output"]
    local = [
        aspect_bert.LocalFocus(kind, config.distance, name=f"head_{kind}")(
            whole, sentence=mask, aspect=inputs[aspect_features.ASPECT]
        )
        for kind in focuses
    ]
    x = aspect_bert.dense(tf_keras.layers.Concatenate()([whole, *local]), options, "head_join")
    x = tf_keras.layers.Dropout(bert.sizes(options).dropout)(x)
    x = aspect_bert.attend(x, mask, options, "head_attention")
    pooled = aspect_bert.dense(x[:, 0], options, "head_pooler", activation="tanh")
    outputs = {
        TAGS: aspect_bert.logits(whole, config, term_tags.COUNT, "head_tags"),
        POLARITY: aspect_bert.logits(pooled, config, classes, "head_polarity"),
    }
    return bert.BertModel(inputs, outputs, encoder, name="fast_lcf_atepc")
