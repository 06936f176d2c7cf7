"""Model Garden's BERT encoder in our models, and its pretrained weights."""

import tensorflow as tf
import tf_keras
from official.nlp.configs import encoders

from runner.errors import ConfigError
from runner.internals import checkpoint_keys
from tasks.text import wordpiece

_WORDS = f"layer_with_weights-0/embeddings{checkpoint_keys.VALUE}"


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
    config: encoders.BertEncoderConfig, vocabulary: wordpiece.WordPiece, *, pooled: bool
) -> tf_keras.Model:
    """Builds Model Garden's encoder, with the vocabulary's size.

    Args:
        config: its other settings.
        vocabulary: the WordPiece vocabulary.
        pooled: whether the pooled output is used. If not, its layer is frozen, because each step
            would otherwise warn about a missing gradient.
    """
    bert = config.replace(vocab_size=vocabulary.size)
    made = encoders.build_encoder(encoders.EncoderConfig(type="bert", bert=bert))
    made.pooler_layer.trainable = pooled
    return made


def initializer(config: encoders.BertEncoderConfig) -> tf_keras.initializers.Initializer:
    """The encoder's initializer, for the layers on top of it."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def check_vocabulary(checkpoint: str, vocabulary: wordpiece.WordPiece) -> None:
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
