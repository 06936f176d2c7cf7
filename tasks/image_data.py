"""Labelled images in memory: an .npz file, TensorFlow Datasets, or the embedded digits."""

import dataclasses
import gzip
import importlib.util
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from runner import inputs
from runner.errors import ConfigError
from tasks import augmentation

_SPLITS = ("train", "validation", "all")


@dataclasses.dataclass
class ImageData(inputs.DataConfig):
    """Which images, and how they are read.

    `is_training` has to be given. The source is one of three:

    - `input_path`, an .npz file with the arrays `images` ([N, height, width, channels] or [N,
      height, width]; uint8, or floating point, which is used as it is) and `labels` ([N], whole
      numbers from 0);
    - `tfds_name` with `tfds_split`, and `tfds_data_dir` where the data are not in its usual place;
    - with neither, the 1,797 handwritten digits of 8x8 pixels that ship inside scikit-learn.

    Attributes:
        split: which part of the source: 'all', 'validation' (a fifth of it, picked at random once
            and for all, whatever the run's seed) or 'train' (the rest). Empty: a file and a TFDS
            split are used whole, and of the digits the part that `is_training` asks for.
        augment: random changes of training images.
    """

    split: str = ""
    augment: augmentation.AugmentConfig = dataclasses.field(
        default_factory=augmentation.AugmentConfig
    )

    def size(self) -> int:
        """How many examples the chosen part of the source has; images in a file stay unread.

        Raises:
            ConfigError: as of `source_of` and `read`.
        """
        source = source_of(self)
        if source.input_path:
            (labels,) = _read_npz(Path(source.input_path), "labels")
        else:
            labels = (_read_tfds(source) if source.tfds_name else _read_digits()).labels
        return len(_members(labels.size, source.split))


class Source(NamedTuple):
    """Where examples come from; equal sources hold equal examples."""

    input_path: str
    tfds_name: str
    tfds_split: str
    tfds_data_dir: str
    split: str

    def __str__(self) -> str:
        if self.tfds_name:
            return f"{self.tfds_name}:{self.tfds_split}"
        return self.input_path or "the embedded digits"


@dataclasses.dataclass(frozen=True)
class Examples:
    """Images and labels in host memory.

    Attributes:
        images: [N, height, width, channels], uint8 or float32 as they were stored.
        labels: [N] int32.
        white: the pixel value that becomes 1.
        classes: how many there are in the source, other splits included.
    """

    images: tf.Tensor
    labels: tf.Tensor
    white: float
    classes: int


class _Stored(NamedTuple):
    """What a source holds, before it was checked."""

    images: np.ndarray
    labels: np.ndarray
    white: float | None = None
    classes: int | None = None


def source_of(config: ImageData) -> Source:
    """The source that a configuration asks for.

    Raises:
        ConfigError: no `is_training`, augmentation of evaluation data, two sources or none that
            could be read, an unknown split, or a field that has no effect.
    """
    _check(config)
    own_split = "train" if config.is_training else "validation"
    default = "all" if config.input_path or config.tfds_name else own_split
    return Source(
        config.input_path,
        config.tfds_name,
        config.tfds_split,
        config.tfds_data_dir,
        config.split or default,
    )


def read(source: Source) -> Examples:
    """Reads the source and keeps the split of it, as tensors in host memory.

    Raises:
        ConfigError: what is missing or wrong in the source; the message names it.
    """
    if source.input_path:
        images, labels = _read_npz(Path(source.input_path), "images", "labels")
        stored = _Stored(images, labels)
    elif source.tfds_name:
        stored = _read_tfds(source)
    else:
        stored = _read_digits()
    images, labels = _checked(stored, str(source))
    index = _members(len(labels), source.split)
    with tf.device("cpu:0"):  # where the input pipeline runs
        return Examples(
            images=tf.constant(images[index]),
            labels=tf.constant(labels[index]),
            white=stored.white or (255.0 if images.dtype == np.uint8 else 1.0),
            classes=stored.classes or int(labels.max()) + 1,
        )


