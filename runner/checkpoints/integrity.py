"""Checks whether a checkpoint is intact, by reading all of it."""

from pathlib import Path

import tensorflow as tf

from runner.checkpoints import checkpoint_files
from runner.internals import checkpoint_keys

READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
"""TensorFlow's errors for an unreadable checkpoint. IndexError means a file is cut short."""


def damage(path: Path) -> str | None:
    """Describes how the checkpoint at `path` is damaged, or returns None if it is intact.

    Every tensor is read once, and TensorFlow verifies the checksums of tensors and of the index.
    Tensors of type variant, which only other programs write, are not read, because a damaged one
    would end the process.
    """
    missing = _missing(path)
    if missing:
        return missing
    place = "its index"
    try:
        reader = checkpoint_files.open_reader(path)
        for name, dtype in reader.get_variable_to_dtype_map().items():
            place = name.removesuffix(checkpoint_keys.VALUE)
            if dtype != tf.variant:
                reader.get_tensor(name)
    except READ_ERRORS as error:
        return f"{place}: {checkpoint_files.reason(error)}"
    return None


def _missing(path: Path) -> str | None:
    """Describes which of the checkpoint's files are missing."""
    if not checkpoint_files.exists(path):
        return "its index is missing"
    data = checkpoint_files.data(path)
    if not data:
        return "its data files are missing"
    total = int(data[0].name[-5:])
    return f"{total - len(data)} of its {total} data files missing" if len(data) < total else None
