"""Records are skipped before the first map where the graph shows that nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf

from runner.internals import pipelines

COUNT = 50  # examples


def examples():
    return tf.data.Dataset.range(COUNT)


def double(number):
    return number * 2


def counted(counter):
    def decode(number):
        counter.append(int(number))
        return np.int64(2) * number

    return lambda x: tf.ensure_shape(tf.numpy_function(decode, [x], tf.int64), [])


SKIPPING = {
    "map": lambda: examples().shuffle(9, seed=1).repeat().map(double).batch(4),
    "parallel": lambda: (
        examples().repeat().map(double, num_parallel_calls=2).batch(4, drop_remainder=True)
    ),
    "map of batches": lambda: examples().repeat().batch(4).map(double).prefetch(2),
    "maps around a batch": lambda: examples().repeat().map(double).batch(4).map(double),
    "two batches": lambda: examples().repeat().map(double).batch(2).batch(3),
    "pairs": lambda: examples().repeat().map(lambda x: (x, x + 1)).map(tf.add).batch(4),
    "a pair of one": lambda: examples().map(lambda x: (x,)).map(lambda x: (x + 1,)).batch(4),
    "dictionaries": lambda: examples().map(lambda x: {"a": x}).map(lambda x: x["a"]).batch(4),
    "a partial batch": lambda: examples().map(double).batch(4),
    "captured": lambda: examples().map(lambda x: x + tf.constant(1, tf.int64)).batch(4),
    "an outer draw": lambda: (
        examples().map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64)).map(double).batch(4)
    ),
    "options": lambda: examples().map(double).batch(4).with_options(tf.data.Options()),
}


@pytest.mark.parametrize("kind", SKIPPING)
@pytest.mark.parametrize("elements", [1, 5, 12, 40])
def test_what_follows_is_the_same(kind, elements):
    tf.random.set_seed(1)
    whole = SKIPPING[kind]().skip(elements)
    tf.random.set_seed(1)
    found = pipelines.skipping(SKIPPING[kind](), elements)
    assert found.dataset.element_spec == whole.element_spec
    for old, new in zip(whole.take(20), found.dataset.take(20), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, old, new)


REFUSED = {
    "nothing to save": lambda: examples().batch(4),
    "draws": lambda: examples().map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64)).batch(4),
    "Python": lambda: examples().map(counted([])).batch(4),
    "a shuffle above": lambda: examples().map(double).shuffle(9).batch(4),
    "a repetition above": lambda: examples().map(double).repeat().batch(4),
    "a filter above": lambda: examples().map(double).filter(lambda x: x % 3 > 0).batch(4),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_pipelines_are_refused(kind):
    with pytest.raises(pipelines.UnsupportedError):
        pipelines.skipping(REFUSED[kind](), 3)


def test_what_is_skipped_is_not_decoded():
    seen = []
    found = pipelines.skipping(examples().map(double).batch(4), 5)
    assert found.records == 20
    below = examples().map(counted(seen)).map(double).batch(4)
    first = next(iter(pipelines.skipping(below, 5).dataset))  # Python is called for all of them
    assert first.numpy().tolist() == [80, 84, 88, 92]
    assert seen[:21] == list(range(21))


def test_damaged_records_that_are_skipped_are_not_seen():
    def decode(number):
        return tf.debugging.check_numerics(
            tf.math.log(tf.cast(number, tf.float32) + 0.5), "damaged"
        )

    whole = tf.data.Dataset.range(-4, COUNT).map(decode).batch(4)
    assert np.isfinite(next(iter(pipelines.skipping(whole, 1).dataset))).all()
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(whole.skip(1)))
