import itertools

import numpy as np
import pytest
import tensorflow as tf
from wording import saying

from runner import inputs
from runner.errors import ConfigError


def config(**fields):
    return inputs.DataConfig(**{"global_batch_size": 4, "is_training": True, **fields})


def same(index):
    return index


def take(dataset, count):
    return [batch.numpy().tolist() for batch in dataset.take(count)]


def placed(size, count, *, input_context=None, **fields):
    """The example indices of the first `count` batches."""
    return take(
        inputs.place(size, same, config=config(**fields), input_context=input_context), count
    )


def ordered(size, *, input_context=None, **fields):
    dataset = inputs.in_order(
        size, same, config=config(is_training=False, **fields), input_context=input_context
    )
    return [batch.tolist() for batch in dataset.as_numpy_iterator()]


def contexts(pipelines, replicas):
    return [tf.distribute.InputContext(pipelines, number, replicas) for number in range(pipelines)]


@pytest.mark.parametrize("start", [1, 3, 11])
def test_a_batch_is_the_same_wherever_the_data_start(start):
    assert placed(10, 5, start_step=start) == placed(10, start + 5)[start:]


@pytest.mark.parametrize(("size", "batch"), [(12, 4), (10, 4), (3, 8), (1, 2)])
def test_every_epoch_holds_every_example_once_even_where_batches_span_epochs(size, batch):
    stream = list(itertools.chain(*placed(size, 20, global_batch_size=batch)))
    epochs = [stream[first : first + size] for first in range(0, len(stream) - size + 1, size)]
    assert all(sorted(epoch) == list(range(size)) for epoch in epochs)


def test_every_epoch_has_an_order_of_its_own():
    epochs = placed(50, 300, global_batch_size=50)
    assert len({tuple(epoch) for epoch in epochs}) == 300


def test_every_seed_has_an_order_of_its_own():
    seeds = [None, 1, 256, 2**16, 2**32, 2**40, -1]
    assert len({tuple(placed(50, 1, seed=seed, global_batch_size=50)[0]) for seed in seeds}) == 7


def test_no_seed_is_seed_0():
    assert placed(50, 3) == placed(50, 3, seed=0)


@pytest.mark.parametrize("size", [1797, 50_000])
def test_the_orders_of_neighbouring_epochs_are_unrelated(size):
    orders = placed(size, 12, global_batch_size=size)
    correlations = np.corrcoef(orders)[np.triu_indices(12, 1)]
    # Of independent orders these are normal with deviation 1 / sqrt(size).
    assert np.abs(correlations).max() * np.sqrt(size) < 4


@pytest.mark.parametrize(("pipelines", "replicas"), [(1, 2), (2, 2), (2, 4), (3, 6)])
def test_the_shares_of_all_replicas_make_the_batch_of_one(pipelines, replicas):
    each = replicas // pipelines
    shares = [
        placed(10, 5 * each, global_batch_size=12, start_step=3, input_context=context)
        for context in contexts(pipelines, replicas)
    ]
    steps = [
        list(itertools.chain(*(part for share in shares for part in share[n * each :][:each])))
        for n in range(5)
    ]
    assert steps == placed(10, 5, global_batch_size=12, start_step=3)


def test_mirrored_replicas_get_the_shares_in_order():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def global_batches(dataset_fn, count):
        distributed = iter(strategy.distribute_datasets_from_function(dataset_fn))
        return [
            list(itertools.chain(*strategy.experimental_local_results(next(distributed))))
            for _ in range(count)
        ]

    train = config(global_batch_size=8, start_step=2)
    batches = global_batches(lambda c: inputs.place(9, same, config=train, input_context=c), 4)
    assert batches == placed(9, 4, global_batch_size=8, start_step=2)

    scored = config(global_batch_size=8)
    batches = global_batches(lambda c: inputs.in_order(11, same, config=scored, input_context=c), 2)
    assert batches == [list(range(8)), list(range(8, 11))]


def test_a_step_far_beyond_32_bits_of_examples_is_reached():
    far = 10**9
    batches = placed(1797, 4, global_batch_size=128, start_step=far)
    assert batches[1:] == placed(1797, 3, global_batch_size=128, start_step=far + 1)
    assert all(0 <= index < 1797 for batch in batches for index in batch)


def test_training_batches_have_a_static_shape_and_never_end():
    dataset = inputs.place(3, same, config=config(global_batch_size=8))
    assert dataset.element_spec.shape == [8]
    assert len(take(dataset, 100)) == 100


