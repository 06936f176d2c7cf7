import numpy as np
import pytest
import tensorflow as tf
from image_files import write_folder
from PIL import Image
from wording import saying

from runner.errors import ConfigError
from tasks.images import image_folders


def plain(value, height=4, width=6):
    return np.full((height, width, 3), value, np.uint8)


def test_images_are_found_class_by_class_in_the_order_of_names(tmp_path):
    names = ["b/2.png", "b/1.PNG", "a/x.jpg", "c/only.webp"]
    write_folder(tmp_path, {name: plain(9) for name in names})
    write_folder(tmp_path, {".hidden/1.png": plain(9), "a/.hidden.png": plain(9)})
    (tmp_path / "readme.txt").write_text("no class")
    (tmp_path / "a/notes.txt").write_text("no image")
    found = image_folders.scan(tmp_path)
    assert found.names == ("a", "b", "c")
    assert [path.removeprefix(f"{tmp_path}/") for path in found.paths] == [
        "a/x.jpg",
        "b/1.PNG",
        "b/2.png",
        "c/only.webp",
    ]
    assert found.labels.tolist() == [0, 1, 1, 2]


def test_a_folder_without_classes_or_a_class_without_images_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("expected class")):
        image_folders.scan(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=saying("empty images")):
        image_folders.scan(tmp_path)


def test_the_common_shape_is_read_from_the_images(tmp_path):
    write_folder(tmp_path, {"a/1.png": plain(1), "b/1.bmp": plain(2)})
    assert image_folders.common_shape(image_folders.scan(tmp_path).paths) == (4, 6, 3)
    write_folder(tmp_path, {"b/2.png": plain(2, width=7)})
    message = r"b/2\.png is 7x4 pixels, but .*a/1\.png is 6x4: set ImageData\.image_size"
    with pytest.raises(ConfigError, match=message):
        image_folders.common_shape(image_folders.scan(tmp_path).paths)


def test_images_of_the_size_asked_for_keep_every_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    write_folder(tmp_path, {"a/1.png": pixels, "a/2.png": pixels[:, ::-1]})
    paths = tf.constant(image_folders.scan(tmp_path).paths)
    np.testing.assert_array_equal(image_folders.decode(paths, (4, 6, 3)), [pixels, pixels[:, ::-1]])
    assert image_folders.decode(paths[:0], (4, 6, 3)).shape == (0, 4, 6, 3)


def test_of_a_wider_image_the_middle_is_kept_and_grey_becomes_three_channels(tmp_path):
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 8:22] = 200
    Image.fromarray(pixels).save(tmp_path / "x.png")
    np.testing.assert_array_equal(image_folders.load(tmp_path / "x.png", 5, 5), plain(200, 5, 5))


def test_a_file_that_is_no_image_or_is_cut_is_named_when_it_is_decoded(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    write_folder(tmp_path, {"a/good.png": noise, "a/cut.png": noise, "a/cut.jpg": noise})
    for name in ("cut.png", "cut.jpg"):
        path = tmp_path / "a" / name
        path.write_bytes(path.read_bytes()[:1000])
        with pytest.raises(ConfigError, match=saying(f"a/{name} image damaged")):
            image_folders.load(path, 64, 64)
    (tmp_path / "a/text.png").write_text("no image")
    with pytest.raises(ConfigError, match=saying("a/text.png image damaged")):
        image_folders.common_shape(image_folders.scan(tmp_path).paths)

    batches = tf.data.Dataset.from_tensors(image_folders.scan(tmp_path).paths).map(
        lambda paths: image_folders.decode(paths, (64, 64, 3))
    )
    with pytest.raises(tf.errors.OpError, match=saying("a/cut.jpg image damaged")):
        next(iter(batches))
