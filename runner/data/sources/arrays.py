"""Arrays in files: memory-mapped NumPy files, and data sets of HDF5 files."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner.data.sources import files
from runner.data.sources.source import DamagedExampleError, Shard, Source, first_damaged
from runner.errors import ConfigError


class NumpyFiles(Source):
    """Arrays of equal length in `.npy` files. An example has a row of each array, by file name."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self._arrays = {path.stem: _mapped(path) for path in paths}
        self._spec = {path.stem: _spec(self._arrays[path.stem], str(path)) for path in paths}
        length = _length({str(path): self._arrays[path.stem] for path in paths})
        path = paths[0]
        prints = " ".join(files.fingerprint(path) for path in paths)
        super().__init__(name, [Shard(str(path), length, prints)])

    @property
    def spec(self) -> Any:
        """Each array by its file's name."""
        return self._spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows of each array."""
        return {key: _native(array[indices]) for key, array in self._arrays.items()}


class Hdf5(Source):
    """Data sets of equal length in an HDF5 file. An example has a row of each of them, by name."""

    def __init__(self, paths: Sequence[Path], name: str, *, keys: Sequence[str] = ()) -> None:
        import h5py  # it comes with TensorFlow

        self._lock, self._files = threading.Lock(), []
        shards, kept = [], None
        for path in paths:
            files.check(path)
            try:
                file = h5py.File(path, "r")
            except OSError as error:
                raise ConfigError(f"{path}: {error}") from error
            kept = kept or list(keys) or [k for k, v in file.items() if isinstance(v, h5py.Dataset)]
            if missing := [key for key in kept if key not in file]:
                raise ConfigError(f"{path}: there is no data set {missing[0]!r}")
            arrays = {key: file[key] for key in kept}
            self._files.append(arrays)
            for key in kept:
                where = f"{path}, {key!r}"
                ours, first = _spec(arrays[key], where), _spec(self._files[0][key], where)
                if ours != first:
                    raise ConfigError(
                        f"{where}: examples are {_shown(ours)}, but {_shown(first)} in {paths[0]}"
                    )
            shards.append(Shard(str(path), _length(arrays, str(path)), files.fingerprint(path)))
        if not kept:
            raise ConfigError(f"{name}: there are no data sets")
        first = self._files[0]
        self._spec = {key: _spec(first[key], name) for key in kept}
        chunks = [array.chunks[0] for array in first.values() if array.chunks]
        self.block = max(chunks, default=1)
        super().__init__(name, shards)

    @property
    def spec(self) -> Any:
        """Each data set by its name."""
        return self._spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows of each data set."""
        shards, places = self.places(indices)
        rows = {
            key: np.empty((len(indices), *spec.shape), spec.dtype.as_numpy_dtype)
            for key, spec in self._spec.items()
        }
        with self._lock:
            for shard in np.unique(shards):
                numbers = np.flatnonzero(shards == shard)
                wanted, inverse = np.unique(places[numbers], return_inverse=True)  # for h5py
                for key, array in self._files[shard].items():
                    try:
                        rows[key][numbers] = array[wanted][inverse]
                    except OSError as error:
                        bad = first_damaged(array.__getitem__, places[numbers].tolist(), OSError)
                        row, index = places[numbers[bad]], int(indices[numbers[bad]])
                        where = f"{self.shards[shard].path}, {key!r}, row {row:,}"
                        raise DamagedExampleError(f"{where}: {error}", index) from error
        return rows


def _mapped(path: Path) -> np.ndarray:
    files.check(path)
    try:
        array: np.ndarray = np.load(path, mmap_mode="r")
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return array


def _native(rows: np.ndarray) -> np.ndarray:
    """Returns rows as TensorFlow reads them: in this machine's byte order, and text as UTF-8."""
    if rows.dtype.kind == "U":
        encoded: np.ndarray = np.frompyfunc(str.encode, 1, 1)(rows)
        return encoded
    return np.ascontiguousarray(rows, rows.dtype.newbyteorder("="))


def _shown(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name}{spec.shape.as_list()}"


def _spec(array: Any, where: str) -> tf.TensorSpec:
    try:
        kind = tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
    except TypeError as error:
        raise ConfigError(
            f"{where}: its values are of the type {array.dtype}, which TensorFlow does not have"
        ) from error
    return tf.TensorSpec(array.shape[1:], kind)


def _length(arrays: Mapping[str, Any], where: str = "") -> int:
    """Returns the length that all arrays have."""
    lengths = {key: array.shape[0] if array.shape else 0 for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(f"{where or 'arrays'}: they differ in length: {lengths}")
    return next(iter(lengths.values()), 0)
