"""Sources of labelled images in any format: their size and their content."""

import dataclasses
import functools
import gzip
import importlib.util
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from runner import inputs
from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.images import cifar_files, corrupted_files, image_folders


class Source(NamedTuple):
    """Identifies examples by fields of `ImageData`. Equal sources hold equal examples."""

    input_path: str = ""
    subset: str = ""
    image_size: tuple[int, ...] = ()
    tfds_name: str = ""
    tfds_split: str = ""
    tfds_data_dir: str = ""
    split: str = "all"
    held_out: float = 0.0
    side: inputs.Fold | None = None
    fold_group: str = ""
    cache_folder: str = ""

    def __str__(self) -> str:
        if self.tfds_name:
            return f"{self.tfds_name}:{self.tfds_split}"
        if self.input_path and self.subset:
            return f"{self.input_path} ({self.subset})"
        return self.input_path or "the digits data set"


@dataclasses.dataclass(frozen=True)
class Stored:
    """The whole content of a source, all splits together.

    Attributes:
        images: [N, height, width, channels], uint8 or float32, or the [N] paths of image files.
        labels: [N] int32, from 0.
        image_shape: height, width, channels.
        white: the pixel value that becomes 1.
        classes: the number of classes.
        class_names: the names of all classes in order. Empty if unknown.
        groups: [N] the array named by `Source.fold_group`.
    """

    images: np.ndarray
    labels: np.ndarray
    image_shape: tuple[int, ...]
    white: float
    classes: int
    class_names: tuple[str, ...] = ()
    groups: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads a source. Both functions raise ConfigError if it is incomplete or invalid."""

    count: Callable[[], int]
    read: Callable[[], Stored]


def reader(source: Source) -> Reader:
    """The reader for the source's format.

    Raises:
        ConfigError: the source does not exist, a field has no effect on it, or a required field is
            missing.
    """
    path = data_copies.local(source.input_path, "ImageData.input_path")
    if not path.exists():
        raise ConfigError(
            f"ImageData.input_path: there is no file or directory {path}"
            " (runner-prepare-cifar downloads CIFAR)"
        )
    if source.input_path and cifar_files.is_here(path):
        _expect(source, "subset")
        if source.subset not in cifar_files.COUNTS:
            raise ConfigError(f"{source} needs ImageData.subset: 'train' or 'test'")
        return Reader(
            lambda: cifar_files.COUNTS[source.subset],
            functools.partial(_read_cifar, path, source.subset),
        )
    if source.input_path and corrupted_files.is_here(path):
        _expect(source, "subset")
        return Reader(
            lambda: corrupted_files.count(path),
            functools.partial(_read_corrupted, path, source.subset),
        )
    if source.input_path and path.is_dir():
        _expect(source, "image_size", "cache_folder")
        return Reader(
            lambda: len(image_folders.scan(path).labels),
            functools.partial(_read_folder, path, source.image_size),
        )
    if source.input_path:
        _expect(source, "fold_group")
        return Reader(
            lambda: len(_load_npz(path, "labels")["labels"]),
            functools.partial(_read_npz, path, source.fold_group),
        )
    _expect(source)
    read = functools.partial(_read_tfds, source) if source.tfds_name else _read_digits
    return Reader(lambda: len(read().labels), read)


def _expect(source: Source, *fields: str) -> None:
    for field, where in {
        "subset": "CIFAR's binary distribution or CIFAR-10-C",
        "image_size": "a directory of images by class",
        "fold_group": "an .npz file, in which it names an array",
    }.items():
        if field not in fields and (value := getattr(source, field)):
            raise ConfigError(f"ImageData.{field}={value!r} has no effect: {source} is not {where}")


def _read_cifar(path: Path, subset: str) -> Stored:
    found = cifar_files.read(path, subset)
    return Stored(
        found.images, found.labels, found.images.shape[1:], 255.0, found.classes, found.names
    )


def _read_corrupted(path: Path, subset: str) -> Stored:
    return _checked(*corrupted_files.read(path, subset), f"{path} ({subset})")


def _read_folder(path: Path, image_size: tuple[int, ...]) -> Stored:
    found = image_folders.scan(path)
    shape = (*image_size, 3) if image_size else image_folders.common_shape(found.paths)
    return Stored(found.paths, found.labels, shape, 255.0, len(found.names), found.names)


def _read_digits() -> Stored:
    """Reads the UCI digits from scikit-learn's data file, because importing it would be slow."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError(
            "the digits data set is part of scikit-learn, which is not installed:"
            " run `pip install scikit-learn`, or set ImageData.input_path or tfds_name"
        )
    with gzip.open(Path(package.origin).parent / "datasets/data/digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return _checked(table[:, :-1].reshape(-1, 8, 8), table[:, -1], "the digits", white=16.0)


def _read_npz(path: Path, group: str) -> Stored:
    more = [group] if group else []
    arrays = _load_npz(path, "images", "labels", *more, optional="class_names")
    names = arrays.get("class_names", ())
    stored = _checked(arrays["images"], arrays["labels"], str(path), class_names=names)
    if not group:
        return stored
    if arrays[group].shape != stored.labels.shape:
        raise ConfigError(
            f"{path}: the array {group!r} is {list(arrays[group].shape)}; for ImageData.fold_group"
            f" it must have one value for each of {len(stored.labels)} images"
        )
    return dataclasses.replace(stored, groups=arrays[group])


def _load_npz(path: Path, *names: str, optional: str = "") -> dict[str, np.ndarray]:
    """Reads only the named arrays of a file."""
    if not zipfile.is_zipfile(path):
        raise ConfigError(f"{path} is not an .npz file, or is cut short")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in names if name not in file]
            if missing:
                raise ConfigError(
                    f"{path} has no array {' and no array '.join(missing)};"
                    f" it has {', '.join(file) or 'none'}"
                )
            # NumPy returns a member that is not an array as bytes.
            return {name: np.asarray(file[name]) for name in (*names, optional) if name in file}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _read_tfds(source: Source) -> Stored:
    import tensorflow_datasets as tfds

    if not source.tfds_split:
        raise ConfigError(f"tfds_name={source.tfds_name!r} needs a tfds_split, such as 'train'")
    try:
        builder = tfds.builder(source.tfds_name, data_dir=source.tfds_data_dir or None)
        builder.download_and_prepare()
        examples = builder.as_dataset(split=source.tfds_split, as_supervised=True)
        images, labels = next(iter(tfds.as_numpy(examples.batch(max(len(examples), 1)))))
    except ValueError as error:  # no such dataset or split, or no (image, label) pairs
        raise ConfigError(f"{source}: {str(error).splitlines()[0]}") from error
    except tf.errors.InvalidArgumentError as error:
        raise ConfigError(f"{source}: the images must be of one size") from error
    label = builder.info.features[builder.info.supervised_keys[1]]
    return _checked(
        images,
        labels,
        str(source),
        classes=getattr(label, "num_classes", None),
        class_names=getattr(label, "names", None) or (),
    )


