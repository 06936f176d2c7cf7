"""Model Garden's encoders in our models, and their pretrained weights.

BERT, and of the same form ELECTRA (Clark et al., 2020), ALBERT (Lan et al., 2020) and MobileBERT
(Sun et al., 2020).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tf_keras
from official.nlp.configs import encoders
from official.nlp.modeling import networks

from runner.errors import ConfigError
from runner.internals import checkpoint_keys
from tasks.text import pieces

_WORDS = tuple(
    f"layer_with_weights-0/{name}embeddings{checkpoint_keys.VALUE}"
    for name in ("", "word_embedding/")
)

EncoderConfig: TypeAlias = (
    encoders.BertEncoderConfig | encoders.AlbertEncoderConfig | encoders.MobileBertEncoderConfig
)


class Sizes(NamedTuple):
    """The settings that all encoders have under one name or another.

    Attributes:
        hidden: the units of the output.
        heads: the number of attention heads.
        positions: the maximum number of pieces.
        dropout: the dropout rate in hidden layers.
        attention_dropout: the dropout rate of attention weights.
    """

    hidden: int
    heads: int
    positions: int
    dropout: float
    attention_dropout: float


def sizes(config: EncoderConfig) -> Sizes:
    """The settings of an encoder."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    if isinstance(config, encoders.MobileBertEncoderConfig):
        rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        # `encode` adds a column.
        return Sizes(hidden, heads, config.max_sequence_length - 1, *rates)
    rates = config.dropout_rate, config.attention_dropout_rate
    return Sizes(hidden, heads, config.max_position_embeddings, *rates)


class BertModel(tf_keras.Model):
    """A functional model whose encoder can be loaded from a pretrained checkpoint."""

    def __init__(
        self,
        inputs: dict[str, tf.Tensor],
        outputs: tf.Tensor,
        encoder: tf_keras.Model,
        *,
        name: str,
    ) -> None:
        super().__init__(inputs, outputs, name=name)
        self._encoder = encoder

    @property
    def checkpoint_items(self) -> dict[str, tf_keras.Model]:
        """The possible contents of `init_checkpoint`, by Model Garden's names."""
        return {"encoder": self._encoder}


def encoder(
    config: EncoderConfig, vocabulary: pieces.Vocabulary, *, pooled: bool
) -> tf_keras.Model:
    """Builds Model Garden's encoder, with the vocabulary's size.

    Args:
        config: its other settings. ELECTRA is a `BertEncoderConfig`, often with `embedding_size`.
        vocabulary: the vocabulary.
        pooled: whether the pooled output is used. If not, its layer is frozen, because each step
            would otherwise warn about a missing gradient.

    Raises:
        ConfigError: `config` is not one of these encoders.
    """
    options: dict[str, Any]
    match config:
        case encoders.BertEncoderConfig():
            options = {"type": "bert", "bert": config.replace(vocab_size=vocabulary.size)}
        case encoders.AlbertEncoderConfig():
            options = {"type": "albert", "albert": config.replace(vocab_size=vocabulary.size)}
        case encoders.MobileBertEncoderConfig():
            sized = config.replace(word_vocab_size=vocabulary.size)
            options = {"type": "mobilebert", "mobilebert": sized}
        case _:
            raise ConfigError(
                f"encoder is a {type(config).__name__}; expected BertEncoderConfig (also for"
                " ELECTRA), AlbertEncoderConfig or MobileBertEncoderConfig"
            )
    made = encoders.build_encoder(encoders.EncoderConfig(**options))
    for layer in made.layers:
        if layer.name.startswith("pooler"):
            layer.trainable = pooled
    return made


def encode(
    encoder: tf_keras.Model, features: Mapping[str, tf.Tensor], pad: int
) -> dict[str, tf.Tensor]:
    """The encoder's output for each piece, and for each row.

    MobileBERT reads each piece together with the next one, even with padding. A further column of
    padding makes the longest row of a batch like the others.

    Args:
        encoder: the result of `encoder`.
        features: `input_word_ids`, `input_mask` and `input_type_ids`, each [batch, pieces] int32.
            Others are ignored.
        pad: the id of padding.

    Returns:
        `sequence_output` [batch, pieces, units] and `pooled_output` [batch, units].
    """
    read = {name: each for name, each in features.items() if name.startswith("input_")}
    if not isinstance(encoder, networks.MobileBERTEncoder):
        return encoder(read)
    column = [[0, 0], [0, 1]]
    padded = {
        name: tf.pad(each, column, constant_values=pad if name == "input_word_ids" else 0)
        for name, each in read.items()
    }
    found = encoder(padded)
    return {
        "sequence_output": found["sequence_output"][:, :-1],
        "pooled_output": found["pooled_output"],
    }


def initializer(config: EncoderConfig) -> tf_keras.initializers.Initializer:
    """The encoder's initializer, for the layers on top of it."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def check_vocabulary(checkpoint: str, vocabulary: pieces.Vocabulary) -> None:
    """Rejects an encoder that was trained with another vocabulary.

    Args:
        checkpoint: `init_checkpoint`. This function does not report a missing one.
        vocabulary: the model's vocabulary.

    Raises:
        ConfigError: the encoder was trained with another number of pieces.
    """
    path = tf.train.latest_checkpoint(checkpoint) if checkpoint else ""
    path = path or checkpoint.removesuffix(".index")
    if not tf.io.gfile.exists(f"{path}.index"):
        return
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    for name, shape in shapes.items():
        if name.endswith(_WORDS) and len(shape) == 2 and shape[0] != vocabulary.size:
            raise ConfigError(
                f"the vocabulary {vocabulary.name} has {vocabulary.size} pieces, but the encoder in"
                f" {path} was trained with {shape[0]}"
            )
