import itertools

import numpy as np
import pytest
import tensorflow as tf
from wording import saying

from runner import inputs
from runner.errors import ConfigError

LENGTHS = np.random.default_rng(0).integers(1, 1000, size=640)


def config(**fields):
    return inputs.DataConfig(**{"global_batch_size": 10, "is_training": True, **fields})


def batches(count, *, lengths=LENGTHS, place=None, input_context=None, **fields):
    """The example indices of the first `count` batches."""
    dataset = (place or inputs.bucketed)(
        len(lengths) if place else lengths,
        lambda index: index,
        config=config(**fields),
        input_context=input_context,
    )
    return [batch.numpy().tolist() for batch in dataset.take(count)]


@pytest.mark.parametrize("start", [1, 31, 32, 70])
def test_a_batch_is_the_same_wherever_the_data_start(start):
    assert batches(5, start_step=start) == batches(start + 5)[start:]


def test_thirty_two_batches_hold_what_as_many_of_place_hold():
    for deal in range(4):
        ours, others = (
            sorted(itertools.chain(*batches(32, place=place, start_step=32 * deal)))
            for place in (None, inputs.place)
        )
        assert ours == others


def test_every_epoch_holds_every_example_once():
    drawn = batches(128)
    epochs = [sorted(itertools.chain(*drawn[first : first + 64])) for first in (0, 64)]
    assert epochs == [list(range(640))] * 2
    assert drawn[:64] != drawn[64:]


def test_examples_of_a_batch_are_of_like_length():
    lengths = [LENGTHS[batch] for batch in batches(64)]
    padding = sum(batch.max() * len(batch) - batch.sum() for batch in lengths)
    assert padding < 0.06 * LENGTHS.sum()
    unsorted = [LENGTHS[batch] for batch in batches(64, place=inputs.place)]
    assert sum(batch.max() * len(batch) - batch.sum() for batch in unsorted) > LENGTHS.sum() * 0.5


def test_short_and_long_batches_come_in_no_order():
    longest = [LENGTHS[batch].max() for batch in batches(32)]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_every_seed_and_epoch_has_an_order_of_its_own():
    firsts = [batches(1, seed=seed, start_step=64 * n)[0] for seed in (0, 1, 2**32) for n in (0, 1)]
    assert len({tuple(first) for first in firsts}) == 6


@pytest.mark.parametrize(("pipelines", "replicas"), [(1, 2), (2, 2), (1, 5)])
def test_the_shares_of_all_replicas_make_the_batch_of_one(pipelines, replicas):
    each = replicas // pipelines
    shares = [
        batches(
            3 * each,
            start_step=40,
            input_context=tf.distribute.InputContext(pipelines, number, replicas),
        )
        for number in range(pipelines)
    ]
    joined = [
        list(itertools.chain(*(part for share in shares for part in share[step : step + each])))
        for step in range(0, 3 * each, each)
    ]
    assert joined == batches(3, start_step=40)


def test_fewer_examples_than_a_batch_fill_it_again_and_again():
    assert sorted(itertools.chain(*batches(3, lengths=np.array([3, 1])))) == [0] * 15 + [1] * 15


def test_an_example_gets_the_seeds_that_place_gives_it():
    def seeds(place, data):
        dataset = place(data, lambda index: index, config=config(), augment=lambda i, s: (i, s))
        pairs = [zip(*pair, strict=True) for pair in dataset.take(32).as_numpy_iterator()]
        return {(int(i), tuple(s.tolist())) for pair in pairs for i, s in pair}

    assert seeds(inputs.bucketed, LENGTHS) == seeds(inputs.place, len(LENGTHS))


def test_no_examples_are_refused():
    with pytest.raises(ConfigError, match=saying("training empty")):
        batches(1, lengths=np.array([], int))
