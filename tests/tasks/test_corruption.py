import colorsys
import io

import cv2
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from wording import saying

from runner.errors import ConfigError
from tasks.images import corruption

KINDS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
    "jpeg_compression",
)


@pytest.fixture(scope="module")
def pixels():
    """[30, 32, 32, 3] uint8, smooth with some grain."""
    rng = np.random.default_rng(0)
    smooth = tf.image.resize(rng.normal(size=(30, 8, 8, 3)), (32, 32), "bicubic").numpy()
    grain = rng.normal(size=smooth.shape)
    return np.clip(128 + 60 * smooth + 5 * grain, 0, 255).astype(np.uint8)


def corrupted(pixels, kind, severity, index=None):
    index = np.arange(len(pixels)) if index is None else index
    config = corruption.CorruptionConfig(kind=kind, severity=severity)
    found = corruption.corrupt(
        tf.constant(pixels / np.float32(255)), tf.constant(index, tf.int64), config
    )
    return np.asarray(found)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_corrupted_alike_in_any_batch(pixels, kind):
    together = corrupted(pixels, kind, 3)
    some = np.array([11, 4, 5])
    np.testing.assert_array_equal(corrupted(pixels[some], kind, 3, some), together[some])
    np.testing.assert_array_equal(corrupted(pixels[:0], kind, 3), together[:0])


# Saturation goes down, then up; 30 of 32 pixels in a row fit worse than 28.
MONOTONE = [kind for kind in KINDS if kind not in ("saturate", "pixelate")]


@pytest.mark.parametrize("kind", MONOTONE)
def test_the_severer_the_further_from_the_image(pixels, kind):
    clean = pixels / 255
    distances = [np.abs(corrupted(pixels, kind, n) - clean).mean() for n in range(1, 6)]
    assert distances[0] > 0
    assert distances == sorted(distances)
    assert distances[4] > 1.2 * distances[0]


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_8_bits_from_0_to_1(pixels, kind):
    found = corrupted(pixels, kind, 5)
    assert (found.dtype, found.shape) == (np.float32, pixels.shape)
    np.testing.assert_allclose(found * 255, np.rint(found * 255), atol=1e-4)
    assert found.min() >= 0
    assert found.max() <= 1


def test_gaussian_noise_has_its_deviation():
    grey = np.full((30, 32, 32, 3), 128, np.uint8)
    noise = corrupted(grey, "gaussian_noise", 5) - 128 / 255
    assert noise.std() == pytest.approx(0.10, rel=0.02)
    assert noise.mean() == pytest.approx(0, abs=0.002)
    assert len({image.tobytes() for image in noise}) == 30


def test_shot_noise_grows_with_the_root_of_the_light():
    for value in (64, 192):
        grey = np.full((30, 32, 32, 3), value, np.uint8)
        noise = corrupted(grey, "shot_noise", 4) - value / 255
        assert noise.std() == pytest.approx(np.sqrt(value / 255 / 75), rel=0.03)


def test_impulses_are_black_and_white_in_equal_parts():
    found = corrupted(np.full((30, 32, 32, 3), 128, np.uint8), "impulse_noise", 5)
    assert np.mean(found == 0) == pytest.approx(0.035, rel=0.1)
    assert np.mean(found == 1) == pytest.approx(0.035, rel=0.1)
    assert np.mean(found == np.float32(128 / 255)) == pytest.approx(0.93, rel=0.01)


LENSES = [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)]


@pytest.mark.parametrize("severity", [1, 3, 4, 5])
def test_the_blur_is_a_disk_filtered_as_opencv_does(pixels, severity):
    radius, deviation = LENSES[severity - 1]
    steps = np.arange(-8, 9)
    disk = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (3, 3), sigmaX=deviation)
    expected = [cv2.filter2D(image / 255, -1, kernel) for image in pixels]
    np.testing.assert_allclose(
        corrupted(pixels, "defocus_blur", severity), expected, atol=0.51 / 255
    )


def test_colours_change_as_their_definitions_say(pixels):
    bright, pale = corrupted(pixels, "brightness", 2), corrupted(pixels, "saturate", 5)
    for n, y, x in [(0, 0, 0), (3, 5, 8), (29, 31, 31)]:
        hue, saturation, value = colorsys.rgb_to_hsv(*pixels[n, y, x] / 255)
        expected = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.1, 1))
        np.testing.assert_allclose(bright[n, y, x], expected, atol=0.51 / 255)
        expected = colorsys.hsv_to_rgb(hue, min(saturation * 2.5 + 0.2, 1), value)
        np.testing.assert_allclose(pale[n, y, x], expected, atol=0.51 / 255)


def test_contrast_shrinks_towards_the_mean_of_each_channel(pixels):
    means = (pixels / 255).mean(axis=(1, 2), keepdims=True)
    expected = (pixels / 255 - means) * 0.3 + means
    np.testing.assert_allclose(corrupted(pixels, "contrast", 4), expected, atol=0.51 / 255)


@pytest.mark.parametrize(("severity", "size"), [(1, 30), (3, 27), (5, 20)])
def test_pixels_grow_as_in_pillow(pixels, severity, size):
    def grown(image):
        small = Image.fromarray(image).resize((size, size), Image.Resampling.BOX)
        return np.asarray(small.resize((32, 32), Image.Resampling.BOX))

    expected = np.stack([grown(image) for image in pixels]) / 255
    np.testing.assert_allclose(corrupted(pixels, "pixelate", severity), expected, atol=1.01 / 255)


def test_jpeg_loses_what_pillow_loses_at_the_same_quality(pixels):
    def compressed(image):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=58)
        return np.asarray(Image.open(buffer)) / 255

    found = corrupted(pixels, "jpeg_compression", 3)
    expected = np.stack([compressed(image) for image in pixels])
    lost = np.abs(expected - pixels / 255).mean()
    assert np.abs(found - expected).mean() < 0.1 * lost


def test_what_needs_colours_refuses_grey_images(pixels):
    with pytest.raises(ConfigError, match=saying("kind='saturate' 3 channels")):
        corrupted(pixels[..., :1], "saturate", 1)
    assert corrupted(pixels[..., :1], "jpeg_compression", 1).shape == (30, 32, 32, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "fog"}, "kind='fog': expected one of gaussian_noise, shot_noise"),
        ({"severity": 0}, "severity=0: .*from 1 to 5"),
        ({"severity": 6}, "severity=6: .*from 1 to 5"),
    ],
)
def test_impossible_values_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        corruption.check(corruption.CorruptionConfig(**fields))
