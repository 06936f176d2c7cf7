from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization
from wording import says

from runner.run_directory.verification import tensors

KINDS = [
    "weights",
    "slots",
    "averages",
    "loss scale",
    "optimizer's counters",
    "generators",
    "training metrics",
    "parts of replicas",
    "global step",
]


class Saved:
    """One variable of every kind, in a checkpoint laid out as a trainer's."""

    def __init__(self):
        tf_keras.utils.set_random_seed(0)
        self.model = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(2)])
        adam = tf_keras.optimizers.legacy.Adam()
        average = optimization.ExponentialMovingAverage(adam)
        average.shadow_copy(self.model)
        adam._create_all_weights(self.model.trainable_variables)
        self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(average)
        self.generator = tf.random.Generator.from_seed(1)
        self.metric = tf_keras.metrics.Mean("loss")
        self.replicas = tf.Variable(0.0)
        self.step = tf.Variable(40, dtype=tf.int64)
        kernel = self.model.layers[0].kernel
        self.by_kind = {
            "weights": kernel,
            "slots": adam.get_slot(kernel, "m"),
            "averages": average.get_slot(kernel, "average"),
            "loss scale": self.optimizer._loss_scale._current_loss_scale,
            "optimizer's counters": adam.iterations,
            "generators": self.generator.state,
            "training metrics": self.metric.total,
            "parts of replicas": self.replicas,
            "global step": self.step,
        }

    def write(self, path, **more):
        checkpoint = tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            generators=[self.generator],
            train_metrics=[self.metric],
            replicas=self.replicas,
            global_step=self.step,
            **more,
        )
        checkpoint.save_counter.assign(np.random.default_rng().integers(1000))
        return checkpoint.write(str(path))


def flip(variable):
    """Changes the lowest bit of the variable's first number."""
    value = variable.numpy()
    raw = np.frombuffer(value.tobytes(), np.uint8).copy()
    raw[0] ^= 1
    variable.assign(np.frombuffer(raw.tobytes(), value.dtype).reshape(value.shape))


def differing(parts):
    return {part.kind: list(part.differences) for part in parts if part.differences}


def compare(first, second):
    return tensors.compare(Path(first), Path(second))


def weights(*values):
    return tf.train.Checkpoint(model=tf.Variable(values))


def test_checkpoints_of_the_same_state_are_the_same_however_often_they_were_saved(tmp_path):
    parts = compare(Saved().write(tmp_path / "a"), Saved().write(tmp_path / "b"))
    assert differing(parts) == {}
    assert {part.kind for part in parts} == set(KINDS)
    assert {part.kind: part.compared for part in parts}["weights"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_is_found_and_named_with_its_kind(tmp_path, kind):
    changed = Saved()
    flip(changed.by_kind[kind])

    parts = compare(Saved().write(tmp_path / "a"), changed.write(tmp_path / "b"))

    found = differing(parts)
    assert list(found) == [kind]
    assert found[kind][0].bits == 1
    assert f"1 of {tf.size(changed.by_kind[kind])} values differ" in str(found[kind][0])


def test_a_difference_has_the_variables_name_and_its_size(tmp_path):
    first, second = weights(1.0, 2.0).write(tmp_path / "a"), weights(1.0, 2.5).write(tmp_path / "b")
    found = differing(compare(first, second))
    says(str(found["weights"][0]), "1 2 values differ 0.5")


def test_nan_equals_nan_of_the_same_bits_and_no_other(tmp_path):
    quiet, payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    first = weights(1.0, quiet).write(tmp_path / "a")
    assert differing(compare(first, weights(1.0, quiet).write(tmp_path / "b"))) == {}
    found = differing(compare(first, weights(1.0, payload).write(tmp_path / "c")))
    says(str(found["weights"][0]), "1 2 values differ")


def test_zero_and_minus_zero_differ(tmp_path):
    first, second = weights(0.0).write(tmp_path / "a"), weights(-0.0).write(tmp_path / "b")
    assert differing(compare(first, second))["weights"][0].bits == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ((1.0,), "float32 [2] run [1] second"),
        ((1, 2), "float32 [2] run int32 second"),
    ],
)
def test_another_shape_or_type_is_a_difference(tmp_path, other, said):
    first, second = weights(1.0, 2.0).write(tmp_path / "a"), weights(*other).write(tmp_path / "b")
    says(str(differing(compare(first, second))["weights"][0]), said)


def test_a_variable_that_only_one_run_has_is_missing(tmp_path):
    extra = Saved().write(tmp_path / "b", extra=tf.Variable(1.0))
    parts = compare(Saved().write(tmp_path / "a"), extra)
    (found,) = differing(parts)["weights"]
    assert found.missing
    says(str(found), "extra run's")


def test_strings_are_compared_byte_by_byte_to_the_last(tmp_path):
    first, second = weights(b"a\0b").write(tmp_path / "a"), weights(b"a\0c").write(tmp_path / "b")
    longer = tf.train.Checkpoint(model=tf.Variable(b"a\0")).write(str(tmp_path / "c"))
    shorter = tf.train.Checkpoint(model=tf.Variable(b"a")).write(str(tmp_path / "d"))
    assert "values differ" in str(differing(compare(first, second))["weights"][0])
    says(str(differing(compare(longer, shorter))["weights"][0]), "uint8 [2] run")
    assert differing(compare(first, first)) == {}


def state_of(iterator):
    serialized = tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource, external_state_policy=2
    )
    return tf.Variable(tf.io.serialize_tensor(serialized))


@pytest.mark.parametrize("name", ["iterator", "inputs"])
def test_of_an_input_iterator_only_its_presence_counts(tmp_path, name):
    first, second = (iter(tf.data.Dataset.range(9)) for _ in range(2))
    next(second)
    states = [first, second] if name == "iterator" else [state_of(first), state_of(second)]
    without = Saved().write(tmp_path / "a")
    at_start = Saved().write(tmp_path / "b", **{name: states[0]})
    later = Saved().write(tmp_path / "c", **{name: states[1]})
    assert differing(compare(at_start, later)) == {}
    assert list(differing(compare(without, later))) == ["input iterator"]
