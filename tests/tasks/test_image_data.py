import sys

import numpy as np
import pytest
from image_files import write_folder, write_npz
from wording import saying

from runner.errors import ConfigError
from tasks.images import (
    augmentation,
    augmix,
    corruption,
    image_data,
    image_examples,
    image_folders,
)


def training(**fields):
    return image_data.ImageData(**{"is_training": True, "global_batch_size": 16, **fields})


def validation(**fields):
    return image_data.ImageData(**{"is_training": False, "global_batch_size": 100, **fields})


def dataset(data):
    return image_data.dataset(image_examples.read(image_data.source_of(data)), data)


def everything(data):
    """Images and labels of one pass over evaluation data, in order."""
    return [np.concatenate(part) for part in zip(*dataset(data).as_numpy_iterator(), strict=True)]


def test_the_digits_are_parted_into_training_and_validation_once_and_for_all():
    images, labels = everything(validation(split="all"))
    assert images.shape == (1797, 8, 8, 1)
    assert (images.min(), images.max()) == (0, 1)
    np.testing.assert_array_equal(np.unique(labels), np.arange(10))

    parts = [everything(validation(split=split))[0] for split in ("train", "validation")]
    assert [len(part) for part in parts] == [1438, 359]
    rows = [{image.tobytes() for image in part} for part in parts]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == {image.tobytes() for image in images}


def test_the_held_out_digits_are_always_these():
    _, labels = everything(validation())
    assert labels[:12].tolist() == [0, 2, 9, 1, 7, 0, 1, 8, 7, 2, 6, 9]


def test_training_draws_from_the_part_that_is_not_scored():
    held_out = {image.tobytes() for image in everything(validation())[0]}
    (images, _), *_ = dataset(training(global_batch_size=1438)).take(1)
    drawn = {image.tobytes() for image in images.numpy()}
    assert len(drawn) == 1438
    assert not drawn & held_out


def test_reading_the_digits_does_not_import_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    image_examples.read(image_data.source_of(validation()))
    assert "sklearn" not in sys.modules


@pytest.mark.parametrize("channels", [(), (3,)])
def test_bytes_in_an_npz_become_numbers_from_0_to_1(tmp_path, channels):
    images = np.full((5, 4, 6, *channels), 51, np.uint8)
    path = write_npz(tmp_path / "x.npz", 5, images=images)
    got, labels = everything(validation(input_path=path))
    np.testing.assert_allclose(got, np.full((5, 4, 6, *(channels or (1,))), 0.2), rtol=1e-6)
    assert (got.dtype, labels.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(labels, [0, 1, 2, 0, 1])


def test_floating_point_images_are_used_as_they_are(tmp_path):
    images = np.linspace(-2, 2, 5 * 16).reshape(5, 4, 4)
    path = write_npz(tmp_path / "x.npz", 5, images=images)
    got, _ = everything(validation(input_path=path))
    np.testing.assert_array_equal(got[..., 0], images.astype(np.float32))


def test_training_images_change_from_epoch_to_epoch_and_are_the_same_again_on_resuming():
    augment = augmentation.AugmentConfig(pad=2)

    def batches(start_step, count):
        data = training(augment=augment, global_batch_size=719, start_step=start_step)
        return [images.numpy() for images, _ in dataset(data).take(count)]

    first, second, third = batches(0, 3)  # two steps are an epoch
    np.testing.assert_array_equal(batches(1, 2), [second, third])
    plain = dataset(training(global_batch_size=1438)).take(1)
    originals = {image.tobytes() for images, _ in plain for image in images.numpy()}
    unchanged = np.mean([image.tobytes() in originals for image in np.concatenate([first, second])])
    assert 0 < unchanged < 0.2  # one shift in 25 is none


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"split": "test"}, "split='test' expected validation"),
        ({"is_training": None}, "is_training"),
        ({"input_path": "x.npz", "tfds_name": "mnist"}, "input_path='x.npz' tfds_name"),
        ({"input_path": ["x.npz"]}, "expected path"),
        ({"augment": augmentation.AugmentConfig(pad=1)}, "augment train_data"),
        ({"augment": augmentation.AugmentConfig(pad=-1)}, "pad=-1"),
    ],
)
def test_contradictory_data_are_refused(data, message):
    with pytest.raises(ConfigError, match=saying(message)):
        image_data.source_of(validation(**data))