def seeds_by_epoch_and_example(batch, *, size=7, epochs=6, start_step=0, seed=0):
    dataset = inputs.place(
        size,
        same,
        config=config(global_batch_size=batch, start_step=start_step, seed=seed),
        augment=lambda index, seeds: (index, seeds),
    )
    found, position = {}, start_step * batch
    for index, seeds in dataset.as_numpy_iterator():
        for example, own in zip(index.tolist(), seeds.tolist(), strict=True):
            if position == size * epochs:
                return found
            found[position // size, example] = tuple(own)
            position += 1
    raise AssertionError("training data ended")


def test_seeds_of_augmentation_depend_on_epoch_and_example_but_not_on_the_batch():
    seeds = seeds_by_epoch_and_example(4)
    assert seeds == seeds_by_epoch_and_example(5)
    assert seeds.items() >= seeds_by_epoch_and_example(4, start_step=6).items()
    assert len(set(seeds.values())) == 6 * 7


def test_seeds_of_augmentation_depend_on_the_seed():
    one, other = seeds_by_epoch_and_example(4), seeds_by_epoch_and_example(4, seed=1)
    assert not set(one.values()) & set(other.values())


def test_random_numbers_of_an_example_do_not_depend_on_the_others():
    seeds = tf.constant([[1, 2], [2**62, 7], [0, 0]], tf.int64)
    together = inputs.uniform(seeds, 5)
    alone = tf.concat([inputs.uniform(seeds[n : n + 1], 5) for n in range(3)], axis=0)
    np.testing.assert_array_equal(together, alone)


def test_random_numbers_are_spread_evenly_over_the_unit_interval():
    seeds = tf.stack([tf.range(5000, dtype=tf.int64), tf.zeros(5000, tf.int64)], axis=1)
    numbers = inputs.uniform(seeds, 4).numpy()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    shares = np.histogram(numbers, bins=10, range=(0, 1))[0] / numbers.size
    np.testing.assert_allclose(shares, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(4)).max() < 0.05


@pytest.mark.parametrize("size", [1, 4, 9, 12])
@pytest.mark.parametrize("batch", [1, 4, 20])
def test_an_evaluation_reads_every_example_once_and_in_order(size, batch):
    batches = ordered(size, global_batch_size=batch)
    assert list(itertools.chain(*batches)) == list(range(size))
    assert {len(one) for one in batches[:-1]} <= {batch}


@pytest.mark.parametrize(("pipelines", "replicas"), [(1, 2), (2, 2), (2, 4)])
@pytest.mark.parametrize("size", [1, 9, 13, 16])
def test_an_evaluation_reads_every_example_once_over_all_replicas(size, pipelines, replicas):
    shares = [
        ordered(size, global_batch_size=8, input_context=context)
        for context in contexts(pipelines, replicas)
    ]
    assert sorted(itertools.chain(*itertools.chain(*shares))) == list(range(size))
    assert all(part for share in shares for part in share)


def test_the_last_batch_of_an_evaluation_can_be_dropped():
    assert ordered(9, drop_remainder=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("size", "fields", "message"),
    [
        (0, {}, "are empty"),
        (9, {"global_batch_size": 0}, "global_batch_size=0"),
        (9, {"global_batch_size": -4}, "global_batch_size=-4"),
        (9, {"shuffle_buffer_size": 1000}, "shuffle_buffer_size=1000 has no effect"),
        (9, {"cache": True}, "cache=True has no effect"),
        (9, {"deterministic": False}, "deterministic=False"),
    ],
)
def test_what_makes_no_batches_is_refused(size, fields, message):
    with pytest.raises(ConfigError, match=message):
        placed(size, 1, **fields)
    with pytest.raises(ConfigError, match=message):
        ordered(size, **fields)


def test_a_batch_that_the_replicas_cannot_share_evenly_is_refused():
    with pytest.raises(ConfigError, match=saying("global_batch_size=7 2 replicas 8")):
        placed(9, 1, global_batch_size=7, input_context=tf.distribute.InputContext(1, 0, 2))


def test_an_evaluation_of_less_than_one_whole_batch_cannot_be_dropped():
    with pytest.raises(ConfigError, match=saying("leaves 3 examples")):
        ordered(3, drop_remainder=True)


# How many there are.


def test_a_configuration_may_say_how_many_examples_there_are():
    assert config().size() is None
    assert config(num_examples=10).size() == 10
    assert placed(10, 3, num_examples=10) == placed(10, 3)


def test_a_wrong_number_of_examples_is_refused():
    with pytest.raises(ConfigError, match=saying("num_examples=9 training data 10")):
        placed(10, 1, num_examples=9)
    with pytest.raises(ConfigError, match=saying("num_examples=9 evaluation data 10")):
        ordered(10, num_examples=9)


# How fast they come.


@pytest.mark.parametrize(
    "fields",
    [
        {"num_parallel_calls": 1},
        {"num_parallel_calls": 3},
        {"prefetch_buffer_size": 1},
        {"num_parallel_calls": 2, "prefetch_buffer_size": 7},
    ],
)
def test_the_batches_are_the_same_at_every_pace(fields):
    def augment(index, seeds):
        return tf.stack([tf.cast(index, tf.float32), inputs.uniform(seeds, 1)[:, 0]], axis=1)

    def read(**given):
        data = inputs.place(50, same, config=config(**given), augment=augment)
        return np.concatenate([batch.numpy() for batch in data.take(40)])

    np.testing.assert_array_equal(read(**fields), read())
    assert ordered(9, **fields) == ordered(9)


@pytest.mark.parametrize("field", ["num_parallel_calls", "prefetch_buffer_size"])
def test_less_than_nothing_at_a_time_is_refused(field):
    with pytest.raises(ConfigError, match=saying(f"{field}=-1 training data 1")):
        placed(9, 1, **{field: -1})
