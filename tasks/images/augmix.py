"""AugMix: blends images with chains of their distortions.

Hendrycks et al., "AugMix: a simple data processing method to improve robustness and uncertainty",
2020. The nine distortions and their strengths are those of the paper's published code. None of
them is among the corruptions used to measure robustness. Each is either a lookup table of the 256
pixel values or an affine map of the plane, so a batch needs two kernels per step instead of nine.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from official.modeling.hyperparams import base_config

from runner import inputs
from runner.errors import ConfigError

TABLES = ("autocontrast", "equalize", "posterize", "solarize")
MAPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
KINDS = (*TABLES, *MAPS)

_DEEPEST = 3  # the maximum depth if depths are drawn
_STRONGEST = 10  # the maximum severity
_RAREST = 0.1  # for smaller parameters, all Gamma variables may be 0


@dataclasses.dataclass
class AugMixConfig(base_config.Config):
    """AugMix's settings.

    Attributes:
        width: the number of chains blended into an image.
        depth: the number of distortions in a chain. -1 draws 1, 2 or 3 for each chain.
        severity: each distortion's strength is drawn between 0.1 and this, at most 10.
        probability: the parameter of the Dirichlet distribution of the chains' weights, and of
            the Beta distribution of their total weight in the image. 1 is uniform, the minimum 0.1.
        count: how many versions replace each image in a batch. With 2, a step learns from twice
            `global_batch_size` images.
    """

    width: int = 3
    depth: int = -1
    severity: int = 3
    probability: float = 1.0
    count: int = 1


def check(config: AugMixConfig) -> None:
    """Raises ConfigError for a value that is out of range."""
    for name in ("width", "count"):
        if getattr(config, name) < 1:
            raise ConfigError(f"AugMixConfig.{name}={getattr(config, name)}: must be 1 or more")
    if config.depth < 1 and config.depth != -1:
        raise ConfigError(f"AugMixConfig.depth={config.depth}: must be 1 or more, or -1 (random)")
    if not 1 <= config.severity <= _STRONGEST:
        raise ConfigError(
            f"AugMixConfig.severity={config.severity}: must be from 1 to {_STRONGEST}"
        )
    if not config.probability >= _RAREST:
        raise ConfigError(
            f"AugMixConfig.probability={config.probability}: must be {_RAREST} or more"
        )


def augmix(images: tf.Tensor, seeds: tf.Tensor, config: AugMixConfig) -> tf.Tensor:
    """Blends every image with distortions of itself.

    Args:
        images: [batch, height, width, channels] float32 from 0 to 1.
        seeds: [batch, 2] int64. An image's blend depends only on its own seeds.
        config: the settings.

    Returns:
        [batch * count, height, width, channels] float32. Versions of an image are adjacent.
    """
    images = tf.repeat(images, config.count, axis=0)
    version = tf.tile(tf.range(1, config.count + 1, dtype=tf.int64), [tf.shape(seeds)[0]])
    seeds = tf.repeat(seeds, config.count, axis=0)
    seeds = tf.stack([seeds[:, 0], seeds[:, 1] + version], axis=1)

    chains = _chains(images, seeds, config)
    weights, share = _weights(seeds, config)
    # Not a matrix product, because its rounding could depend on the batch size.
    mixed = tf.add_n([w * chain for w, chain in zip(weights, chains, strict=True)])
    return (1 - share) * images + share * mixed


def distort(pixels: tf.Tensor, kind: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Applies one distortion to each image.

    Args:
        pixels: [batch, height, width, channels] uint8.
        kind: [batch] int32, indices of `KINDS`. len(KINDS) leaves the image unchanged.
        strength: [batch] float32 from -10 to 10. The sign matters only for `MAPS`.

    Returns:
        Pixels of the same shape.
    """
    group = tf.where(kind < len(TABLES), 0, tf.where(kind < len(KINDS), 1, 2))
    looked_up, moved, kept = tf.dynamic_partition(tf.range(tf.size(kind)), group, 3)
    parts = [
        _look_up(*(tf.gather(x, looked_up) for x in (pixels, kind, strength))),
        _move(*(tf.gather(x, moved) for x in (pixels, kind, strength))),
        tf.gather(pixels, kept),
    ]
    return tf.reshape(tf.dynamic_stitch([looked_up, moved, kept], parts), tf.shape(pixels))


def _chains(images: tf.Tensor, seeds: tf.Tensor, config: AugMixConfig) -> list[tf.Tensor]:
    """`width` distorted versions of the batch, each [batch, height, width, channels] float32."""
    width, depth = config.width, config.depth if config.depth > 0 else _DEEPEST
    numbers = inputs.uniform(seeds, width * (1 + 3 * depth))
    numbers = tf.reshape(numbers, [-1, 1 + 3 * depth])
    lengths = tf.cast(numbers[:, 0] * depth, tf.int32) + 1 if config.depth < 0 else depth
    pixels = tf.repeat(tf.cast(tf.round(images * 255), tf.uint8), width, axis=0)
    for step in range(depth):
        which, strength, sign = tf.unstack(numbers[:, 1 + 3 * step : 4 + 3 * step], axis=1)
        kind = tf.cast(which * len(KINDS), tf.int32)
        kind = tf.where(step < lengths, kind, len(KINDS))
        strength = 0.1 + strength * (config.severity - 0.1)
        pixels = distort(pixels, kind, tf.where(sign < 0.5, strength, -strength))
    shape = [-1, width, *images.shape[1:]]
    return tf.unstack(tf.reshape(tf.cast(pixels, tf.float32) / 255, shape), axis=1)


