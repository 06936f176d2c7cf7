"""Corrupts images to measure robustness: CIFAR-10-C and CIFAR-100-C, computed on the fly.

Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", 2019. Kinds and severities match the code that made the published files, for 32x32
pixels, and are not scaled for other sizes. There are three differences: the noise has the same
distribution but other values, the JPEG encoder is TensorFlow's, and values are rounded to 8 bits
instead of truncated.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from official.modeling.hyperparams import base_config

from runner.errors import ConfigError

_NOISE = 0x6E6F6973  # one half of every noise seed; the other is the example's index


@dataclasses.dataclass
class CorruptionConfig(base_config.Config):
    """How to corrupt every image of an evaluation.

    Attributes:
        kind: 'gaussian_noise', 'shot_noise', 'impulse_noise', 'defocus_blur', 'brightness',
            'contrast', 'saturate', 'pixelate' or 'jpeg_compression'.
        severity: from 1 to 5.
    """

    kind: str = "gaussian_noise"
    severity: int = 1


def check(config: CorruptionConfig) -> None:
    """Raises ConfigError for an unknown kind or severity."""
    if config.kind not in _KINDS:
        raise ConfigError(
            f"CorruptionConfig.kind={config.kind!r}: expected one of {', '.join(_KINDS)}"
        )
    if config.severity not in range(1, 6):
        raise ConfigError(f"CorruptionConfig.severity={config.severity}: must be from 1 to 5")


def corrupt(images: tf.Tensor, index: tf.Tensor, config: CorruptionConfig) -> tf.Tensor:
    """Corrupts every image, independently of its batch.

    Args:
        images: [batch, height, width, channels] float32 from 0 to 1.
        index: [batch] int64, the indices of the examples, which seed their noise.
        config: the kind and its severity.

    Returns:
        Images of the same shape, whose values are multiples of 1/255.

    Raises:
        ConfigError: the kind needs colours, but the images have none.
    """
    kind = _KINDS[config.kind]
    if images.shape[-1] not in kind.channels:
        raise ConfigError(
            f"CorruptionConfig.kind={config.kind!r} needs images of"
            f" {' or '.join(map(str, kind.channels))} channels; these have {images.shape[-1]}"
        )
    changed = kind.change(images, index, kind.severities[config.severity - 1])
    return tf.round(tf.clip_by_value(changed, 0, 1) * 255) / 255


class _Kind(NamedTuple):
    change: Callable[[tf.Tensor, tf.Tensor, Any], tf.Tensor]  # images, indices, severity
    severities: tuple[Any, ...]
    channels: tuple[int, ...] = (1, 2, 3, 4)


def _one_by_one(draw: Callable[..., tf.Tensor], images: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Random numbers of the images' shape, drawn for each image from its own seed."""
    shape = images.shape[1:]

    def drawn(element: tf.Tensor) -> tf.Tensor:
        return draw(shape, seed=tf.stack([_NOISE, element]), alg="philox")

    return tf.map_fn(drawn, index, fn_output_signature=tf.TensorSpec(shape, tf.float32))


def _gaussian_noise(images: tf.Tensor, index: tf.Tensor, deviation: float) -> tf.Tensor:
    return images + deviation * _one_by_one(tf.random.stateless_normal, images, index)


