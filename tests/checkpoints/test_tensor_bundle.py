"""Checkpoints are read without TensorFlow as TensorFlow reads them."""

import numpy as np
import pytest
import tensorflow as tf

from runner.checkpoints import tensor_bundle
from runner.internals import checkpoint_keys

VALUES = {
    "float": tf.random.normal((300, 7), seed=1),
    "half": tf.constant([1.5, -2.0], tf.float16),
    "brain": tf.constant([[1.5], [-2.0]], tf.bfloat16),
    "integer": tf.constant(-5, tf.int64),
    "small": tf.constant([1, 255], tf.uint8),
    "truth": tf.constant([True, False]),
    "complex": tf.constant([1 + 2j], tf.complex64),
    "none": tf.zeros((0, 3)),
    "text": tf.constant(b"a text"),
}


@pytest.fixture(params=[1, 40], ids=["few", "many"])
def saved(request, tmp_path):
    """The path of a checkpoint, and its tensors; of many, names share beginnings."""
    tensors = {f"{name}/{n}": value for n in range(request.param) for name, value in VALUES.items()}
    path = tmp_path / "ckpt-1"
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return path, tensors


def test_each_tensor_has_its_type_shape_and_bytes(saved):
    path, tensors = saved
    bundle = tensor_bundle.Bundle(path)
    assert sorted(bundle.names) == sorted(tensors)
    for name, value in tensors.items():
        found = bundle.read(name)
        if value.dtype == tf.string:
            assert found.tobytes() == value.numpy()
        else:
            assert (found.dtype, found.shape) == (value.numpy().dtype, tuple(value.shape))
            assert found.tobytes() == value.numpy().tobytes()
        assert not bundle.is_changed(name)


def test_a_changed_bit_is_seen_by_the_checksum(saved):
    path, _ = saved
    data = path.with_name("ckpt-1.data-00000-of-00001")
    text = bytearray(data.read_bytes())
    text[tensor_bundle.Bundle(path).place("float/0") + 100] ^= 16
    data.write_bytes(text)
    bundle = tensor_bundle.Bundle(path)
    assert [name for name in bundle.names if bundle.is_changed(name)] == ["float/0"]


def test_variables_have_the_names_that_the_model_gave_them(tmp_path):
    variable = tf.Variable([1.0], name="dense/kernel")
    path = tf.train.Checkpoint(weight=variable).write(str(tmp_path / "ckpt-1"))
    names = tensor_bundle.Bundle(tmp_path / "ckpt-1").variables
    assert path.endswith("ckpt-1")
    assert names[f"weight{checkpoint_keys.VALUE}"] == "dense/kernel"


@pytest.mark.parametrize("cut", [10, 100])
def test_a_damaged_index_is_told(saved, cut):
    path, _ = saved
    index = path.with_name("ckpt-1.index")
    index.write_bytes(index.read_bytes()[:-cut])
    with pytest.raises(tensor_bundle.DamagedError, match=r"ckpt-1.index is damaged"):
        tensor_bundle.Bundle(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(tensor_bundle.DamagedError, match="No such file"):
        tensor_bundle.Bundle(tmp_path / "ckpt-1")


def test_partitioned_tensors_are_compared_as_they_are_stored(tmp_path):
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt-1"),
        tensor_names=["a", "a"],
        shape_and_slices=["4 0,2", "4 2,2"],
        tensors=[tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])],
    )
    bundle = tensor_bundle.Bundle(tmp_path / "ckpt-1")
    stored = b"".join(bytes(bundle.raw(name)) for name in bundle.names)
    assert stored == np.array([1, 2, 3, 4], np.float32).tobytes()
