"""A data set of TensorFlow Datasets, prepared in a format with random access."""

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from runner.data.sources.source import DamagedExampleError, Shard, Source
from runner.errors import ConfigError


class TfdsSource(Source):
    """The result of `tfds.data_source` for `name:split`, such as `mnist:train`.

    Args:
        name: The data set and the split.
        data_dir: The directory of the prepared data. None leaves the choice to TensorFlow Datasets.
    """

    def __init__(self, name: str, *, data_dir: str | None = None) -> None:
        import tensorflow_datasets as tfds

        dataset, _, split = name.partition(":")
        if not split:
            raise ConfigError(f"tfds:{name}: name a split, as in tfds:{name}:train")
        try:
            self._data = tfds.data_source(dataset, split=split, data_dir=data_dir, download=False)
        except Exception as error:  # it raises many kinds
            said = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"tfds:{name}: {said}; prepare it with tfds.builder(..., file_format="
                "'array_record').download_and_prepare()"
            ) from error
        features = self._data.dataset_info.features
        self._keys = [
            key
            for key, spec in features.get_tensor_spec().items()
            if isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
        ]
        self._spec = {key: features.get_tensor_spec()[key] for key in self._keys}
        print_of = hashlib.sha256(str(self._data.split_info).encode()).hexdigest()
        super().__init__(f"tfds:{name}", [Shard("", len(self._data), print_of)])

    @property
    def spec(self) -> Any:
        """Its features of a known shape."""
        return self._spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the features, decoded."""
        try:
            rows = self._data.__getitems__(indices.tolist())
        except (RuntimeError, ValueError, OSError) as error:
            said = str(error).splitlines()[0]
            raise DamagedExampleError(f"{self.name}: {said}", int(indices[0])) from error
        return {
            key: np.array([row[key] for row in rows], spec.dtype.as_numpy_dtype)
            for key, spec in self._spec.items()
        }
