"""Labelled images in host memory: one split of a source, accessed by index."""

import dataclasses
import fractions
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from runner.core import text
from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.files import cached
from tasks.images import image_folders, image_sources

_VERSION = 1  # version of cached images, to be raised when pixels change


@dataclasses.dataclass(frozen=True)
class Examples:
    """Images and labels in host memory.

    Attributes:
        images: [N, height, width, channels], uint8 or float32 as stored, or [N] paths of image
            files.
        labels: [N] int32.
        image_shape: height, width, channels.
        white: the pixel value that becomes 1.
        classes: the number of classes in the source, other splits included.
        class_names: the names of all classes in order, if the source has them.
        keys: [N] the images' names: paths in the source for files, otherwise indices.
    """

    images: tf.Tensor
    labels: tf.Tensor
    image_shape: tuple[int, ...]
    white: float
    classes: int
    class_names: tuple[str, ...]
    keys: np.ndarray


def read(source: image_sources.Source) -> Examples:
    """Reads the source and keeps the configured split, as tensors in host memory.

    Raises:
        ConfigError: the source is incomplete or invalid. The message describes the problem.
    """
    stored = image_sources.reader(source).read()
    index = _chosen(stored, source)
    images = _prepared(stored, source.cache_folder)
    with tf.device("cpu:0"):  # the input pipeline runs there
        return Examples(
            images=tf.constant(images[index]),
            labels=tf.constant(stored.labels[index]),
            image_shape=stored.image_shape,
            white=stored.white,
            classes=stored.classes,
            class_names=stored.class_names,
            keys=_keys(stored.images, index, source),
        )


def with_classes(examples: Examples, names: tuple[str, ...], where: str) -> Examples:
    """Returns examples with labels that number these classes.

    A directory without images of a class has no number for it, so that its labels would differ.

    Args:
        examples: They are returned as they are if their source does not name the classes.
        names: The names of all classes in order, or () if unknown.
        where: Their source, for the message.

    Raises:
        ConfigError: their source has other classes.
    """
    if not names or not examples.class_names or examples.class_names == names:
        return examples
    if unknown := [each for each in examples.class_names if each not in names]:
        raise ConfigError(
            f"{where}: the training data have no class {text.some(unknown)}; their classes are "
            f"{text.some(list(names))}"
        )
    numbers = np.array([names.index(each) for each in examples.class_names], np.int32)
    with tf.device("cpu:0"):
        labels = tf.constant(numbers[examples.labels.numpy()])
    return dataclasses.replace(examples, labels=labels, classes=len(names), class_names=names)


def count(source: image_sources.Source) -> int:
    """The number of examples in the configured split. Raises the same errors as `read`."""
    found = image_sources.reader(source)
    if source.fold_group:
        return len(_chosen(found.read(), source))
    size = found.count()
    return source.side.count(size) if source.side else len(members(size, source))


def _prepared(stored: image_sources.Stored, cache_folder: str) -> np.ndarray:
    """The images. Files are replaced by their pixels if there is a cache."""
    if not cache_folder or stored.images.ndim > 1:
        return stored.images
    arrays = cached.cached(
        cache_folder,
        "images",
        files=[Path(path) for path in stored.images],
        settings=list(stored.image_shape),
        version=_VERSION,
        make=lambda: {"images": image_folders.load_all(stored.images, stored.image_shape)},
    )
    return arrays["images"]


def _chosen(stored: image_sources.Stored, source: image_sources.Source) -> np.ndarray:
    """The indices of the source's selected examples, in order."""
    size = len(stored.labels)
    if source.side is None:
        return members(size, source)
    return source.side.members(size, labels=stored.labels, groups=stored.groups)


def _keys(images: np.ndarray, index: np.ndarray, source: image_sources.Source) -> np.ndarray:
    if images.ndim > 1:
        return index
    folder = data_copies.local(source.input_path, "ImageData.input_path")
    return np.array([os.path.relpath(path, folder) for path in images[index]], object)


@tf.autograph.experimental.do_not_convert
def load(examples: Examples, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The float32 images (white is 1) and the labels at `index`, [batch] int64."""
    images = tf.gather(examples.images, index)
    if images.dtype == tf.string:
        images = image_folders.decode(images, examples.image_shape)
    return tf.cast(images, tf.float32) / examples.white, tf.gather(examples.labels, index)


def members(size: int, source: image_sources.Source) -> np.ndarray:
    """The indices of a split's examples, in order."""
    # All NumPy versions give the same raw output of a bit generator, but shuffles may change.
    order = np.argsort(np.random.Philox(key=0).random_raw(size), kind="stable")
    # Use the fraction as written: 0.29 of 100 is 29, not 28.
    held_out = int(size * fractions.Fraction(str(source.held_out)))
    first, last = {"all": (0, size), "validation": (0, held_out), "train": (held_out, size)}[
        source.split
    ]
    return np.sort(order[first:last])
