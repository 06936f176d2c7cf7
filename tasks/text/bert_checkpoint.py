"""Pretrained encoders, as official's tasks save them."""

import tensorflow as tf

from runner.errors import ConfigError

_WORDS = "layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE"


def check_vocabulary(checkpoint: str, size: int, vocab_file: str) -> None:
    """Refuses an encoder that was trained with another vocabulary.

    Args:
        checkpoint: `init_checkpoint`; where nothing is found there, nothing is said here.
        size: how many pieces the vocabulary has.
        vocab_file: where it is from.

    Raises:
        ConfigError: the encoder has vectors for another number of pieces.
    """
    path = tf.train.latest_checkpoint(checkpoint) or checkpoint
    if not tf.io.gfile.exists(f"{path}.index"):
        return
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    for name, shape in shapes.items():
        if name.endswith(_WORDS) and len(shape) == 2 and shape[0] != size:
            raise ConfigError(
                f"the vocabulary {vocab_file} has {size} pieces, but the encoder in {path} was"
                f" trained with {shape[0]}"
            )
