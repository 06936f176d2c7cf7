"""The parts of a model that another task starts from: a BERT encoder, a backbone."""

from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from runner.errors import ConfigError

NAME = "pretrained"


def write(model: tf_keras.Model, folder: Path, step: int) -> dict[str, Any]:
    """Saves the model's `checkpoint_items` as a checkpoint for `init_checkpoint`.

    Args:
        model: Has the weights.
        folder: A new directory for the checkpoint.
        step: The step of the weights.

    Returns:
        Facts for JSON: `items`, by Model Garden's names, and the number of their weights.

    Raises:
        ConfigError: the model does not name any parts.
    """
    items = getattr(model, "checkpoint_items", None)
    if not items:
        raise ConfigError(
            "ExportConfig.formats: 'pretrained' is for models that name the parts that other tasks "
            "start from (checkpoint_items), such as a BERT's encoder; this model names none"
        )
    checkpoint = tf.train.Checkpoint(**items)
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=None)
    path = manager.save(checkpoint_number=step)
    checkpoint.read(path).assert_existing_objects_matched()
    weights = {id(each): each for item in items.values() for each in item.variables}.values()
    return {
        "items": sorted(items),
        "parameters": sum(int(each.shape.num_elements()) for each in weights),
    }
