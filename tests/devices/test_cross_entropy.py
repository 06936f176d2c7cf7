"""Cross-entropy stays one op on a CPU, whose bits are always the same."""

import numpy as np
import pytest
import tensorflow as tf
import toy
from trainers import trainer
from wording import saying

import runner
from runner.devices import strategy
from runner.errors import ConfigError

KERNEL = "SparseSoftmaxCrossEntropyWithLogits"


@pytest.fixture(autouse=True)
def _deterministic():
    strategy.configure(toy.experiment().runtime, seed=0)


def loss_and_gradient(logits, labels):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return loss, tape.gradient(loss, logits)


def test_a_deterministic_step_has_the_kernel(tmp_path):
    graph = trainer(tmp_path).training_graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    ops = [node.op for node in nodes]
    assert KERNEL in ops
    assert "LogSoftmax" not in ops


def test_the_threads_that_share_a_batch_change_no_bit_of_it():
    random = np.random.default_rng(0)
    logits = tf.constant(random.normal(size=(4096, 1000)), tf.float32)
    labels = tf.constant(random.integers(0, 1000, 4096))
    whole = loss_and_gradient(logits, labels)
    for rows in (slice(0, 1), slice(5, 12), slice(100, 2000)):
        for part, found in zip(loss_and_gradient(logits[rows], labels[rows]), whole, strict=True):
            np.testing.assert_array_equal(part, found[rows])
    for part, found in zip(loss_and_gradient(logits, labels), whole, strict=True):
        np.testing.assert_array_equal(part, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 3)])
def test_losses_and_gradients_are_those_of_the_definition(dtype, shape):
    random = np.random.default_rng(0)
    logits = tf.cast(random.normal(size=shape), dtype)
    labels = random.integers(0, 3, shape[:-1])
    loss, gradient = loss_and_gradient(logits, labels)
    exact = np.asarray(tf.cast(logits, tf.float64))
    odds = np.exp(exact) / np.exp(exact).sum(-1, keepdims=True)
    chosen = np.eye(3)[labels]
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-6}[dtype]
    assert loss.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(
        tf.cast(loss, tf.float64), -np.log((odds * chosen).sum(-1)), atol=tolerance
    )
    np.testing.assert_allclose(tf.cast(gradient, tf.float64), odds - chosen, atol=tolerance)


def test_a_label_out_of_range_is_named(tmp_path, monkeypatch):
    def mislabelled(self, labels, model_outputs, aux_losses=None):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels + 1, model_outputs)
        )

    monkeypatch.setattr(toy.ToyTask, "build_losses", mislabelled)
    with pytest.raises(ConfigError, match=saying("label 3 outputs 0")):
        runner.run(toy.experiment(), tmp_path, "train")