def _shot_noise(images: tf.Tensor, index: tf.Tensor, photons: float) -> tf.Tensor:
    def count(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, element = pair
        return tf.random.stateless_poisson(
            image.shape, tf.stack([_NOISE, element]), image * photons, tf.float32
        )

    counts = tf.map_fn(
        count, (images, index), fn_output_signature=tf.TensorSpec(images.shape[1:], tf.float32)
    )
    return counts / photons


def _impulse_noise(images: tf.Tensor, index: tf.Tensor, share: float) -> tf.Tensor:
    number = _one_by_one(tf.random.stateless_uniform, images, index)
    return tf.where(number < share / 2, 0.0, tf.where(number < share, 1.0, images))


def _defocus_blur(images: tf.Tensor, _: tf.Tensor, lens: tuple[float, float]) -> tf.Tensor:
    """Filters with a slightly blurred disk, mirroring the image at its borders."""
    radius, deviation = lens
    reach = int(radius) + 1
    steps = np.arange(-reach, reach + 1)
    disk = (steps[:, np.newaxis] ** 2 + steps**2 <= radius**2).astype(np.float64)
    bell = np.exp(-(np.arange(-1, 2) ** 2) / (2 * deviation**2))
    blur = np.outer(bell, bell) / bell.sum() ** 2
    # The disk ends one pixel before its frame, so that its blur is not cut off.
    kernel = sum(
        blur[y + 1, x + 1] * np.roll(disk, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)
    )
    kernel = np.asarray(kernel / disk.sum(), np.float32)
    height, width = images.shape[1:3]
    rows, columns = (np.pad(np.arange(size), reach, "reflect") for size in (height, width))
    padded = tf.gather(tf.gather(images, rows, axis=1), columns, axis=2)
    # Not a convolution, because its rounding could depend on the batch size.
    return tf.add_n(
        [kernel[y, x] * padded[:, y : y + height, x : x + width] for y, x in np.argwhere(kernel)]
    )


def _brightness(images: tf.Tensor, _: tf.Tensor, more: float) -> tf.Tensor:
    hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(images), axis=-1)
    value = tf.clip_by_value(value + more, 0, 1)
    return tf.image.hsv_to_rgb(tf.stack([hue, saturation, value], axis=-1))


def _saturate(images: tf.Tensor, _: tf.Tensor, change: tuple[float, float]) -> tf.Tensor:
    hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(images), axis=-1)
    saturation = tf.clip_by_value(saturation * change[0] + change[1], 0, 1)
    return tf.image.hsv_to_rgb(tf.stack([hue, saturation, value], axis=-1))


def _contrast(images: tf.Tensor, _: tf.Tensor, factor: float) -> tf.Tensor:
    means = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return (images - means) * factor + means


def _pixelate(images: tf.Tensor, _: tf.Tensor, factor: float) -> tf.Tensor:
    """Averages blocks of pixels and draws each average at the block's size."""
    height, width = images.shape[1:3]
    rows = np.floor((np.arange(height) + 0.5) * int(height * factor) / height).astype(int)
    columns = np.floor((np.arange(width) + 0.5) * int(width * factor) / width).astype(int)
    fewer = _means(_means(images, columns, axis=2), rows, axis=1)
    return tf.gather(tf.gather(fewer, rows, axis=1), columns, axis=2)


def _means(images: tf.Tensor, group: np.ndarray, axis: int) -> tf.Tensor:
    """The mean of each group of pixels along an axis."""
    parts = [
        tf.reduce_mean(tf.gather(images, np.flatnonzero(group == number), axis=axis), axis=axis)
        for number in range(group.max() + 1)
    ]
    return tf.round(tf.stack(parts, axis=axis) * 255) / 255  # 8 bits after each axis


def _jpeg_compression(images: tf.Tensor, _: tf.Tensor, quality: int) -> tf.Tensor:
    def compressed(image: tf.Tensor) -> tf.Tensor:
        data = tf.io.encode_jpeg(image, quality=quality)
        return tf.io.decode_jpeg(data, image.shape[-1], dct_method="INTEGER_ACCURATE")

    pixels = tf.cast(tf.round(images * 255), tf.uint8)
    spec = tf.TensorSpec(images.shape[1:], tf.uint8)
    return tf.cast(tf.map_fn(compressed, pixels, fn_output_signature=spec), tf.float32) / 255


_KINDS = {
    "gaussian_noise": _Kind(_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": _Kind(_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": _Kind(_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": _Kind(
        _defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    ),
    "brightness": _Kind(_brightness, (0.05, 0.1, 0.15, 0.2, 0.3), channels=(3,)),
    "contrast": _Kind(_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "saturate": _Kind(_saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), (3,)),
    "pixelate": _Kind(_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": _Kind(_jpeg_compression, (80, 65, 58, 50, 40), channels=(1, 3)),
}
