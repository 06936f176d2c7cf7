"""A data set of TensorFlow Datasets, prepared in a format with random access."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner.core import console
from runner.data.sources.source import DamagedExampleError, Shard, Source, first_damaged
from runner.errors import ConfigError

_DAMAGE = (RuntimeError, ValueError, OSError)


class TfdsSource(Source):
    """The result of `tfds.data_source` for `name:split`, such as `mnist:train`.

    It has the features of a fixed shape. Images that differ in size are given as encoded files.

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
            info = tfds.builder(dataset, data_dir=data_dir).info
            encoded = [
                key
                for key, each in info.features.items()
                if isinstance(each, tfds.features.Image) and None in each.shape
            ]
            self._data = tfds.data_source(
                dataset,
                split=split,
                data_dir=data_dir,
                download=False,
                decoders={key: tfds.decode.SkipDecoding() for key in encoded},
            )
        except Exception as error:  # it raises many kinds
            said = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"tfds:{name}: {said}; prepare it with tfds.builder(..., file_format="
                "'array_record').download_and_prepare()"
            ) from error
        specs = info.features.get_tensor_spec()
        self._spec = _fixed({**specs, **dict.fromkeys(encoded, tf.TensorSpec([], tf.string))})
        if others := sorted(specs.keys() - self._spec.keys()):
            console.say(
                f"tfds:{name}: {', '.join(others)} left out, because the feature is nested, or its "
                "shape differs between examples"
            )
        content = f"{info.full_name} {_parts(info.splits[split].file_instructions)}"
        digest = hashlib.sha256(content.encode()).hexdigest()
        super().__init__(f"tfds:{name}", [Shard("", len(self._data), digest)])

    @property
    def spec(self) -> Any:
        """Its features of a fixed shape."""
        return self._spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the features, decoded."""

        def read(*wanted: int) -> Any:
            return self._data.__getitems__(wanted)

        wanted = indices.tolist()
        try:
            rows = read(*wanted)
        except _DAMAGE as error:
            bad = wanted[first_damaged(read, wanted, _DAMAGE)]
            said = f"{self.name}, example {bad:,}: {str(error).splitlines()[0]}"
            raise DamagedExampleError(said, bad) from error
        return {
            key: np.array([row[key] for row in rows], spec.dtype.as_numpy_dtype)
            for key, spec in self._spec.items()
        }


def _fixed(specs: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {
        key: each
        for key, each in specs.items()
        if isinstance(each, tf.TensorSpec) and each.shape.is_fully_defined()
    }


def _parts(instructions: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns the parts of files that a split consists of, wherever the files are."""
    return [
        (Path(each.filename).name, each.skip, each.take, each.examples_in_shard)
        for each in instructions
    ]
