import numpy as np
import pytest
from image_files import write_folder
from wording import saying

from runner.errors import ConfigError
from tasks.images import image_data, image_examples, image_folders, image_packing


@pytest.fixture
def folder(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 8, 8, 3), dtype=np.uint8)
    images = {f"{'ab'[n % 2]}/{n:04}.png": image for n, image in enumerate(pixels)}
    write_folder(tmp_path / "images", images)
    return tmp_path / "images", np.concatenate([pixels[::2], pixels[1::2]])


def pack(root, out):
    lines = []
    image_packing.pack(root, out, height=8, width=8, note=lines.append)
    return lines


def read(path):
    data = image_data.ImageData(is_training=False, input_path=str(path))
    return image_examples.read(image_data.source_of(data))


def test_a_packed_folder_holds_the_images_labels_and_names_of_the_folder(tmp_path, folder):
    root, pixels = folder
    lines = pack(root, tmp_path / "x.npz")
    assert lines[:2] == ["1,000 of 1,200 images", "1,200 of 1,200 images"]
    examples = read(tmp_path / "x.npz")
    np.testing.assert_array_equal(examples.images, pixels)
    np.testing.assert_array_equal(examples.labels, np.repeat([0, 1], 600))
    assert examples.class_names == ("a", "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "x.npz"]

    written = (tmp_path / "x.npz").stat().st_mtime_ns
    assert pack(root, tmp_path / "x.npz") == [f"{tmp_path / 'x.npz'} already exists"]
    assert (tmp_path / "x.npz").stat().st_mtime_ns == written


def test_packing_goes_on_where_it_was_interrupted(tmp_path, folder, monkeypatch):
    root, pixels = folder
    load, loaded = image_folders.load, []

    def interrupted(path, height, width):
        if path.endswith("b/0901.png"):
            raise KeyboardInterrupt
        return load(path, height, width)

    with monkeypatch.context() as patch:
        patch.setattr(image_folders, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(root, tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()

    with monkeypatch.context() as patch:
        patch.setattr(
            image_folders, "load", lambda *args, **size: loaded.append(1) or load(*args, **size)
        )
        pack(root, tmp_path / "x.npz")
    assert len(loaded) == 150
    np.testing.assert_array_equal(read(tmp_path / "x.npz").images, pixels)


def test_another_list_of_files_is_not_taken_for_the_interrupted_one(tmp_path, folder):
    root, pixels = folder
    (root / "b/1199.png").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match=saying("b/1199.png image")):
        pack(root, tmp_path / "x.npz")
    (root / "b/1199.png").unlink()
    (root / "a/0000.png").unlink()
    pack(root, tmp_path / "x.npz")
    np.testing.assert_array_equal(read(tmp_path / "x.npz").images, pixels[1:-1])


def test_only_npz_files_are_written(tmp_path, folder):
    with pytest.raises(ConfigError, match=saying("x.zip ends npz")):
        pack(folder[0], tmp_path / "x.zip")