def _weights(seeds: tf.Tensor, config: AugMixConfig) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The chains' weights, which sum to 1, and their share in the image, [batch, 1, 1, 1] each."""
    draw = functools.partial(
        tf.random.stateless_gamma, [config.width + 2], alpha=config.probability, dtype=tf.float64
    )
    # stateless_gamma takes one seed. Normalized Gamma variables are Dirichlet or Beta variables.
    numbers = tf.map_fn(draw, seeds, fn_output_signature=tf.float64)
    *weights, first, second = tf.unstack(numbers[..., tf.newaxis, tf.newaxis, tf.newaxis], axis=1)
    total = tf.add_n(weights)
    share = tf.cast(first / (first + second), tf.float32)
    return [tf.cast(weight / total, tf.float32) for weight in weights], share


def _look_up(pixels: tf.Tensor, kind: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Maps pixel values through the table for the image's kind, one table per channel."""
    images, channels = tf.shape(pixels)[0], pixels.shape[-1]
    first = tf.reshape(tf.range(images * channels) * 256, [-1, 1, 1, channels])
    place = first + tf.cast(pixels, tf.int32)  # in the concatenated tables
    size = images * channels * 256
    counts = tf.math.bincount(tf.reshape(place, [-1]), minlength=size, maxlength=size)
    counts = tf.reshape(counts, [images, channels, 256])
    values = tf.range(256)
    level = tf.abs(strength)[:, tf.newaxis, tf.newaxis] / _STRONGEST
    mask = 256 - tf.bitwise.left_shift(16, tf.cast(level * 4, tf.int32))
    threshold = 256 - tf.cast(level * 256, tf.int32)
    tables = [
        _autocontrast(counts, values),
        _equalize(counts, values),
        tf.broadcast_to(tf.bitwise.bitwise_and(values, mask), tf.shape(counts)),
        tf.broadcast_to(tf.where(values < threshold, values, 255 - values), tf.shape(counts)),
    ]
    chosen = tf.gather(tf.stack(tables, axis=1), kind, axis=1, batch_dims=1)
    return tf.gather(tf.cast(tf.reshape(chosen, [-1]), tf.uint8), place)


def _autocontrast(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Tables that stretch the occurring values to 0..255. All arrays are [..., 256] int32."""
    occurs = counts > 0
    low = tf.reduce_min(tf.where(occurs, values, 255), axis=-1, keepdims=True)
    high = tf.reduce_max(tf.where(occurs, values, 0), axis=-1, keepdims=True)
    stretched = 255 * (values - low) // tf.maximum(high - low, 1)
    return tf.where(high > low, tf.clip_by_value(stretched, 0, 255), values)


def _equalize(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Tables that equalize the histogram. Counts and tables are [..., 256] int32."""
    high = tf.reduce_max(tf.where(counts > 0, values, 0), axis=-1, keepdims=True)
    of_highest = tf.gather(counts, high, axis=-1, batch_dims=len(counts.shape) - 1)
    step = (tf.reduce_sum(counts, axis=-1, keepdims=True) - of_highest) // 255
    below = tf.cumsum(counts, axis=-1, exclusive=True)
    spread = tf.minimum((step // 2 + below) // tf.maximum(step, 1), 255)
    return tf.where(step > 0, spread, values)


def _move(pixels: tf.Tensor, kind: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Rotates, shears or shifts images, filling with black."""
    height, width = pixels.shape[1:3]
    level = strength / _STRONGEST
    rotate, shear_x, shear_y, right, down = (
        tf.where(kind == len(TABLES) + i, level, 0.0) for i in range(len(MAPS))
    )
    degrees = tf.cast(rotate * 30, tf.int32)  # rounded towards 0, like all integers here
    angles = np.radians(np.arange(-30, 31))
    # Use a table, because vectorized and scalar cosines may differ in their last bits.
    cosine, sine = (tf.gather(np.float32(f(angles)), degrees + 30) for f in (np.cos, np.sin))
    a, b = cosine, -sine + shear_x * 0.3
    c, d = sine + shear_y * 0.3, cosine
    turns = kind == len(TABLES)  # about the centre, while shears keep the upper left corner
    x = tf.where(turns, (width - 1) / 2, -0.5)
    y = tf.where(turns, (height - 1) / 2, -0.5)
    right = tf.cast(tf.cast(right * (width / 3), tf.int32), tf.float32)
    down = tf.cast(tf.cast(down * (height / 3), tf.int32), tf.float32)
    zero = tf.zeros_like(a)
    rows = [a, b, x - a * x - b * y + right, c, d, y - c * x - d * y + down, zero, zero]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=pixels,
        transforms=tf.stack(rows, axis=1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
    )
