import image_files as images
import numpy as np
import pytest
import tensorflow as tf
from wording import saying

from runner.data import iterators
from runner.errors import ConfigError
from runner.internals import image_files


@pytest.mark.parametrize("is_distributed", [False, True])
def test_a_damaged_image_is_named_however_the_dataset_is_read(tmp_path, is_distributed):
    images.write_folder(tmp_path, {"good.png": np.zeros((4, 4, 3), np.uint8)})
    (tmp_path / "cut.png").write_bytes(b"no image")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    dataset = tf.data.Dataset.from_tensor_slices(paths)
    dataset = dataset.map(lambda path: tf.io.decode_png(tf.io.read_file(path))).repeat()
    if is_distributed:
        devices = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        dataset = iterators.HostDataset(dataset, devices)
    iterator = iter(dataset)
    with (
        pytest.raises(ConfigError, match=saying("cut.png")),
        image_files.damage_named(dataset),
    ):
        next(iterator)
