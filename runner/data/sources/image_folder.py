"""Images in a directory for each class, as encoded files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner.data.sources.source import DamagedExampleError, Identity, Shard, Source
from runner.errors import ConfigError

IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
"""The file name extensions of images."""


class ImageFolder(Source):
    """Images of `<directory>/<class>/*`, or of a directory without classes.

    As in Keras, a class may have no image, and hidden directories are left out.

    Attributes:
        classes: The names of the classes, in the order of their numbers.
    """

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        if len(paths) != 1 or not paths[0].is_dir():
            raise ConfigError(f"{name}: images are read from one directory")
        root = paths[0]
        self._files = sorted(
            path
            for path in root.rglob("*")
            if path.suffix.lower() in IMAGES
            and path.is_file()
            and not any(part.startswith(".") for part in path.relative_to(root).parts[:-1])
        )
        parents = [path.relative_to(root).parts[0] for path in self._files]
        nested = [len(path.relative_to(root).parts) > 1 for path in self._files]
        used = {top for top, inside in zip(parents, nested, strict=True) if inside}
        folders = (path.name for path in root.iterdir() if path.is_dir())
        empty = {name for name in folders if not name.startswith(".")} - used
        self.classes = sorted(used | empty) if used else []
        if self.classes and not all(nested):
            stray = self._files[nested.index(False)]
            raise ConfigError(f"{stray} is in no directory of a class, others are")
        numbers = {top: number for number, top in enumerate(self.classes)}
        self._labels = np.array([numbers.get(top, 0) for top in parents], np.int64)
        digest = hashlib.sha256()
        for path in self._files:
            digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        if used and empty:
            digest.update(repr(sorted(empty)).encode())
        super().__init__(name, [Shard(str(root), len(self._files), digest.hexdigest())])

    @property
    def spec(self) -> Any:
        """The encoded image, and the number of its class."""
        return {"image": tf.TensorSpec([], tf.string), "label": tf.TensorSpec([], tf.int64)}

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the bytes of files, and labels."""
        images = np.empty(len(indices), object)
        for number, index in enumerate(indices.tolist()):
            try:
                images[number] = self._files[index].read_bytes()
            except OSError as error:
                raise DamagedExampleError(
                    f"{self._files[index]}: {error.strerror}", index
                ) from error
        return {"image": images, "label": self._labels[indices]}

    def identity(self, index: int) -> Identity:
        """Returns the identity of an example, which has a separate file."""
        return Identity(self.name, index, str(self._files[index]), 0)
