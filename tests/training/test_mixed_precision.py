"""Training in float16 and bfloat16 moves the weights."""

import numpy as np
import pytest
import tensorflow as tf
import toy
from trainers import ADAM, BFLOAT16, FLOAT16, MIRRORED, trainer


@pytest.fixture
def steep(monkeypatch):
    """A loss so large that its gradients overflow float16 under the first loss scales."""
    losses = toy.ToyTask.build_losses
    monkeypatch.setattr(toy.ToyTask, "build_losses", lambda *args, **kw: 1e3 * losses(*args, **kw))


def scale(made):
    return float(made.optimizer.loss_scale)


@pytest.mark.parametrize("precision", [FLOAT16, BFLOAT16], ids=["float16", "bfloat16"])
def test_the_loss_falls(tmp_path, precision):
    made = trainer(tmp_path, precision, ADAM)
    first = float(made.train(tf.constant(10))["training_loss"])
    before = made.model.get_weights()
    last = float(made.train(tf.constant(10))["training_loss"])
    assert last < 0.9 * first
    assert all(weight.dtype == np.float32 for weight in before)
    for one, other in zip(before, made.model.get_weights(), strict=True):
        assert not np.array_equal(one, other)


@pytest.mark.parametrize("strategy", [{}, MIRRORED], ids=["off", "mirrored"])
def test_a_step_that_overflows_changes_nothing_but_the_loss_scale(tmp_path, strategy, steep):
    made = trainer(tmp_path, FLOAT16, ADAM, strategy, {"run": {"log_gradient_norm": True}})
    first, before = scale(made), made.model.get_weights()
    logs = made.train(tf.constant(1))
    assert scale(made) == first / 2
    assert np.isfinite(float(logs["training_loss"]))
    assert float(logs["gradient_norm"]) == 0  # nothing was applied
    for one, other in zip(before, made.model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    made.train(tf.constant(20))
    assert 1 <= scale(made) < first
    assert not np.array_equal(before[0], made.model.get_weights()[0])


def test_the_loss_scale_is_in_the_checkpoint(tmp_path, steep):
    made = trainer(tmp_path, FLOAT16, ADAM)
    made.train(tf.constant(3))
    path = made.checkpoint.write(str(tmp_path / "three"))
    other = trainer(tmp_path, FLOAT16, ADAM)
    other.checkpoint.read(path).assert_consumed()
    assert scale(other) == scale(made) < 2**15
