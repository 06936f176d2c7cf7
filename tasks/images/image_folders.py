"""Directories of images by class: root/<class>/<image>. Images are decoded when needed."""

import functools
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from runner.errors import ConfigError

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


class Folder(NamedTuple):
    """A directory's images: [N] paths and [N] int32 labels, by class, in alphabetical order."""

    paths: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]


def scan(root: Path) -> Folder:
    """Finds the images. Each directory is a class, and classes are numbered alphabetically.

    Hidden files, files without an image suffix, and nested directories are ignored.

    Raises:
        ConfigError: the directory does not exist, has no classes, or a class has no images.
    """
    if not root.is_dir():
        raise ConfigError(f"there is no directory {root}")
    names = sorted(entry.name for entry in os.scandir(root) if _is_class(entry))
    if not names:
        raise ConfigError(f"{root} has no subdirectories; expected one for each class")
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        files = sorted(entry.path for entry in os.scandir(root / name) if _is_image(entry))
        if not files:
            raise ConfigError(f"{root / name} has no images ({', '.join(_SUFFIXES)})")
        paths += files
        labels += [label] * len(files)
    return Folder(np.array(paths), np.array(labels, np.int32), tuple(names))


def common_shape(paths: np.ndarray) -> tuple[int, int, int]:
    """Height, width and 3 channels, from the headers of all images.

    Raises:
        ConfigError: a file is not an image, or the sizes differ.
    """
    first = _size(paths[0])
    for path in paths:
        if (size := _size(path)) != first:
            raise ConfigError(
                f"{path} is {size[0]}x{size[1]} pixels, but {paths[0]} is {first[0]}x{first[1]}:"
                " set ImageData.image_size"
            )
    return first[1], first[0], 3


def load(path: str | Path, height: int, width: int) -> np.ndarray:
    """Reads an image as [height, width, 3] uint8, scaled (bilinear) and center-cropped if needed.

    Raises:
        ConfigError: the file cannot be read as an image.
    """
    try:
        with Image.open(path) as image:
            image.draft("RGB", (width, height))  # a JPEG is decoded no larger than necessary
            pixels = image.convert("RGB")
            if pixels.size != (width, height):
                pixels = ImageOps.fit(pixels, (width, height), Image.Resampling.BILINEAR)
            return np.asarray(pixels)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def decode(paths: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """[batch] paths to [batch, height, width, 3] uint8. Errors name the damaged file."""
    # Uses Pillow, because TensorFlow's decoder does not name the damaged file.
    images = tf.numpy_function(
        functools.partial(load_all, shape=shape), [paths], tf.uint8, stateful=False
    )
    return tf.ensure_shape(images, [paths.shape[0], *shape])


def load_all(paths: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """[N] paths to [N, height, width, 3] uint8. Raises the same errors as `load`."""
    images = np.empty([len(paths), *shape], np.uint8)
    for image, path in zip(images, paths, strict=True):
        image[:] = load(os.fsdecode(path), *shape[:2])
    return images


def _size(path: str) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> ConfigError:
    what = "" if isinstance(error, Image.UnidentifiedImageError) else f": {error}"
    return ConfigError(f"{path} is not an image, or is damaged{what}")


def _is_class(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(_SUFFIXES) and not entry.name.startswith(".")
