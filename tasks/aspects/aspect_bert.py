"""BERT for aspect sentiment: on sentence-aspect pairs, and with a local context focus."""

import dataclasses

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config
from official.nlp.configs import encoders

from runner.errors import ConfigError
from tasks.aspects import aspect_features
from tasks.text import bert

_FOCUSES = {"cdw": ("cdw",), "cdm": ("cdm",), "fusion": ("cdm", "cdw")}


@dataclasses.dataclass
class BertConfig(base_config.Config):
    """BERT-SPC: a linear layer on the pooled [CLS] of the sentence-aspect pair.

    Song et al., "Attentional encoder network for targeted sentiment classification", 2019.

    Attributes:
        vocab_file: the WordPiece vocabulary, one piece per line, or a SentencePiece model
            (`.model`). Empty: the words of the data, for an encoder that is trained from scratch.
        lower_case: whether the vocabulary is lower-cased.
        encoder: Model Garden's settings: `BertEncoderConfig` (also for ELECTRA),
            `AlbertEncoderConfig` or `MobileBertEncoderConfig`. The size of the vocabulary is always
            taken from `vocab_file`.
        dropout: the dropout rate before the last layer, in [0, 1).
    """

    vocab_file: str = ""
    lower_case: bool = True
    encoder: bert.EncoderConfig = dataclasses.field(default_factory=encoders.BertEncoderConfig)
    dropout: float = 0.1


@dataclasses.dataclass
class LcfBertConfig(BertConfig):
    """LCF-BERT: also reads the sentence with words far from the aspect weighted down.

    Zeng et al., "LCF: a local context focus mechanism for aspect-based sentiment classification",
    2019. One encoder reads both the pair and the sentence alone.

    Attributes:
        focus: 'cdm' masks the features of pieces farther from the aspect than `distance`, 'cdw'
            reduces their weight with distance, and 'fusion' concatenates both.
        distance: the number of pieces, from the nearest piece of the aspect. (The paper's SRD
            threshold starts at the aspect's middle minus half its length, which is equal up to
            rounding.)
    """

    focus: str = "cdw"
    distance: int = 3


def build_base(
    config: BertConfig, reader: aspect_features.PairReader, classes: int
) -> bert.BertModel:
    """BERT-BASE, PyABSA's baseline. Arguments, result and errors are those of `build_spc`.

    A new layer pools [CLS], and pieces of the sentence and of the aspect have the same type id.
    """
    inputs, encoder = begin(config, reader, pooled=False)
    untold = {**inputs, "input_type_ids": tf.zeros_like(inputs["input_type_ids"])}
    first = bert.encode(encoder, untold, reader.pieces.pad)["sequence_output"][:, 0]
    pooled = dense(first, config.encoder, "head_pooler", activation="tanh")
    return classifier(inputs, pooled, encoder, config, classes)


def build_spc(
    config: BertConfig, reader: aspect_features.PairReader, classes: int
) -> bert.BertModel:
    """BERT-SPC, from the reader's features to float32 logits [batch, classes].

    Args:
        config: the sizes.
        reader: supplies the vocabulary and the window.
        classes: number of outputs.

    Raises:
        ConfigError: a value is out of range, or the encoder is too short for the window.
    """
    inputs, encoder = begin(config, reader, pooled=True)
    pooled = bert.encode(encoder, inputs, reader.pieces.pad)["pooled_output"]
    return classifier(inputs, pooled, encoder, config, classes)


def build_lcf(
    config: LcfBertConfig, reader: aspect_features.PairReader, classes: int
) -> bert.BertModel:
    """LCF-BERT. Arguments, result and errors are those of `build_spc`."""
    kinds = focuses(config)
    inputs, encoder = begin(config, reader, pooled=False)
    sentence = inputs["input_mask"] * (1 - inputs["input_type_ids"])
    pad = reader.pieces.pad
    both = bert.encode(encoder, inputs, pad)["sequence_output"]
    alone = bert.encode(encoder, {**inputs, "input_mask": sentence}, pad)["sequence_output"]
    local = [
        LocalFocus(kind, config.distance, name=f"head_{kind}")(
            alone, sentence=sentence, aspect=inputs[aspect_features.ASPECT]
        )
        for kind in kinds
    ]
    options = config.encoder
    x = dense(tf_keras.layers.Concatenate()([both, *local]), options, "head_join")
    x = tf_keras.layers.Dropout(bert.sizes(options).dropout)(x)
    x = attend(x, inputs["input_mask"], options, "head_attention")
    pooled = dense(x[:, 0], options, "head_pooler", activation="tanh")
    return classifier(inputs, pooled, encoder, config, classes)


