"""What does not fit, or is damaged, is not restored, and the message says why."""

import pytest
import tensorflow as tf
import tf_keras
from wording import saying, says

from runner.checkpoints import checkpoint_manager, restore, retention
from runner.errors import ConfigError, RunnerError


class Model(tf.Module):
    def __init__(self, value=0.0, size=3):
        self.weights = tf.Variable(tf.fill([size], value))


def write(folder, step=1, **parts):
    made = tf.train.Checkpoint(**parts)
    keep = retention.Keep(5)
    checkpoint_manager.Checkpoints(made, folder, keep=keep, asynchronous=False).commit(step)


def test_a_changed_model_is_a_mistake_that_lists_what_changed(tmp_path):
    write(tmp_path, model=Model())
    larger = tf.train.Checkpoint(model=Model(1.0, size=4))
    with pytest.raises(ConfigError, match=saying("ckpt-1 written model")) as error:
        restore.restore(larger, tmp_path / "ckpt-1")
    assert "differently shaped: 1" in str(error.value)
    says(str(error.value), "model/weights float32 3 checkpoint 4")
    assert larger.model.weights.numpy().tolist() == [1.0] * 4  # untouched
    more = tf.train.Checkpoint(model=Model(), other=Model())
    for partly in (False, True):
        with pytest.raises(ConfigError, match=r"missing .*: 1\n    other/weights float32 \(3,\)"):
            restore.restore(more, tmp_path / "ckpt-1", partly=partly)


def test_what_only_the_checkpoint_has_is_an_error_for_training_but_not_for_evaluation(tmp_path):
    write(tmp_path, model=Model())
    with pytest.raises(ConfigError, match=r"unexpected .*: 1\n    model/weights float32 \(3,\)"):
        restore.restore(tf.train.Checkpoint(), tmp_path / "ckpt-1")
    restore.restore(tf.train.Checkpoint(), tmp_path / "ckpt-1", partly=True)
    with pytest.raises(ConfigError, match="missing") as error:
        restore.restore(tf.train.Checkpoint(more=Model()), tmp_path / "ckpt-1", partly=True)
    assert "unexpected" not in str(error.value)


def test_only_what_model_garden_never_saves_may_be_missing(tmp_path):
    whole = {"inputs": tf.Variable(b"a"), "train_metrics": [tf_keras.metrics.Mean()]}
    whole["train_metrics"][0].update_state(3.0)
    now = tf.train.Checkpoint(model=Model(), **whole)
    write(tmp_path, model=Model(1.0))
    restore.restore(now, tmp_path / "ckpt-1")
    assert now.model.weights.numpy().tolist() == [1.0] * 3
    assert float(now.train_metrics[0].count) == 0  # nothing says what it was
    assert now.inputs.numpy() == b""
    write(tmp_path, 2, **whole)
    restored = tf.train.Checkpoint(model=Model(), **whole)
    with pytest.raises(ConfigError, match="missing"):
        restore.restore(restored, tmp_path / "ckpt-2")
    write(tmp_path, 3, model=Model(), inputs=whole["inputs"])
    with pytest.raises(ConfigError, match="train_metrics"):
        restore.restore(now, tmp_path / "ckpt-3")


def test_what_is_no_variable_is_missed_too(tmp_path):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    write(tmp_path, table=table)
    with pytest.raises(ConfigError, match=r"unexpected .*: 1\n    table\n"):
        restore.restore(tf.train.Checkpoint(), tmp_path / "ckpt-1")
    write(tmp_path, 2, model=Model())
    with pytest.raises(ConfigError, match="MutableHashTable"):
        restore.restore(tf.train.Checkpoint(model=Model(), table=table), tmp_path / "ckpt-2")


def test_a_damaged_checkpoint_is_no_changed_model(tmp_path):
    write(tmp_path, model=Model())
    file = tmp_path / "ckpt-1.data-00000-of-00001"
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunnerError, match=r"ckpt-1 is damaged: .*hecksum") as error:
        restore.restore(tf.train.Checkpoint(model=Model()), tmp_path / "ckpt-1")
    assert error.value.exit_code == 1
