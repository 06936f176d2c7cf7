"""Damage to a checkpoint is found by reading all of it."""

import numpy as np
import pytest
import tensorflow as tf
from wording import says

from runner.checkpoints import integrity

DATA = "data-00000-of-00001"


def values(path):
    reader = tf.train.load_checkpoint(str(path))
    return {key: np.asarray(reader.get_tensor(key)) for key in reader.get_variable_to_shape_map()}


def every_kind(folder):
    variables = [
        tf.Variable(tf.cast([1, 2, 3], kind))
        for kind in (tf.float32, tf.bfloat16, tf.float16, tf.int64, tf.bool, tf.complex64)
    ]
    checkpoint = tf.train.Checkpoint(
        variables=[*variables, tf.Variable("a string"), tf.Variable(tf.zeros([0, 2]))]
    )
    checkpoint.write(str(folder / "ckpt-1"))
    return folder / "ckpt-1"


def test_a_whole_checkpoint_has_no_damage(tmp_path):
    assert integrity.damage(every_kind(tmp_path)) is None


@pytest.mark.parametrize("part", ["index", DATA])
def test_a_flipped_bit_is_noticed_unless_nothing_reads_it(tmp_path, part):
    path = every_kind(tmp_path)
    before = values(path)
    file = tmp_path / f"ckpt-1.{part}"
    content = file.read_bytes()
    unnoticed = 0
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        file.write_bytes(flipped)
        if integrity.damage(path) is None:
            unnoticed += 1
            after = values(path)
            assert after.keys() == before.keys()
            assert all(np.array_equal(after[key], before[key]) for key in before)
    # The end of an index has padding, and a pointer to a block that nothing uses.
    assert unnoticed < (60 if part == "index" else 1)


@pytest.mark.parametrize("part", ["index", DATA])
def test_a_file_that_is_cut_short_anywhere_is_noticed(tmp_path, part):
    path = every_kind(tmp_path)
    file = tmp_path / f"ckpt-1.{part}"
    content = file.read_bytes()
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        assert integrity.damage(path)


def test_damage_says_what_is_missing_or_where_it_is(tmp_path):
    path = every_kind(tmp_path)
    (tmp_path / f"ckpt-1.{DATA}").rename(tmp_path / "ckpt-1.data-00001-of-00003")
    says(integrity.damage(path), "2 3 files missing")
    (tmp_path / "ckpt-1.data-00001-of-00003").unlink()
    says(integrity.damage(path), "files missing")
    says(integrity.damage(tmp_path / "ckpt-2"), "index missing")
    path = every_kind(tmp_path)
    (tmp_path / f"ckpt-1.{DATA}").write_bytes(b"")
    says(integrity.damage(path), "cut short")
