import numpy as np
import pytest
import tensorflow as tf

from runner.errors import ConfigError
from tasks.images import augmentation, augmix


def augmented(images, seeds, **fields):
    config = augmentation.AugmentConfig(**fields)
    return augmentation.augment(tf.constant(images), tf.constant(seeds), config).numpy()


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(1, 255, (300, 4, 5, 2), dtype=np.uint8)


@pytest.fixture
def seeds():
    return np.random.default_rng(1).integers(0, 2**62, (300, 2))


FRAME = ((1, 1), (1, 1), (0, 0))


def test_every_shift_and_mirror_image_occurs_and_nothing_else(images, seeds):
    seen = set()
    for image, changed in zip(images, augmented(images, seeds, pad=1, flip=True), strict=True):
        candidates = {
            (down, right, mirrored): np.pad(image[:, ::-1] if mirrored else image, FRAME)[
                down : down + 4, right : right + 5
            ]
            for down in range(3)
            for right in range(3)
            for mirrored in (False, True)
        }
        found = [key for key, value in candidates.items() if np.array_equal(value, changed)]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) == 3 * 3 * 2


def test_images_are_not_mirrored_unless_asked(images, seeds):
    shifted = augmented(images, seeds, pad=2)
    assert not np.array_equal(shifted, images)
    mirrored = augmented(images[:, :, ::-1], seeds, pad=2)[:, :, ::-1]
    assert not np.array_equal(shifted, mirrored)
    np.testing.assert_array_equal(augmented(images, seeds), images)


def test_the_change_of_an_image_does_not_depend_on_the_rest_of_its_batch(images, seeds):
    together = augmented(images, seeds, pad=2, flip=True)
    some = [7, 3, 250]
    np.testing.assert_array_equal(
        augmented(images[some], seeds[some], pad=2, flip=True), together[some]
    )


def test_augmix_comes_after_the_shift(images, seeds):
    pixels, seeds = images[:20].astype(np.float32) / 255, seeds[:20]
    shifted = augmented(pixels, seeds, pad=2, flip=True)
    mixed = augmix.augmix(tf.constant(shifted), tf.constant(seeds), augmix.AugMixConfig(count=2))
    config = {"pad": 2, "flip": True, "augmix": augmix.AugMixConfig(count=2)}
    np.testing.assert_array_equal(augmented(pixels, seeds, **config), mixed)
    assert augmentation.versions(augmentation.AugmentConfig(**config)) == 2


def test_augmentation_out_of_range_is_refused():
    with pytest.raises(ConfigError, match=r"AugmentConfig\.pad=-1"):
        augmentation.is_active(augmentation.AugmentConfig(pad=-1))
    with pytest.raises(ConfigError, match=r"AugMixConfig\.width=0"):
        augmentation.is_active(augmentation.AugmentConfig(augmix=augmix.AugMixConfig(width=0)))
