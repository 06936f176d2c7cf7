"""The position of an iterator over users' pipelines is saved, also for several devices."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from runner.data import iterators
from runner.internals import tensorflow as tf_internals

COUNT = 40  # examples


def examples():
    return tf.data.Dataset.range(COUNT)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for number in range(4):
        with tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord")) as file:
            for record in range(10):
                file.write(b"%d" % (10 * number + record))
    return str(folder / "*.tfrecord")


def parsed(record):
    return tf.strings.to_number(record, tf.int64)


PIPELINES = {
    "shuffle, repeat": lambda _: examples().shuffle(16, seed=1).repeat().batch(4),
    "two shuffles": lambda _: examples().shuffle(40).shuffle(8).repeat().batch(4),
    "parallel map": lambda _: (
        examples().repeat().map(lambda x: x * 2, num_parallel_calls=2).batch(4).prefetch(2)
    ),
    "filter": lambda _: examples().repeat().filter(lambda x: x % 3 > 0).batch(4),
    "cache": lambda _: examples().cache().shuffle(8).repeat().batch(4),
    "flat_map": lambda _: examples().flat_map(tf.data.Dataset.range).repeat().batch(4),
    "window": lambda _: examples().window(4).flat_map(lambda x: x.batch(4)).repeat(),
    "padded batch": lambda _: examples().repeat().map(lambda x: tf.range(x)).padded_batch(4),
    "zip": lambda _: tf.data.Dataset.zip((examples(), examples().shuffle(9))).repeat().batch(4),
    "concatenate": lambda _: examples().concatenate(examples()).repeat().batch(4),
    "sampled": lambda _: tf.data.Dataset.sample_from_datasets(
        [examples().repeat(), examples().shuffle(9).repeat()], [0.3, 0.7], seed=1
    ).batch(4),
    "scan": lambda _: examples().scan(np.int64(0), lambda s, x: (s + x, s)).repeat().batch(4),
    "dictionaries": lambda _: examples().repeat().map(lambda x: {"a": x, "b": x + 1}).batch(4),
    "stateless draws": lambda _: (
        examples().repeat().map(lambda x: tf.random.stateless_uniform([], [x, 1])).batch(4)
    ),
    "records": lambda files: (
        tf.data.Dataset.list_files(files, seed=1)
        .interleave(tf.data.TFRecordDataset, cycle_length=2)
        .shuffle(9)
        .repeat()
        .map(parsed)
        .batch(4)
    ),
}
REFUSED = {
    "stateful draws": lambda: examples().map(lambda x: tf.random.uniform([])),
    "Python": lambda: tf.data.Dataset.from_generator(range, args=[3], output_types=tf.int64),
}


@pytest.fixture(params=[1, 2], ids=["one device", "two devices"])
def made(request):
    """Makes a dataset of a pipeline for the devices."""
    devices = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"][: request.param])
    local = devices.experimental_local_results

    def make(pipeline):
        tf.random.set_seed(1)  # of shuffles without one, in each build
        pipeline = pipeline() if callable(pipeline) else pipeline
        return iterators.HostDataset(pipeline, devices)

    def read(iterator, count):
        drawn = (next(iterator) for _ in range(count))
        flat = [[local(part) for part in tf.nest.flatten(each)] for each in drawn]
        return [[[np.asarray(x).tolist() for x in parts] for parts in each] for each in flat]

    return make, read


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_moved_iterator_goes_on_with_the_same_batches(made, files, kind):
    make, read = made
    through = iter(make(lambda: PIPELINES[kind](files)))
    read(through, 7)
    state = iterators.saved(through)
    later = read(through, 9)
    resumed = iter(make(lambda: PIPELINES[kind](files)))
    assert iterators.fits(resumed, state)
    iterators.put_back(resumed, state)
    assert read(resumed, 9) == later


@pytest.mark.parametrize("kind", REFUSED)
def test_pipelines_with_state_elsewhere_are_refused(made, kind):
    make, _ = made
    assert not iterators.can_be_saved(iter(make(REFUSED[kind]())))
    assert iterators.can_be_saved(iter(make(examples())))


def test_the_iterator_of_a_distributed_dataset_cannot_be_saved():
    devices = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = devices.experimental_distribute_dataset(examples().batch(4))
    assert not iterators.can_be_saved(iter(dataset))


def test_a_position_does_not_fit_another_number_of_replicas_or_iterators(made):
    make, _ = made
    one, others = iter(make(examples())), [iter(make(examples())), iter(examples())]
    assert iterators.fits(others, iterators.saved(others))
    assert not iterators.fits(others, iterators.saved(one))
    three = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    assert not iterators.fits(iter(iterators.HostDataset(examples(), three)), iterators.saved(one))


def test_several_iterators_are_saved_together():
    def pair():
        return {"a": iter(examples().shuffle(9, seed=1).repeat()), "b": iter(examples().repeat())}

    first = pair()
    for _ in range(5):
        next(first["a"])
    next(first["b"])
    again = pair()
    iterators.put_back(again, iterators.saved(first))
    for name in first:
        later = [list(itertools.islice(each[name], 30)) for each in (first, again)]
        assert later[0] == later[1]


def test_a_graph_draws_the_same_batches(made):
    make, read = made
    eager = read(iter(make(examples().repeat().batch(4))), 6)
    dataset = make(examples().repeat().batch(4))
    iterator = iter(dataset)
    drawn = tf.function(lambda: next(iterator))
    assert read(iter(drawn, None), 6) == eager
    spec = tf.nest.map_structure(tf.type_spec_from_value, drawn())
    assert tf.nest.flatten(spec)[0].is_compatible_with(tf.nest.flatten(dataset.element_spec)[0])


@pytest.mark.parametrize("kind", REFUSED)
def test_state_below_a_part_that_is_not_yet_in_use_is_found(kind):
    assert not iterators.can_be_saved(iter(REFUSED[kind]().shuffle(4).repeat()))


def test_a_position_of_an_earlier_checkpoint_is_read():
    first, again = (iter(examples().shuffle(9, seed=1).repeat()) for _ in range(2))
    for _ in range(5):
        next(first)
    handle = tf_internals.iterator_resource(first)
    whole = tf.raw_ops.SerializeIterator(resource_handle=handle, external_state_policy=2)
    state = tf.io.serialize_tensor(whole).numpy()
    assert iterators.fits(again, state)
    iterators.put_back(again, state)
    assert list(itertools.islice(again, 30)) == list(itertools.islice(first, 30))


def test_a_position_with_large_buffers_is_refused(monkeypatch):
    iterator = iter(examples().map(lambda x: tf.fill([1000], x)).shuffle(30))
    next(iterator)
    size = len(iterators.saved(iterator))
    monkeypatch.setattr(iterators, "_LARGEST", size // 2)
    with pytest.raises(iterators.TooLargeError):
        iterators.saved(iterator)
