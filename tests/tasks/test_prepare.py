import sys

import numpy as np
import pytest
from image_files import CIFAR10, cifar_records, write_archive, write_folder

from tasks.files import fetching
from tasks.images import cifar_files, prepare_cifar, prepare_images


def test_cifar_is_fetched_and_unpacked_once(tmp_path, capsys):
    content, images = cifar_records(np.arange(10_000) % 10)
    files = {"test_batch.bin": content, "batches.meta.txt": "\n".join(CIFAR10).encode()}
    name = "cifar-10-batches-bin"
    remote = tmp_path / "remote.tar.gz"
    write_archive(remote, {f"{name}/{file}": content for file, content in files.items()})
    archive = fetching.RemoteFile(path="local.tar.gz", url=remote.as_uri())

    folder = prepare_cifar.prepare(name, archive, tmp_path / "data")
    np.testing.assert_array_equal(cifar_files.read(folder, "test").images, images)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [name, "local.tar.gz"]

    remote.unlink()
    assert prepare_cifar.prepare(name, archive, tmp_path / "data") == folder
    assert f"{folder} already exists" in capsys.readouterr().err


def test_a_folder_of_images_is_packed(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "images", {"cat/1.png": np.zeros((9, 9, 3), np.uint8)})
    flags = ["images", "x.npz", "--height=4", "--width=5"]
    monkeypatch.setattr(sys, "argv", ["runner-prepare-images", *flags])
    prepare_images.main()
    assert np.load(tmp_path / "x.npz")["images"].shape == (1, 4, 5, 3)
    assert "x.npz: 1 images of 1 classes" in capsys.readouterr().err

    monkeypatch.setattr(sys, "argv", ["runner-prepare-images", "nowhere", *flags[1:]])
    monkeypatch.chdir(tmp_path / "images")
    with pytest.raises(SystemExit) as ended:
        prepare_images.main()
    assert ended.value.code == 2
    assert "nowhere" in capsys.readouterr().err
