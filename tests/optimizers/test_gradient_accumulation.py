"""A batch in parts trains as the batch at once."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from resumed import compare
from trainers import FLOAT16, IN_FOUR, MIRRORED, XLA, sgd, train, trainer
from wording import saying, says

from runner.errors import ConfigError, RunnerError
from runner.models import gradient_accumulation

EAGER = {
    "runtime": {"run_eagerly": True},
    "trainer": {"train_tf_function": False, "train_tf_while_loop": False},
}


def check_same(tmp_path, *overrides, accuracy=1e-5, **fields):
    whole, weights = train(tmp_path, *overrides, **fields)
    logs, in_parts = train(tmp_path, *overrides, IN_FOUR, **fields)
    assert logs == pytest.approx(whole, rel=accuracy)
    for one, other in zip(in_parts, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize(
    ("overrides", "accuracy"),
    [
        ((), 1e-5),
        ((FLOAT16, MIRRORED), 3e-3),
        ((XLA,), 1e-5),
        ((EAGER,), 1e-5),
        ((sgd(global_clipnorm=0.1),), 1e-5),
    ],
    ids=["off", "float16 mirrored", "xla", "eager", "clipped"],
)
def test_parts_train_as_the_whole_batch_and_every_example_counts_once(
    tmp_path, overrides, accuracy
):
    """Gradients that were clipped in each part would add up to another direction."""
    check_same(tmp_path, *overrides, accuracy=accuracy)


class Words(toy.ToyTask):
    """Tells classes by the sum of an embedding's rows, whose gradients are slices."""

    def build_model(self):
        points = tf_keras.Input((4,))
        rows = tf_keras.layers.Lambda(lambda x: tf.cast(tf.abs(x) * 3, tf.int32) % 10)(points)
        words = tf_keras.layers.Embedding(10, 3)(rows)
        return tf_keras.Model(points, tf_keras.layers.GlobalAveragePooling1D()(words))


@pytest.mark.parametrize(
    "overrides", [(MIRRORED,), (sgd(momentum=0.0), XLA)], ids=["mirrored", "xla"]
)
def test_gradients_of_rows_stay_gradients_of_rows(tmp_path, overrides):
    """Momentum leaves the rows that a batch does not have alone, if it is told only of the rest."""
    check_same(tmp_path, *overrides, task=Words)


class Asking(toy.ToyTask):
    """A train_step of its own: it asks its optimizer, and branches on a tensor."""

    traces = 0

    def train_step(self, inputs, model, optimizer, metrics=None):
        Asking.traces += 1
        points, labels = inputs
        with tf.GradientTape() as tape:
            loss = self.build_losses(labels, model(points, training=True))
            if tf.reduce_max(points) > 1:  # AutoGraph's
                loss *= 0.5
        assert not isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
        assert isinstance(optimizer, tf_keras.optimizers.legacy.SGD)
        rate = optimizer.learning_rate + 0.0
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip((each * rate for each in gradients), model.trainable_variables, strict=True)
        )
        return {"loss": loss}


def test_the_step_is_traced_as_often_whatever_the_number_of_parts(tmp_path):
    """One after the other, not side by side: the activations of one part are alive at a time."""
    counts = []
    for parts in (2, 4):
        Asking.traces = 0
        train(tmp_path, {"run": {"gradient_accumulation": parts}}, task=Asking)
        counts.append(Asking.traces)
    assert counts[0] == counts[1]


def test_the_parts_are_the_batch_in_order_whatever_it_is_made_of():
    rows = tf.ragged.constant([[1], [], [2, 3], [4], [5, 6], [7]])
    sparse = tf.sparse.from_dense([[0, 1], [2, 0], [0, 3], [4, 4], [0, 0], [5, 0]])
    batch = {"dense": tf.range(6), "ragged": rows, "sparse": sparse, "scalar": tf.constant(3)}
    seen = []

    class Optimizer:
        iterations = tf.Variable(0)

        def apply_gradients(self, grads_and_vars):
            self.iterations.assign_add(1)

    def task_step(inputs, model, optimizer, metrics):
        seen.append(
            {
                name: value.numpy() if name != "ragged" else value.to_list()
                for name, value in (
                    inputs | {"sparse": tf.sparse.to_dense(inputs["sparse"])}
                ).items()
            }
        )
        optimizer.apply_gradients([(tf.constant(1.0), None)])
        return {"loss": tf.reduce_sum(inputs["dense"])}

    optimizer = Optimizer()
    step = gradient_accumulation.accumulated(task_step, 3, "loss")
    logs = step(batch, model=None, optimizer=optimizer, metrics=None)
    assert float(logs["loss"]) == 5.0  # of 1, 5 and 9
    assert optimizer.iterations.numpy() == 1
    assert [part["dense"].tolist() for part in seen] == [[0, 1], [2, 3], [4, 5]]
    assert [part["ragged"] for part in seen] == [[[1], []], [[2, 3], [4]], [[5, 6], [7]]]
    assert [part["sparse"].tolist() for part in seen] == [
        [[0, 1], [2, 0]],
        [[0, 3], [4, 4]],
        [[0, 0], [5, 0]],
    ]
    assert [part["scalar"] for part in seen] == [3, 3, 3]


def test_a_run_in_parts_resumes_exactly(tmp_path):
    """With dropout, a loss scale, a group of variables and the gradients' norm."""
    kernels = {"name": "kernels", "pattern": "kernel", "rate_scale": 2.0, "initializer": "zeros"}
    fields = {"log_gradient_norm": True, "variable_groups": [kernels]}

    def make(steps):
        made = toy.experiment({"trainer": {"train_steps": steps}})
        for each in (FLOAT16, IN_FOUR, {"run": fields}):
            made.override(each)
        return made

    compare(tmp_path, make)


# What is wrong.


@pytest.mark.parametrize(
    ("strategy", "parts", "said"),
    [
        ({}, 3, "8 split 3 parts RunConfig.gradient_accumulation 6 9"),
        (MIRRORED, 3, "8 shared 2 replicas 3"),
        ({}, 16, "16 parts RunConfig.gradient_accumulation"),
    ],
)
def test_a_batch_that_makes_no_equal_parts_is_refused(tmp_path, strategy, parts, said):
    with pytest.raises(ConfigError) as error:
        trainer(tmp_path, strategy, {"run": {"gradient_accumulation": parts}})
    says(str(error.value), said)


class Uneven(toy.ToyTask):
    """Batches of a size that its configuration does not tell."""

    def build_inputs(self, params, input_context=None):
        dataset = tf.data.Dataset.from_tensor_slices(toy.data(30)).repeat()
        return dataset.batch(6, drop_remainder=self.task_config.repeats)


@pytest.mark.parametrize("known", [True, False])
def test_batches_of_the_tasks_own_that_make_no_equal_parts_are_named(tmp_path, known):
    with pytest.raises(Exception, match=saying("gradient_accumulation 4 equal")):
        train(tmp_path, IN_FOUR, task=Uneven, repeats=known)


def test_a_step_that_applies_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        toy.ToyTask, "train_step", lambda self, inputs, **_: {"loss": tf.constant(1.0)}
    )
    with pytest.raises(RunnerError, match=saying("apply_gradients called 0 times")):
        trainer(tmp_path, IN_FOUR)
