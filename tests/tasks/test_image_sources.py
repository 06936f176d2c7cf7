import zipfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from image_files import CIFAR10, cifar_records, write_archive, write_folder, write_npz
from wording import saying

from runner.errors import ConfigError
from tasks.images import image_sources
from tasks.images.image_sources import Source


def read(**fields):
    return image_sources.reader(Source(**fields)).read()


def count(**fields):
    return image_sources.reader(Source(**fields)).count()


@pytest.mark.parametrize("channels", [(), (3,)])
def test_an_npz_is_read_as_it_was_written(tmp_path, channels):
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 6, *channels), dtype=np.uint8)
    path = write_npz(tmp_path / "x.npz", 5, images=images)
    found = read(input_path=path)
    np.testing.assert_array_equal(found.images, images.reshape(5, 4, 6, -1))
    np.testing.assert_array_equal(found.labels, [0, 1, 2, 0, 1])
    assert (found.image_shape, found.white, found.classes) == ((4, 6, *(channels or (1,))), 255, 3)
    assert count(input_path=path) == 5


def test_class_names_of_an_npz_are_kept_and_counted(tmp_path):
    path = write_npz(tmp_path / "x.npz", class_names=np.array(["cat", "dog", "eel", "fly"]))
    found = read(input_path=path)
    assert (found.class_names, found.classes) == (("cat", "dog", "eel", "fly"), 4)


def test_the_folder_of_cifar_is_recognized(tmp_path):
    content, images = cifar_records(np.arange(10_000) % 9)
    (tmp_path / "test_batch.bin").write_bytes(content)
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10))
    found = read(input_path=str(tmp_path), subset="test")
    np.testing.assert_array_equal(found.images, images)
    assert (found.classes, found.class_names) == (10, tuple(CIFAR10))
    assert count(input_path=str(tmp_path), subset="test") == 10_000
    assert count(input_path=write_archive(tmp_path / "x.tar.gz", {}), subset="train") == 50_000


def test_a_folder_of_images_is_recognized_and_its_files_named(tmp_path):
    image = np.zeros((4, 6, 3), np.uint8)
    path = write_folder(tmp_path, {"cat/1.png": image, "cat/2.png": image, "dog/1.png": image})
    found = read(input_path=path)
    assert found.images.tolist() == [f"{path}/{x}.png" for x in ("cat/1", "cat/2", "dog/1")]
    assert (found.image_shape, found.classes) == ((4, 6, 3), 2)
    assert found.class_names == ("cat", "dog")
    assert read(input_path=path, image_size=(8, 9)).image_shape == (8, 9, 3)
    assert count(input_path=path) == 3


def test_a_field_that_has_no_effect_on_a_format_is_refused(tmp_path):
    write_npz(tmp_path / "x.npz")
    write_folder(tmp_path / "folder", {"cat/1.png": np.zeros((4, 6, 3), np.uint8)})
    write_archive(tmp_path / "x.tar.gz", {})
    for path, fields, message in [
        ("x.npz", {"subset": "train"}, "subset='train' effect CIFAR"),
        ("x.npz", {"image_size": (8, 8)}, "image_size= effect images"),
        ("folder", {"subset": "test"}, "subset='test' effect"),
        ("x.tar.gz", {"subset": "test", "image_size": (8, 8)}, "image_size= effect"),
        ("x.tar.gz", {}, "ImageData.subset 'train' 'test'"),
        ("", {"subset": "test"}, "effect digits"),
    ]:
        with pytest.raises(ConfigError, match=saying(message)):
            read(input_path=path and str(tmp_path / path), **fields)