@pytest.mark.parametrize(("held_out", "count"), [(0.2, 20), (0.05, 5), (0.29, 29), (0.999, 99)])
def test_the_share_held_out_is_exact_and_the_rest_is_trained_on(tmp_path, held_out, count):
    path = write_npz(tmp_path / "x.npz", 100, images=np.arange(100.0)[:, None, None])
    fields = {"input_path": path, "held_out": held_out}
    scored = everything(validation(split="validation", **fields))[0].ravel()
    rest = everything(validation(split="train", **fields))[0].ravel()
    assert len(scored) == count
    assert sorted([*scored, *rest]) == list(range(100))
    assert validation(split="validation", **fields).size() == count
    assert training(split="train", **fields).size() == 100 - count


def test_a_larger_share_holds_out_what_a_smaller_one_does(tmp_path):
    path = write_npz(tmp_path / "x.npz", 100, images=np.arange(100.0)[:, None, None])
    few, many = (
        set(everything(validation(input_path=path, split="validation", held_out=share))[0].ravel())
        for share in (0.1, 0.3)
    )
    assert few < many


def test_training_and_validation_that_share_images_are_refused(tmp_path):
    path, other = str(tmp_path / "x.npz"), str(tmp_path / "y.npz")

    def check(train, scored, share=0.2):
        image_data.check_apart(
            training(input_path=path, held_out=share, **train),
            validation(**{"input_path": path, **scored}),
        )

    check({"split": "train"}, {"split": "validation"})
    check({}, {"input_path": other})
    check({"split": "all"}, {"split": "all"})
    with pytest.raises(ConfigError, match=saying("share images x.npz split='train'")):
        check({}, {})
    with pytest.raises(ConfigError, match=r"share images of .*x\.npz"):
        check({"split": "train"}, {})
    message = r"train_data.held_out=0.1 and validation_data.held_out=0.2 of .*x\.npz: must be"
    with pytest.raises(ConfigError, match=message):
        check({"split": "train"}, {"split": "validation"}, 0.1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"held_out": 0.0, "split": "train"}, "held_out=0.0 between 0 1"),
        ({"held_out": 1.0, "split": "train"}, "held_out=1.0"),
        ({"held_out": 0.1, "input_path": "x.npz"}, "held_out=0.1 effect split='all'"),
        ({"image_size": (8,)}, "image_size=(8,) height"),
        ({"tfds_skip_decoding_feature": "image"}, "tfds_skip_decoding_feature"),
        (
            {"corruption": corruption.CorruptionConfig(kind="fog")},
            "kind='fog' expected gaussian_noise",
        ),
        ({"out_of_distribution": training()}, "is_training False"),
        ({"out_of_distribution": validation(split="test")}, "split='test'"),
    ],
)
def test_impossible_evaluation_data_are_refused(data, message):
    with pytest.raises(ConfigError, match=saying(message)):
        image_data.source_of(validation(**data))


def test_what_is_for_evaluations_is_refused_in_training():
    with pytest.raises(ConfigError, match=saying("corruption train_data")):
        image_data.source_of(training(corruption=corruption.CorruptionConfig()))
    with pytest.raises(ConfigError, match="out_of_distribution is for evaluations"):
        image_data.source_of(training(out_of_distribution=validation()))


@pytest.fixture
def folder(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 4, 6, 3), dtype=np.uint8)
    path = write_folder(
        tmp_path / "images",
        {f"{'ab'[n // 10]}/{n:02}.png": image for n, image in enumerate(pixels)},
    )
    return path, pixels


