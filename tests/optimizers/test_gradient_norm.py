"""The norm that is logged is that of the gradient that is applied."""

import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.eager import context
from trainers import FLOAT16, IN_FOUR, MIRRORED, sgd, trainer

from runner.models import gradient_norm

LOGGED = {"run": {"log_gradient_norm": True}}


def chosen(kind, **fields):
    return {"trainer": {"optimizer_config": {"optimizer": {"type": kind, kind: fields}}}}


def whole_batch(made):
    """The first batch of all replicas together."""
    features, labels = next(iter(made.train_dataset))
    parts = made.strategy.experimental_local_results
    return tf.concat(parts(features), 0), tf.concat(parts(labels), 0)


def expected(made):
    features, labels = whole_batch(made)
    with tf.GradientTape() as tape:
        loss = made.task.build_losses(labels, made.model(features, training=True))
    return float(tf.linalg.global_norm(tape.gradient(loss, made.model.trainable_variables)))


@pytest.mark.parametrize(
    ("overrides", "accuracy"),
    [
        ((sgd(global_clipnorm=0.01),), 1e-5),
        ((MIRRORED, IN_FOUR), 1e-5),
        ((FLOAT16, MIRRORED), 3e-3),
        ((chosen("adamw", gradient_clip_norm=0.01),), 1e-5),
        ((chosen("adamw_experimental", global_clipnorm=0.01), FLOAT16), 3e-3),
    ],
    ids=["clipped", "mirrored in parts", "float16 mirrored", "clips first", "new float16"],
)
def test_the_norm_is_that_of_the_whole_gradient_before_it_is_clipped(tmp_path, overrides, accuracy):
    made = trainer(tmp_path, LOGGED, *overrides)
    norm = expected(made)
    logs = made.train(tf.constant(1))
    assert float(logs["gradient_norm"]) == pytest.approx(norm, rel=accuracy)


@pytest.mark.parametrize(
    "overrides",
    [
        sgd(global_clipnorm=0.01),
        chosen("adamw", gradient_clip_norm=0.01),
        chosen("adamw_experimental", global_clipnorm=0.01),
    ],
    ids=["old", "clips first", "new"],
)
def test_clipping_and_logging_take_one_pass_over_the_gradients(tmp_path, overrides):
    """TensorFlow computes once what two ask for, if both ask for it of the same tensors."""
    made = trainer(tmp_path, LOGGED, overrides)
    runtime = context.context()
    runtime.enable_run_metadata()
    made.train(tf.constant(1))
    ran = runtime.export_run_metadata()
    runtime.disable_run_metadata()
    squares = [node for graph in ran.partition_graphs for node in graph.node if node.op == "L2Loss"]
    assert len(squares) == len(made.model.trainable_variables)


def test_gradients_of_the_same_row_are_added_up_before():
    optimizer = tf_keras.optimizers.legacy.SGD(1.0)
    norm = tf_keras.metrics.Mean()
    gradient_norm.measure(optimizer, norm)
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([0, 0, 1]))
    optimizer.apply_gradients([(rows, tf.Variable(tf.zeros((3, 1))))])
    assert float(norm.result()) == 5.0


def test_without_it_nothing_is_logged(tmp_path):
    assert "gradient_norm" not in trainer(tmp_path).train(tf.constant(1))