class TinyImages(tfds.core.GeneratorBasedBuilder):
    """A real TFDS data set: image n is 4x4x3 and all n, its label n % 4."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "label": tfds.features.ClassLabel(num_classes=5),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {"train": self._generate_examples(range(20)), "test": self._generate_examples([9])}

    def _generate_examples(self, numbers):
        for n in numbers:
            yield n, {"image": np.full((4, 4, 3), n, np.uint8), "label": n % 4}


@pytest.fixture(scope="module")
def tfds_data_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tfds"))
    TinyImages(data_dir=folder).download_and_prepare()
    return folder


def test_images_come_from_tensorflow_datasets(tfds_data_dir):
    def found(split):
        return read(tfds_name="tiny_images", tfds_split=split, tfds_data_dir=tfds_data_dir)

    whole = found("train")
    numbers = whole.images[:, 0, 0, 0]
    assert sorted(numbers) == list(range(20))
    np.testing.assert_array_equal(whole.labels, numbers % 4)
    assert (whole.classes, whole.class_names) == (5, ("0", "1", "2", "3", "4"))
    assert len(found("train[:15]").labels) == 15
    assert len(found("test").labels) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tfds_name": "tiny_imagse"}, "tiny_imagse"),
        ({"tfds_split": "tset"}, "Unknown split 'tset'"),
        ({"tfds_split": ""}, "needs a tfds_split"),
    ],
)
def test_what_tensorflow_datasets_cannot_give_is_refused(tfds_data_dir, fields, message):
    data = {"tfds_name": "tiny_images", "tfds_split": "train", "tfds_data_dir": tfds_data_dir}
    with pytest.raises(ConfigError, match=message):
        read(**{**data, **fields})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(19, int)}, "20 images 19 labels"),
        ({"labels": np.full(20, -1)}, "lowest -1"),
        ({"labels": np.zeros(20)}, "labels float64 [20] numbers"),
        ({"labels": np.zeros((20, 3), int)}, "labels int64 20 3"),
        ({"labels": np.array([{}] * 20)}, "read Object arrays"),
        ({"images": np.zeros((20, 16), np.uint8)}, "images uint8 20 16 expected"),
        ({"images": np.zeros((20, 4, 4), np.int64)}, "images int64 20 4 expected"),
        ({"images": np.zeros((0, 4, 4)), "labels": np.zeros(0, int)}, "no images"),
    ],
)
def test_an_npz_with_unusable_arrays_is_refused_by_name(tmp_path, arrays, message):
    path = write_npz(tmp_path / "x.npz", **arrays)
    with pytest.raises(ConfigError, match=saying(f"x.npz {message}")):
        read(input_path=path)


def test_an_npz_without_labels_is_refused_with_what_it_has(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, images=np.zeros((2, 4, 4)), targets=[0, 1])
    with pytest.raises(ConfigError, match=saying("x.npz targets")):
        read(input_path=str(path))


def test_a_missing_cut_or_damaged_npz_is_refused_by_name(tmp_path):
    path = tmp_path / "x.npz"

    def refused(message):
        with pytest.raises(ConfigError, match=message):
            read(input_path=str(path))

    refused(r"no file .*x\.npz")

    write_npz(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(r"x\.npz .*cut short")

    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    refused(r"x\.npz cannot be read: Bad CRC-32")

    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", "not an array")
        file.writestr("labels.npy", "not an array")
    refused(r"x\.npz: images are \|S12 \[\]")


@pytest.fixture
def corrupted(tmp_path):
    """A directory like CIFAR-10-C, with four images in each severity."""
    images = np.random.default_rng(0).integers(0, 256, [20, 32, 32, 3], np.uint8)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "gaussian_noise.npy", 255 - images)
    np.save(tmp_path / "labels.npy", np.tile([3, 0, 9, 1], 5).astype(np.uint8))
    return tmp_path, images


def test_a_corruption_and_a_severity_of_cifar_10_c_are_a_subset(corrupted):
    path, images = corrupted
    found = read(input_path=str(path), subset="gaussian_noise_2")
    np.testing.assert_array_equal(found.images, 255 - images[4:8])
    assert found.labels.tolist() == [3, 0, 9, 1]
    assert (found.classes, found.white, count(input_path=str(path), subset="fog_5")) == (10, 255, 4)


@pytest.mark.parametrize("subset", ["", "fog", "fog_0", "fog_6", "snow_1", "labels_1"])
def test_a_corruption_that_is_not_there_is_refused_with_those_that_are(corrupted, subset):
    path, _ = corrupted
    with pytest.raises(ConfigError, match=saying(f"subset={subset!r} fog, gaussian_noise")):
        read(input_path=str(path), subset=subset)


def test_damaged_corruptions_are_refused(corrupted):
    path, images = corrupted
    np.save(path / "fog.npy", images[1:])
    with pytest.raises(ConfigError, match=saying("fog.npy 19 20 labels")):
        read(input_path=str(path), subset="fog_1")
    (path / "gaussian_noise.npy").write_bytes(b"short")
    with pytest.raises(ConfigError, match=saying("gaussian_noise.npy cannot read")):
        read(input_path=str(path), subset="gaussian_noise_1")