def test_a_folder_of_images_is_decoded_batch_by_batch(folder):
    path, pixels = folder
    data = validation(input_path=path, global_batch_size=8)
    images, labels = everything(data)
    np.testing.assert_array_equal(images, pixels.astype(np.float32) / 255)
    np.testing.assert_array_equal(labels, np.repeat([0, 1], 10))
    assert data.size() == 20
    small = training(input_path=path, image_size=(2, 3), global_batch_size=20)
    ((batch, _),) = dataset(small).take(1)
    assert batch.shape == (20, 2, 3, 3)


def test_a_cache_holds_the_pixels_of_a_folder_until_a_file_changes(folder, tmp_path, monkeypatch):
    path, pixels = folder

    def read():
        data = validation(input_path=path, global_batch_size=20, cache_folder=f"{tmp_path}/cache")
        return everything(data)[0]

    expected = pixels.astype(np.float32) / 255
    np.testing.assert_array_equal(read(), expected)
    with monkeypatch.context() as patch:
        patch.setattr(image_folders, "load_all", None)
        np.testing.assert_array_equal(read(), expected)
    write_folder(tmp_path / "images", {"a/00.png": np.full((4, 6, 3), 77, np.uint8)})
    assert (read()[0] == np.float32(77) / 255).all()


def test_augmix_gives_each_example_its_versions_side_by_side_with_its_label(tmp_path):
    path = write_npz(tmp_path / "x.npz", classes=20, images=np.zeros((20, 4, 4, 3), np.uint8))
    plain = training(input_path=path)
    mixed = training(
        input_path=path, augment=augmentation.AugmentConfig(augmix=augmix.AugMixConfig(count=3))
    )
    ((_, labels),), ((images, repeated),) = dataset(plain).take(1), dataset(mixed).take(1)
    assert images.shape == (48, 4, 4, 3)
    np.testing.assert_array_equal(repeated, np.repeat(labels, 3))


def test_corrupted_images_are_the_same_in_batches_of_any_size():
    def corrupted(batch):
        noise = corruption.CorruptionConfig(kind="gaussian_noise", severity=3)
        return everything(validation(corruption=noise, global_batch_size=batch))

    images, labels = corrupted(100)
    for found, expected in zip(corrupted(7), (images, labels), strict=True):
        np.testing.assert_array_equal(found, expected)
    clean, known = everything(validation())
    np.testing.assert_array_equal(labels, known)
    assert 0.01 < np.abs(images - clean).mean() < 0.1


def test_images_out_of_distribution_come_last_and_belong_to_no_class(folder, tmp_path):
    unknown_path, unknown = folder
    images = np.random.default_rng(1).uniform(size=(15, 4, 6, 3)).astype(np.float32)
    path = write_npz(tmp_path / "x.npz", 15, images=images)
    data = validation(
        input_path=path,
        global_batch_size=8,
        out_of_distribution=validation(input_path=unknown_path),
    )
    found, labels = everything(data)
    np.testing.assert_array_equal(found, np.concatenate([images, unknown.astype(np.float32) / 255]))
    np.testing.assert_array_equal(labels, [*np.arange(15) % 3, *[-1] * 20])
    assert data.size() == 35


def test_images_out_of_distribution_of_another_shape_are_refused(folder):
    data = validation(out_of_distribution=validation(input_path=folder[0]))
    message = r"out_of_distribution: images are \[4, 6, 3\]; the others are \[8, 8, 1\]"
    with pytest.raises(ConfigError, match=message):
        dataset(data)


def test_what_needs_images_from_0_to_1_refuses_others(tmp_path):
    path = write_npz(tmp_path / "x.npz", images=np.linspace(-2, 2, 320).reshape(20, 4, 4))
    with pytest.raises(ConfigError, match=saying("corruption images 0 1 -2")):
        dataset(validation(input_path=path, corruption=corruption.CorruptionConfig()))
    with pytest.raises(ConfigError, match=saying("augment.augmix needs images 0 1")):
        dataset(
            training(
                input_path=path, augment=augmentation.AugmentConfig(augmix=augmix.AugMixConfig())
            )
        )