def focuses(config: LcfBertConfig) -> tuple[str, ...]:
    """The kinds of `LocalFocus` that are concatenated.

    Raises:
        ConfigError: `focus` is unknown, or `distance` is negative.
    """
    kind = type(config).__name__
    if config.focus not in _FOCUSES:
        raise ConfigError(f"{kind}.focus={config.focus!r}: expected one of {', '.join(_FOCUSES)}")
    if config.distance < 0:
        raise ConfigError(f"{kind}.distance={config.distance}: must be 0 or more (pieces)")
    return _FOCUSES[config.focus]


class LocalFocus(tf_keras.layers.Layer):
    """Context dynamic masking ('cdm') or weighting ('cdw') of a sentence's features.

    If d is the distance from the aspect beyond the threshold and n is the sentence's length,
    features are multiplied by 1 if d is 0, and otherwise by 0 ('cdm') or by 1 - d/n ('cdw').

    Args:
        kind: 'cdm' or 'cdw'.
        threshold: the largest distance that is considered near.
    """

    def __init__(self, kind: str, threshold: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._kind = kind
        self._threshold = threshold

    def call(self, features: tf.Tensor, sentence: tf.Tensor, aspect: tf.Tensor) -> tf.Tensor:
        """Applies the mask or the weights.

        Args:
            features: [batch, length, units].
            sentence: [batch, length] int32, 1 in the sentence and 0 outside.
            aspect: [batch, 2] int32, the positions of its first piece and after its last.

        Returns:
            [batch, length, units], 0 outside the sentence.
        """
        far = aspect_features.distances(aspect, tf.shape(features)[1]) - self._threshold
        beyond = tf.cast(tf.maximum(far, 0), tf.float32)
        if self._kind == "cdm":
            weights = tf.cast(beyond == 0, tf.float32)
        else:
            length = tf.reduce_sum(sentence, axis=1, keepdims=True)
            weights = tf.maximum(0.0, 1 - beyond / tf.cast(length, tf.float32))
        weights *= tf.cast(sentence, tf.float32)
        return features * tf.cast(weights, features.dtype)[..., tf.newaxis]


def begin(
    config: BertConfig, reader: aspect_features.PairReader, *, pooled: bool
) -> tuple[aspect_features.Features, tf_keras.Model]:
    """The inputs and Model Garden's encoder.

    Raises:
        ConfigError: a value is out of range, or the encoder is too short for the window.
    """
    longest, most = reader.longest, bert.sizes(config.encoder).positions
    if longest > most:
        raise ConfigError(
            f"window={reader.window}: rows may have {longest} pieces, but the encoder reads"
            f" {most} (max_position_embeddings or max_sequence_length)"
        )
    if not 0 <= config.dropout < 1:
        raise ConfigError(
            f"{type(config).__name__}.dropout={config.dropout}: must be at least 0 and below 1"
        )
    names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in names}
    inputs[aspect_features.ASPECT] = tf_keras.Input([2], dtype=tf.int32, name="aspect")
    return inputs, bert.encoder(config.encoder, reader.pieces, pooled=pooled)


def classifier(
    inputs: aspect_features.Features,
    pooled: tf.Tensor,
    encoder: tf_keras.Model,
    config: BertConfig,
    classes: int,
) -> bert.BertModel:
    """The model from the inputs to float32 logits [batch, classes], computed from `pooled`."""
    return bert.BertModel(
        inputs, logits(pooled, config, classes, "head_logits"), encoder, name="bert"
    )


def logits(x: tf.Tensor, config: BertConfig, classes: int, name: str) -> tf.Tensor:
    """Applies dropout and a last layer. Returns float32 logits [..., classes]."""
    x = tf_keras.layers.Dropout(config.dropout)(x)
    return tf_keras.layers.Dense(
        classes,
        kernel_initializer=bert.initializer(config.encoder),
        dtype="float32",
        name=name,
    )(x)


def dense(
    x: tf.Tensor, encoder: bert.EncoderConfig, name: str, activation: str | None = None
) -> tf.Tensor:
    """Applies a dense layer of the encoder's size."""
    return tf_keras.layers.Dense(
        bert.sizes(encoder).hidden,
        activation=activation,
        kernel_initializer=bert.initializer(encoder),
        name=name,
    )(x)


def attend(x: tf.Tensor, mask: tf.Tensor, encoder: bert.EncoderConfig, name: str) -> tf.Tensor:
    """Applies self-attention like the encoder's, then tanh. `mask` [batch, length] is 1 or 0."""
    sizes = bert.sizes(encoder)
    attention = tf_keras.layers.MultiHeadAttention(
        sizes.heads,
        sizes.hidden // sizes.heads,
        dropout=sizes.attention_dropout,
        kernel_initializer=bert.initializer(encoder),
        name=name,
    )
    return tf.tanh(attention(x, x, attention_mask=mask[:, tf.newaxis]))
