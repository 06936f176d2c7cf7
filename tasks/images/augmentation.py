"""Random changes to images, each from its own example's seeds, independent of the batch."""

import dataclasses

import tensorflow as tf
from official.modeling.hyperparams import base_config

from runner import inputs
from runner.errors import ConfigError
from tasks.images import augmix
from tasks.images.augmix import AugMixConfig  # in the class below, `augmix` is a field


@dataclasses.dataclass
class AugmentConfig(base_config.Config):
    """How to augment training images. By default, no augmentation.

    Attributes:
        pad: shift by up to this many pixels in each direction, filling with zeros: "pad and crop"
            (He et al., "Deep residual learning", 2015, section 4.2).
        flip: mirror left and right with probability one half.
        augmix: settings for AugMix, applied after shifting and mirroring. Off by default.
    """

    pad: int = 0
    flip: bool = False
    augmix: AugMixConfig | None = None


def is_active(config: AugmentConfig) -> bool:
    """Whether `augment` would change anything.

    Raises:
        ConfigError: a value is out of range.
    """
    if config.pad < 0:
        raise ConfigError(f"AugmentConfig.pad={config.pad}: must be 0 or more (pixels)")
    if config.augmix:
        augmix.check(config.augmix)
    return config.pad > 0 or config.flip or config.augmix is not None


def versions(config: AugmentConfig) -> int:
    """How many images `augment` returns for each input image."""
    return config.augmix.count if config.augmix else 1


def augment(images: tf.Tensor, seeds: tf.Tensor, config: AugmentConfig) -> tf.Tensor:
    """Shifts, mirrors and mixes a batch.

    Args:
        images: [batch, height, width, channels] of any type. AugMix needs float32 from 0 to 1.
        seeds: [batch, 2] int64, as created by `inputs.place`.
        config: the changes to make.

    Returns:
        Images of the same type, [batch * versions, height, width, channels].
    """
    if config.pad or config.flip:
        images = _shift(images, seeds, config)
    return augmix.augmix(images, seeds, config.augmix) if config.augmix else images


def _shift(images: tf.Tensor, seeds: tf.Tensor, config: AugmentConfig) -> tf.Tensor:
    height, width = images.shape[1:3]
    pad = config.pad
    numbers = inputs.uniform(seeds, 3)
    down, right = tf.unstack(tf.cast(numbers[:, :2] * (2 * pad + 1), tf.int64), axis=1)
    rows = down[:, tf.newaxis] + tf.range(height, dtype=tf.int64)
    columns = tf.tile(tf.range(width, dtype=tf.int64)[tf.newaxis], [tf.shape(seeds)[0], 1])
    if config.flip:
        columns = tf.where(numbers[:, 2:] < 0.5, width - 1 - columns, columns)
    columns += right[:, tf.newaxis]
    # Two gathers for the whole batch, because tf.image's stateless functions take one seed each.
    padded = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    return tf.gather(tf.gather(padded, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
