"""Finds the damaged image that ended a pipeline, since TensorFlow's decoders do not name files."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from runner.errors import ConfigError

_SAID = re.compile(
    r"jpeg::Uncompress failed|Unknown image file format|Invalid (JPEG|PNG|GIF|BMP|WebP) data"
    r"|Input is empty|Input size should match"
)


@contextlib.contextmanager
def damage_named(dataset: Any) -> Iterator[None]:
    """Makes the error name the image that TensorFlow cannot decode inside the context.

    Args:
        dataset: The dataset that is read inside. The images' paths are among its tensors.

    Raises:
        ConfigError: instead of TensorFlow's error, if a damaged file was found.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if not _SAID.search(error.message):
            raise
        for path in _paths(dataset):
            if damage := _damage(path):
                raise ConfigError(f"{path} is not an image, or is damaged: {damage}") from error
        raise


def _damage(path: str) -> str:
    try:
        tf.io.decode_image(tf.io.read_file(path), expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        found = _SAID.search(error.message)
        return found[0] if found else ""
    return ""


def _paths(dataset: Any) -> Iterator[str]:
    """Yields the files that strings in a dataset name, even if the dataset is distributed."""
    for name in ("_original_dataset", "host"):  # those of distributed datasets
        dataset = getattr(dataset, name, dataset)
    if not isinstance(dataset, tf.data.Dataset):
        return
    for tensor in getattr(dataset, "_tensors", ()):
        if tensor.dtype == tf.string and tensor.shape.rank == 1:
            yield from filter(os.path.isfile, map(os.fsdecode, tensor.numpy()))
    for part in dataset._inputs():
        yield from _paths(part)
