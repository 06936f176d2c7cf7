"""Labelled images for training and evaluation, as configured."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from runner import inputs
from runner.errors import ConfigError
from tasks.images import augmentation, corruption, image_examples, image_sources
from tasks.images.corruption import (
    CorruptionConfig,  # in the class below, `corruption` is a field
)

_SPLITS = ("train", "validation", "all")
_HELD_OUT = 0.2


@dataclasses.dataclass
class ImageData(inputs.FoldedData):
    """The images to read, and their processing.

    `is_training` must be set. `input_path` is one of

    - an .npz file with the arrays `images` ([N, height, width, channels] or [N, height, width],
      uint8 or floating point, which is not rescaled), `labels` ([N], integers from 0) and
      optionally `class_names`
    - the directory of CIFAR-10's or CIFAR-100's binary version, or its .tar.gz
    - the directory of CIFAR-10-C or CIFAR-100-C, with `labels.npy`
    - a directory with one subdirectory of images per class. Classes are numbered in alphabetical
      order, and images have 3 channels.

    Alternatively, set `tfds_name` and `tfds_split` (and `tfds_data_dir`, if the data are not in
    the default directory). With neither, the data are the 1,797 handwritten digits of 8x8 pixels
    that scikit-learn includes. All images are held in memory, except image files in a directory.
    These are decoded each time they are needed (`runner-prepare-images` packs them into an .npz).

    Attributes:
        subset: 'train' or 'test', for CIFAR's binary version. For CIFAR-10-C and CIFAR-100-C, a
            corruption and its severity from 1 to 5, such as 'fog_3'.
        image_size: the height and width to which the images of a directory are scaled (to cover it)
            and cropped (around the middle). Empty: all images have the same size.
        split: which part of the source: 'all', 'validation' (a fixed random choice, independent of
            the run's seed) or 'train' (the rest). Empty: for the digits, the part that matches
            `is_training`, and all of any other source.
        held_out: the fraction of the source in 'validation'.
        fold_group: the array of an .npz whose equal values mark images that stay together in
            `folds` (such as those of one patient). Folds replace `split` and `held_out`, and are
            stratified by label.
        cache_folder: a directory that caches the decoded and scaled image files until one of them
            changes. The images are then held in memory. Empty: no cache.
        augment: random changes to training images.
        corruption: how to corrupt every image of an evaluation.
        out_of_distribution: more images for an evaluation. They come last and belong to no class,
            so their labels are -1. Set only its fields that specify the source of the images.
    """

    SOURCE_FIELDS = (*inputs.FoldedData.SOURCE_FIELDS, "subset", "fold_group")

    subset: str = ""
    image_size: tuple[int, ...] = ()
    split: str = ""
    held_out: float = _HELD_OUT
    fold_group: str = ""
    cache_folder: str = ""
    augment: augmentation.AugmentConfig = dataclasses.field(
        default_factory=augmentation.AugmentConfig
    )
    corruption: CorruptionConfig | None = None
    out_of_distribution: "ImageData | None" = None

    def once(self) -> "ImageData":
        """The same images for one pass in order, without augmentation."""
        unchanged = augmentation.AugmentConfig()
        split = self.split if self.folds else source_of(self).split
        return super().once().replace(split=split, augment=unchanged)

    def check(self) -> None:
        """Raises ConfigError like `source_of`. Reads no data."""
        source_of(self)

    def size(self) -> int:
        """The number of examples. Does not read image files.

        Raises:
            ConfigError: raised by `source_of` or `image_examples.read`.
        """
        known = image_examples.count(source_of(self))
        return known + (self.out_of_distribution.size() if self.out_of_distribution else 0)


def source_of(config: ImageData) -> image_sources.Source:
    """The source that a configuration describes.

    Raises:
        ConfigError: values contradict each other, are out of range or have no effect.
    """
    _check(config)
    own_split = "train" if config.is_training else "validation"
    default = "all" if config.input_path or config.tfds_name else own_split
    side = config.side()
    split = "all" if side else config.split or default
    if not side and split == "all" and config.held_out != _HELD_OUT:
        raise ConfigError(
            f"ImageData.held_out={config.held_out} has no effect on split='all':"
            " set split='train' or split='validation'"
        )
    return image_sources.Source(
        input_path=config.input_path,
        subset=config.subset,
        image_size=tuple(config.image_size),
        tfds_name=config.tfds_name,
        tfds_split=config.tfds_split,
        tfds_data_dir=config.tfds_data_dir,
        split=split,
        held_out=config.held_out if split != "all" else 0.0,
        side=side,
        fold_group=config.fold_group,
        cache_folder=config.cache_folder,
    )


def check_apart(train: ImageData, validation: ImageData) -> None:
    """Checks that training and validation share no images, unless the configuration allows it.

    Raises:
        ConfigError: both read the same source, and one of them reads all of it without both setting
            split='all', or their `held_out` differs. With folds, they read different sources.
    """
    sources = [source_of(data) for data in (train, validation)]
    place, other = (
        source._replace(image_size=(), split="", held_out=0.0, side=None, cache_folder="")
        for source in sources
    )
    if train.folds and place != other:
        raise ConfigError(inputs.one_source(place, other))
    if train.folds or place != other:
        return
    splits = [source.split for source in sources]
    if "all" in splits and not (train.split and validation.split):
        raise ConfigError(
            f"train_data and validation_data share images of {place}: set split='train' and"
            " split='validation' (or split='all', if that is intended)"
        )
    shares = [source.held_out for source in sources]
    if "all" not in splits and shares[0] != shares[1]:
        raise ConfigError(
            f"train_data.held_out={shares[0]} and validation_data.held_out={shares[1]} of {place}:"
            " must be equal, or validation would use training images"
        )


def dataset(
    examples: image_examples.Examples,
    config: ImageData,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Batches of float32 images (white is 1) and int32 labels, indexed by step or in order.

    Raises:
        ConfigError: the images do not match the configuration.
    """
    if config.is_training:
        return _training(examples, config, input_context)
    if config.corruption:
        _expect_scaled(examples, "corruption")
    unknown = (
        image_examples.read(source_of(config.out_of_distribution))
        if config.out_of_distribution
        else None
    )
    if unknown and unknown.image_shape != examples.image_shape:
        raise ConfigError(
            f"ImageData.out_of_distribution: images are {list(unknown.image_shape)}; the others"
            f" are {list(examples.image_shape)}"
        )
    known_size = len(examples.labels)

    @tf.autograph.experimental.do_not_convert
    def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = image_examples.load(examples, index[index < known_size])
        if unknown:
            others, classes = image_examples.load(unknown, index[index >= known_size] - known_size)
            images = tf.concat([images, others], axis=0)
            labels = tf.concat([labels, -tf.ones_like(classes)], axis=0)
        if config.corruption:
            images = corruption.corrupt(images, index, config.corruption)
        return images, labels

    size = known_size + (len(unknown.labels) if unknown else 0)
    return inputs.in_order(size, load, config=config, input_context=input_context)


def keys(examples: image_examples.Examples, config: ImageData) -> np.ndarray:
    """The names of an evaluation's images, in order. Identical to `examples.keys` if possible."""
    if not config.out_of_distribution:
        return examples.keys
    unknown = image_examples.read(source_of(config.out_of_distribution))
    names = [*map(str, examples.keys), *(f"unknown/{key}" for key in unknown.keys)]
    return np.array(names, object)


def _training(
    examples: image_examples.Examples,
    config: ImageData,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    if config.augment.augmix:
        _expect_scaled(examples, "augment.augmix")

    @tf.autograph.experimental.do_not_convert
    def augment(
        batch: tuple[tf.Tensor, tf.Tensor], seeds: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = batch
        images = augmentation.augment(images, seeds, config.augment)
        return images, tf.repeat(labels, augmentation.versions(config.augment))

    return inputs.place(
        len(examples.labels),
        functools.partial(image_examples.load, examples),
        config=config,
        input_context=input_context,
        augment=augment if augmentation.is_active(config.augment) else None,
    )


def _expect_scaled(examples: image_examples.Examples, field: str) -> None:
    if examples.images.dtype == tf.float32:
        pixels = examples.images.numpy()
        low, high = pixels.min(), pixels.max()
        if low < 0 or high > 1:
            raise ConfigError(
                f"ImageData.{field} needs images from 0 to 1; these go from {low:g} to {high:g}"
            )


def _check(config: ImageData) -> None:
    if config.is_training is None:
        raise ConfigError(
            "ImageData.is_training: set it to True for train_data, False for validation_data"
        )
    for name, wanted in {"input_path": "one path", "tfds_name": "one name"}.items():
        value = getattr(config, name)
        if not isinstance(value, str):
            raise ConfigError(f"ImageData.{name}={value!r}: expected {wanted}")
    if config.input_path and config.tfds_name:
        raise ConfigError(
            f"ImageData has both input_path={config.input_path!r} and"
            f" tfds_name={config.tfds_name!r}: set only one"
        )
    if config.split not in ("", *_SPLITS):
        raise ConfigError(f"ImageData.split={config.split!r}: expected one of {', '.join(_SPLITS)}")
    if not 0 < config.held_out < 1:
        raise ConfigError(f"ImageData.held_out={config.held_out}: must be between 0 and 1")
    if config.image_size and (len(config.image_size) != 2 or min(config.image_size) < 1):
        raise ConfigError(f"ImageData.image_size={config.image_size}: expected height and width")
    _check_changes(config)
    if config.fold_group and not config.folds:
        raise ConfigError(
            f"ImageData.fold_group={config.fold_group!r} has no effect, because folds is 0"
        )
    inputs.refuse(
        config,
        ("tfds_as_supervised", "tfds_skip_decoding_feature"),
        "decoded images and their labels are always read",
    )
    inputs.refuse(config, ("num_examples",), "the images are counted")


def _check_changes(config: ImageData) -> None:
    """Raises ConfigError for changes that are invalid or do not apply to these images."""
    if augmentation.is_active(config.augment) and not config.is_training:
        raise ConfigError("ImageData.augment is for train_data, not for evaluation data")
    for field in ("corruption", "out_of_distribution"):
        if config.is_training and getattr(config, field):
            raise ConfigError(f"ImageData.{field} is for evaluations, not for train_data")
    if config.corruption:
        corruption.check(config.corruption)
    if unknown := config.out_of_distribution:
        if unknown.corruption or unknown.out_of_distribution or unknown.is_training:
            raise ConfigError(
                "ImageData.out_of_distribution only specifies the source of images: is_training"
                " must be False; set corruption and out_of_distribution on the enclosing data"
            )
        _check(unknown)
