import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from wording import saying

from runner.errors import ConfigError
from tasks.images import augmix


@pytest.fixture(scope="module")
def photographs():
    """[40, 20, 24, 3] uint8: smooth, so that a shift of half a pixel changes little."""
    noise = np.random.default_rng(0).normal(size=(40, 5, 6, 3))
    smooth = tf.image.resize(noise, (20, 24), "bicubic").numpy()
    return np.clip(128 + 70 * smooth, 0, 255).astype(np.uint8)


def distorted(pixels, kind, strength):
    count = len(pixels)
    kinds = tf.fill([count], augmix.KINDS.index(kind))
    return augmix.distort(tf.constant(pixels), kinds, tf.fill([count], float(strength))).numpy()


def pillow(pixels, change):
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in pixels])


TABLES = [
    ("autocontrast", 1, ImageOps.autocontrast),
    ("equalize", 1, ImageOps.equalize),
    ("posterize", 1, lambda image: ImageOps.posterize(image, 4)),
    ("posterize", 2.9, lambda image: ImageOps.posterize(image, 3)),
    ("solarize", 2.9, lambda image: ImageOps.solarize(image, 256 - 74)),
]


@pytest.mark.parametrize(("kind", "strength", "change"), TABLES)
def test_tables_of_pixel_values_are_those_of_pillow(photographs, kind, strength, change):
    dull = photographs // 3 + 40
    dull[0], dull[1, ..., 2] = 7, 200  # nothing to stretch
    for pixels in (photographs, dull):
        found = distorted(pixels, kind, strength).astype(int)
        expected = pillow(pixels, change)
        rounding = 1 if kind == "autocontrast" else 0  # Pillow multiplies by a rounded factor
        assert np.abs(found - expected).max() <= rounding
        assert not np.array_equal(found, pixels)


def moved(*matrix):
    return lambda image: image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR
    )


MAPS = [
    ("rotate", 9, lambda image: image.rotate(27, resample=Image.Resampling.BILINEAR)),
    ("rotate", -2, lambda image: image.rotate(-6, resample=Image.Resampling.BILINEAR)),
    ("shear_x", 2.5, moved(1, 0.075, 0, 0, 1, 0)),
    ("shear_y", -2.5, moved(1, 0, 0, -0.075, 1, 0)),
    ("translate_x", 2.6, moved(1, 0, 2, 0, 1, 0)),
    ("translate_y", -3.1, moved(1, 0, 0, 0, 1, -2)),
]


@pytest.mark.parametrize(("kind", "strength", "change"), MAPS)
def test_maps_of_the_plane_are_those_of_pillow(photographs, kind, strength, change):
    found = distorted(photographs, kind, strength).astype(int)
    expected = pillow(photographs, change)
    inside = pillow(np.full_like(photographs, 255), change) == 255
    # Beside the border Pillow blends with the nearest pixel, TensorFlow with black.
    shrunk = tf.nn.erosion2d(
        tf.cast(inside, tf.float32), tf.zeros([3, 3, 3]), [1] * 4, "SAME", "NHWC", [1] * 4
    )
    inner = shrunk.numpy() > 0
    inner[:, [0, -1]] = inner[:, :, [0, -1]] = False
    assert inner.mean() > 0.4
    assert np.abs(found - expected)[inner].max() <= 1


def test_each_image_of_a_batch_gets_its_own_distortion(photographs):
    kinds = np.arange(40) % (len(augmix.KINDS) + 1)
    strength = np.linspace(-3, 3, 40, dtype=np.float32)
    together = augmix.distort(tf.constant(photographs), tf.constant(kinds, tf.int32), strength)
    for n, kind in enumerate(kinds):
        if kind == len(augmix.KINDS):
            expected = photographs[n]
        else:
            expected = distorted(photographs[n : n + 1], augmix.KINDS[kind], strength[n])[0]
        np.testing.assert_array_equal(together[n], expected)


@pytest.fixture(scope="module")
def seeds():
    return np.random.default_rng(1).integers(0, 2**62, (40, 2))


def mixed(images, seeds, **fields):
    config = augmix.AugMixConfig(**fields)
    pixels = tf.constant(images / np.float32(255))
    return augmix.augmix(pixels, tf.constant(seeds), config).numpy()


@pytest.mark.parametrize("depth", [-1, 2])
def test_an_image_depends_neither_on_its_batch_nor_on_its_place_in_it(photographs, seeds, depth):
    together = mixed(photographs, seeds, depth=depth)
    some = [7, 3, 31]
    np.testing.assert_array_equal(
        mixed(photographs[some], seeds[some], depth=depth), together[some]
    )
    assert (
        len({image.tobytes() for image in mixed(photographs[[0] * 40], seeds, depth=depth)}) == 40
    )


def test_images_stay_between_0_and_1_and_resemble_what_they_were(photographs, seeds):
    images = mixed(photographs, seeds)
    assert images.dtype == np.float32
    assert images.min() >= 0
    assert images.max() <= 1 + 1e-6
    distance = np.abs(images - photographs / 255).mean(axis=(1, 2, 3))
    assert 0.001 < np.median(distance) < 0.2
    severe = np.abs(mixed(photographs, seeds, severity=10) - photographs / 255).mean()
    assert severe > 1.2 * distance.mean()


def test_versions_differ_stand_side_by_side_and_do_not_depend_on_their_number(photographs, seeds):
    one, three = mixed(photographs, seeds), mixed(photographs, seeds, count=3)
    np.testing.assert_array_equal(three[::3], one)
    assert len({image.tobytes() for image in three}) == 120


def test_with_a_small_probability_many_images_stay_and_with_a_large_one_none(photographs, seeds):
    def untouched(probability):
        images = mixed(photographs, seeds, probability=probability)
        return np.mean(np.abs(images - photographs / 255).mean(axis=(1, 2, 3)) < 0.0005)

    assert untouched(0.1) > 0.3
    assert untouched(50.0) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width=0 1"),
        ({"count": 0}, "count=0 1"),
        ({"depth": 0}, "depth=0 1 -1"),
        ({"severity": 11}, "severity=11 1 10"),
        ({"probability": 0.0}, "probability=0.0 0.1"),
    ],
)
def test_impossible_values_are_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        augmix.check(augmix.AugMixConfig(**fields))