def _checked(
    images: np.ndarray,
    labels: np.ndarray,
    name: str,
    *,
    white: float | None = None,
    classes: int | None = None,
    class_names: Iterable[str] = (),
) -> Stored:
    """Validates a source's content. Raises ConfigError if it is invalid."""
    shape = list(images.shape)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    floating = np.issubdtype(images.dtype, np.floating)
    problem = None
    if images.ndim != 4 or not (floating or images.dtype == np.uint8):
        problem = (
            f"images are {images.dtype} {shape}; expected uint8 or floating point,"
            " [N, height, width, channels] or [N, height, width]"
        )
    elif labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        problem = f"labels are {labels.dtype} {list(labels.shape)}; expected whole numbers, [N]"
    elif len(images) != len(labels):
        problem = f"there are {len(images)} images but {len(labels)} labels"
    elif not len(images):
        problem = "there are no images"
    elif labels.min() < 0:
        problem = f"labels must start from 0; the lowest is {labels.min()}"
    if problem:
        raise ConfigError(f"{name}: {problem}")
    names = tuple(str(class_name) for class_name in class_names)
    return Stored(
        images.astype(np.float32) if floating else images,
        labels.astype(np.int32),
        images.shape[1:],
        white or (1.0 if floating else 255.0),
        classes or max(len(names), int(labels.max()) + 1),
        names,
    )
