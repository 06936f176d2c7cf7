import re

import numpy as np
import pytest
from image_files import CIFAR10, cifar_records, write_archive
from wording import saying

from runner.errors import ConfigError
from tasks.images import cifar_files

LABELS = np.arange(10_000) % 10


@pytest.fixture(scope="module")
def test_batch():
    return cifar_records(LABELS)


@pytest.fixture
def cifar10(tmp_path, test_batch):
    """The folder of CIFAR-10's binary version, its training batches left out."""
    (tmp_path / "test_batch.bin").write_bytes(test_batch[0])
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    return tmp_path


def test_the_test_images_of_cifar_10_are_read_as_they_were_written(cifar10, test_batch):
    assert cifar_files.is_here(cifar10)
    found = cifar_files.read(cifar10, "test")
    np.testing.assert_array_equal(found.images, test_batch[1])
    np.testing.assert_array_equal(found.labels, LABELS)
    assert (found.classes, found.names) == (10, tuple(CIFAR10))


def test_the_five_training_batches_of_cifar_10_come_in_order(tmp_path):
    written = [cifar_records(np.full(10_000, batch)) for batch in range(5)]
    for number, (content, _) in enumerate(written, start=1):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(content)
    found = cifar_files.read(tmp_path, "train")
    assert found.images.shape == (50_000, 32, 32, 3)
    np.testing.assert_array_equal(found.labels, np.repeat(np.arange(5), 10_000))
    assert found.names == ()


def test_of_cifar_100_the_fine_labels_count(tmp_path):
    fine = np.arange(10_000) % 100
    content, images = cifar_records(fine, coarse=fine % 20)
    (tmp_path / "test.bin").write_bytes(content)
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"fine_{n}" for n in range(100)))
    found = cifar_files.read(tmp_path, "test")
    np.testing.assert_array_equal(found.labels, fine)
    np.testing.assert_array_equal(found.images, images)
    assert (found.classes, found.names[99]) == (100, "fine_99")


def test_the_archive_is_read_as_it_was_downloaded(tmp_path, test_batch):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = {
        "cifar-10-batches-bin/batches.meta.txt": "\n".join(CIFAR10).encode(),
        "cifar-10-batches-bin/test_batch.bin": test_batch[0],
    }
    write_archive(path, files)
    assert cifar_files.is_here(path)
    found = cifar_files.read(path, "test")
    np.testing.assert_array_equal(found.images, test_batch[1])
    assert found.names == tuple(CIFAR10)

    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=saying("cifar-10-binary.tar.gz archive")):
        cifar_files.read(path, "test")


def test_other_archives_and_missing_files_are_refused_by_name(tmp_path, cifar10):
    path = tmp_path / "x.tar.gz"
    write_archive(path, {"readme.txt": b"nothing"})
    with pytest.raises(ConfigError, match=saying("x.tar.gz binary CIFAR-10")):
        cifar_files.read(path, "train")
    with pytest.raises(ConfigError, match=saying("file nowhere.tgz")):
        cifar_files.read(tmp_path / "nowhere.tgz", "train")
    with pytest.raises(ConfigError, match=saying("data_batch_1.bin belongs CIFAR-10")):
        cifar_files.read(cifar10, "train")


def test_a_file_of_another_size_is_refused_with_both_sizes(cifar10, test_batch):
    (cifar10 / "test_batch.bin").write_bytes(test_batch[0][:12_345])
    message = "test_batch.bin: 12,345 bytes; expected 10,000 records of 3,073 bytes"
    with pytest.raises(ConfigError, match=re.escape(message)):
        cifar_files.read(cifar10, "test")


def test_a_label_that_does_not_exist_is_refused_with_its_record(cifar10, test_batch):
    content = bytearray(test_batch[0])
    content[17 * 3073] = 11
    (cifar10 / "test_batch.bin").write_bytes(content)
    with pytest.raises(ConfigError, match=saying("test_batch.bin record 17 label 11 CIFAR-10")):
        cifar_files.read(cifar10, "test")


def test_a_folder_of_other_things_is_no_cifar(tmp_path):
    assert not cifar_files.is_here(tmp_path)
    assert not cifar_files.is_here(tmp_path / "x.npz")