def dataset(
    examples: Examples, config: ImageData, input_context: tf.distribute.InputContext | None = None
) -> tf.data.Dataset:
    """Batches of images, float32 with white as 1, and labels, int32: placed by step or in order."""
    size = len(examples.labels)

    def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = tf.cast(tf.gather(examples.images, index), tf.float32) / examples.white
        return images, tf.gather(examples.labels, index)

    def augment(
        batch: tuple[tf.Tensor, tf.Tensor], seeds: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = batch
        return augmentation.augment(images, seeds, config.augment), labels

    if not config.is_training:
        return inputs.in_order(size, load, config=config, input_context=input_context)
    return inputs.place(
        size,
        load,
        config=config,
        input_context=input_context,
        augment=augment if augmentation.is_active(config.augment) else None,
    )


def _check(config: ImageData) -> None:
    if config.is_training is None:
        raise ConfigError(
            "ImageData.is_training: say True for train_data, False for validation_data"
        )
    if augmentation.is_active(config.augment) and not config.is_training:
        raise ConfigError("ImageData.augment is for train_data: evaluation images stay as they are")
    for name, wanted in {"input_path": "one .npz file", "tfds_name": "one name"}.items():
        value = getattr(config, name)
        if not isinstance(value, str):
            raise ConfigError(f"ImageData.{name}={value!r}: expected {wanted}")
    if config.input_path and config.tfds_name:
        raise ConfigError(
            f"ImageData has both input_path={config.input_path!r} and"
            f" tfds_name={config.tfds_name!r}: give one"
        )
    if config.split not in ("", *_SPLITS):
        raise ConfigError(f"ImageData.split={config.split!r}: expected one of {', '.join(_SPLITS)}")
    inputs.refuse(
        config,
        ("tfds_as_supervised", "tfds_skip_decoding_feature"),
        "decoded images and their labels are always what is read",
    )
    inputs.refuse(config, ("num_examples",), "the images are counted")


def _members(size: int, split: str) -> np.ndarray:
    """Indices of a split's examples, in order."""
    # Raw output of a bit generator never changes between NumPy versions, as shuffles may.
    order = np.argsort(np.random.Philox(key=0).random_raw(size), kind="stable")
    held_out = size // 5
    first, last = {"all": (0, size), "validation": (0, held_out), "train": (held_out, size)}[split]
    return np.sort(order[first:last])


def _read_digits() -> _Stored:
    """The UCI digits, from the file inside scikit-learn; importing scikit-learn would be slow."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError(
            "the embedded digits ship inside scikit-learn, which is not installed:"
            " `pip install scikit-learn`, or give ImageData.input_path or tfds_name"
        )
    with gzip.open(Path(package.origin).parent / "datasets/data/digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return _Stored(table[:, :-1].reshape(-1, 8, 8), table[:, -1], white=16.0)


def _read_npz(path: Path, *names: str) -> list[np.ndarray]:
    """Some arrays of a file; the others stay unread."""
    if not path.is_file():
        raise ConfigError(f"ImageData.input_path: there is no file {path}")
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
            # A member that is no array is read as bytes.
            return [np.asarray(file[name]) for name in names]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _read_tfds(source: Source) -> _Stored:
    import tensorflow_datasets as tfds

    if not source.tfds_split:
        raise ConfigError(f"tfds_name={source.tfds_name!r} needs a tfds_split, such as 'train'")
    try:
        builder = tfds.builder(source.tfds_name, data_dir=source.tfds_data_dir or None)
        builder.download_and_prepare()
        examples = builder.as_dataset(split=source.tfds_split, as_supervised=True)
        images, labels = next(iter(tfds.as_numpy(examples.batch(max(len(examples), 1)))))
    except ValueError as error:  # no such data set, no such split, no pairs of image and label
        raise ConfigError(f"{source}: {str(error).splitlines()[0]}") from error
    except tf.errors.InvalidArgumentError as error:
        raise ConfigError(f"{source}: the images must be of one size") from error
    label = builder.info.features[builder.info.supervised_keys[1]]
    return _Stored(images, labels, classes=getattr(label, "num_classes", None))


def _checked(stored: _Stored, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, height, width, channels], uint8 or float32, and labels [N] int32."""
    images, labels = stored.images, stored.labels
    if images.ndim == 3:
        images = images[..., np.newaxis]
    floating = np.issubdtype(images.dtype, np.floating)
    problem = None
    if images.ndim != 4 or not (floating or images.dtype == np.uint8):
        problem = (
            f"images are {images.dtype} {list(stored.images.shape)}; expected uint8 or floating"
            " point, [N, height, width, channels] or [N, height, width]"
        )
    elif labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        problem = f"labels are {labels.dtype} {list(labels.shape)}; expected whole numbers, [N]"
    elif len(images) != len(labels):
        problem = f"there are {len(images)} images but {len(labels)} labels"
    elif not len(images):
        problem = "there are no images"
    elif labels.min() < 0:
        problem = f"labels go down to {labels.min()}; they count from 0"
    if problem:
        raise ConfigError(f"{name}: {problem}")
    return images.astype(np.float32) if floating else images, labels.astype(np.int32)
