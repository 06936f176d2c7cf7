import itertools

import numpy as np
import pytest
import record_files
import tensorflow as tf
from wording import saying

from runner import inputs
from runner.data import order
from runner.errors import ConfigError, RunnerError

WEIGHTS = {"web": 0.7, "books": 0.2, "code": 0.1}
SIZES = {"web": 500, "books": 90, "code": 7}
BLOCK = 4090  # the largest multiple of ten that a block may have


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def arrays(folder, name, values):
    (folder / name).mkdir(parents=True, exist_ok=True)
    for field, array in values.items():
        np.save(folder / name / f"{field}.npy", array)
    return inputs.source(folder / name)


@pytest.fixture
def sources(tmp_path):
    """Three sources: an example has the number of its source, and its number there."""
    return {
        name: arrays(
            tmp_path,
            name,
            {"source": np.full(size, number), "number": np.arange(size)},
        )
        for number, (name, size) in enumerate(SIZES.items())
    }


def batches(source, count, *, batch=64, input_context=None, start=0, **fields):
    """The examples of the first global batches: [count, batch, 2]."""
    config = inputs.DataConfig(
        is_training=True, global_batch_size=batch, start_step=start, **fields
    )
    dataset = inputs.place(
        source,
        lambda row: tf.stack([row["source"], row["number"]], axis=1),
        config=config,
        input_context=input_context,
    )
    return np.array([part.numpy() for part in dataset.take(count)])


def test_every_block_has_the_same_number_of_examples_of_each_source(sources):
    mixed = inputs.mixture(sources, WEIGHTS)
    drawn = batches(mixed, 3, batch=BLOCK)[..., 0]
    for block in drawn:
        assert np.bincount(block).tolist() == [BLOCK * 7 // 10, BLOCK * 2 // 10, BLOCK // 10]
    assert (drawn[0] != drawn[1]).any()
    # Within a block, the sources are mixed: no batch of 64 differs much from the proportions.
    web = (drawn.reshape(-1)[: 64 * 190].reshape(-1, 64) == 0).mean(axis=1)
    assert 0.4 < web.min() < web.max() < 0.95


@pytest.mark.parametrize("shuffle", ["full", "blocks", "none"])
def test_each_source_has_its_own_epochs(sources, shuffle):
    drawn = batches(inputs.mixture(sources, WEIGHTS), 80, shuffle=shuffle).reshape(-1, 2)
    for number, size in enumerate(SIZES.values()):
        own = drawn[drawn[:, 0] == number, 1]
        epochs = [own[first : first + size] for first in range(0, len(own) - size + 1, size)]
        assert len(epochs) >= 7
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
        changes = any((one != other).any() for one, other in itertools.pairwise(epochs))
        assert changes == (shuffle != "none")


def test_the_order_of_a_source_does_not_depend_on_the_others(sources):
    def own(mixed):
        drawn = batches(mixed, 20).reshape(-1, 2)
        return drawn[drawn[:, 0] == 0, 1][:300].tolist()

    two = {name: sources[name] for name in ("books", "web")}
    assert own(inputs.mixture(two)) == own(inputs.mixture(sources, WEIGHTS))


def test_sources_of_the_same_size_have_different_orders(tmp_path):
    values = {"source": np.zeros(50, int), "number": np.arange(50)}
    same = {name: arrays(tmp_path, name, values) for name in "ab"}
    other = arrays(tmp_path, "b", {**values, "source": np.ones(50, int)})
    drawn = batches(inputs.mixture({**same, "b": other}), 10).reshape(-1, 2)
    first, second = (drawn[drawn[:, 0] == number, 1][:50].tolist() for number in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("start", [1, 63, 64, 129, 10**9])
def test_a_batch_is_the_same_wherever_the_data_start(sources, start):
    mixed = inputs.mixture(sources, WEIGHTS)
    before = max(0, start - 5)
    np.testing.assert_array_equal(
        batches(mixed, 3, start=start), batches(mixed, 8, start=before)[start - before :][:3]
    )


@pytest.mark.parametrize("pipelines", [1, 2, 3])
def test_any_number_of_workers_reads_the_same_global_batches(sources, pipelines):
    mixed = inputs.mixture(sources, WEIGHTS)
    parts = [
        batches(
            mixed,
            40,
            batch=300,
            start=10**6,
            input_context=tf.distribute.InputContext(pipelines, number, pipelines),
        )
        for number in range(pipelines)
    ]
    whole = batches(mixed, 40, batch=300, start=10**6)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_seeds_of_augmentation_differ_in_all_sources_and_epochs(sources):
    config = inputs.DataConfig(is_training=True, global_batch_size=1000)
    dataset = inputs.place(
        inputs.mixture(sources, WEIGHTS),
        lambda row: row["number"],
        config=config,
        augment=lambda _, seeds: seeds,
    )
    seeds = np.concatenate([part.numpy() for part in dataset.take(10)])
    assert len(np.unique(seeds, axis=0)) == 10_000


def test_the_order_of_names_and_the_unit_of_weights_change_nothing(sources):
    mixed = inputs.mixture(sources, WEIGHTS)
    turned = dict(reversed(sources.items()))
    again = inputs.mixture(turned, {"code": 1, "books": 2, "web": 7})
    np.testing.assert_array_equal(batches(mixed, 5), batches(again, 5))


def test_evaluation_reads_all_sources_completely(sources):
    config = inputs.DataConfig(is_training=False, global_batch_size=64)
    mixed = inputs.mixture(sources, WEIGHTS)
    dataset = inputs.in_order(mixed, lambda row: row["number"], config=config)
    read = np.concatenate([part.numpy() for part in dataset])
    expected = [np.arange(SIZES[name]) for name in sorted(SIZES)]
    assert read.tolist() == np.concatenate(expected).tolist()


# Weights


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, [500, 90, 7]),
        ({"maximum": 100}, [100, 90, 7]),
        ({"temperature": 2}, np.sqrt([500, 90, 7])),
        ({"temperature": 1e9}, [1, 1, 1]),
    ],
)
def test_shares_follow_from_the_sizes(sources, options, shares):
    mixed = inputs.mixture(sources, **options)
    slots = np.array([mixed.slots[name] for name in SIZES])
    wanted = shares / np.sum(shares)
    np.testing.assert_allclose(slots / slots.sum(), wanted, atol=1 / 2049)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_represent_any_weights(sources, seed):
    random = np.random.default_rng(seed)
    weights = dict(zip(SIZES, random.uniform(0.01, 1, 3).tolist(), strict=True))
    slots = inputs.mixture(sources, weights).slots
    assert 2048 < sum(slots.values()) <= 4096
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert slots[name] / sum(slots.values()) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"web": 1, "books": 1}, "'code'"),
        ({**WEIGHTS, "bookz": 1}, "'bookz' 'books'"),
        ({**WEIGHTS, "code": 0}, "'code' 0"),
        ({**WEIGHTS, "code": -1}, "'code' -1"),
        ({**WEIGHTS, "code": float("nan")}, "'code' nan"),
        ({**WEIGHTS, "code": float("inf")}, "'code' inf"),
        ({**WEIGHTS, "code": "1"}, "'code' '1'"),
        ({**WEIGHTS, "code": 1e-5}, "'code' 4,096"),
    ],
)
def test_wrong_weights_are_rejected(sources, weights, words):
    with pytest.raises(ConfigError, match=saying(words)):
        inputs.mixture(sources, weights)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0}, "temperature 0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"maximum": -1}, "maximum -1"),
        ({"weights": WEIGHTS, "temperature": 2.0}, "temperature weights"),
        ({"weights": WEIGHTS, "maximum": 5}, "maximum weights"),
    ],
)
def test_wrong_options_are_rejected(sources, options, words):
    with pytest.raises(ConfigError, match=saying(words)):
        inputs.mixture(sources, **options)


# Sources


def test_sources_are_needed(sources):
    with pytest.raises(ConfigError, match="no sources"):
        inputs.mixture({})
    with pytest.raises(ConfigError, match="'a'"):
        inputs.mixture({"a": inputs.mixture(sources)})
    with pytest.raises(ConfigError, match="'a'"):
        inputs.mixture({"a": "train.tfrecord"})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x": np.zeros([3, 5], int)}, "'a' 'b' 'x' [4] [5]"),
        ({"x": np.zeros([3, 4], np.float32)}, "'a' 'b' 'x' int64 float32"),
        ({"x": np.zeros([3, 4], int), "y": np.zeros(3)}, "'a' 'b' 'y'"),
        ({"z": np.zeros([3, 4], int)}, "'a' 'b' 'x'"),
    ],
)
def test_sources_of_different_structures_are_rejected(tmp_path, other, words):
    one = arrays(tmp_path, "a", {"x": np.zeros([3, 4], int)})
    with pytest.raises(ConfigError, match=saying(words)):
        inputs.mixture({"a": one, "b": arrays(tmp_path, "b", other)})


def test_records_and_columns_cannot_be_mixed(tmp_path, sources):
    records = inputs.source(record_files.numbers(tmp_path / "records", 3))
    with pytest.raises(ConfigError, match=saying("'records' 'web' string")):
        inputs.mixture({"records": records, "web": sources["web"]})


# Identities and damage


def records(folder, name, count, *, damaged=None):
    (path,) = record_files.numbers(folder / name, count)
    if damaged is not None:
        data = bytearray(path.read_bytes())
        data[17 * damaged + 12] ^= 1  # of a record of one character
        path.write_bytes(data)
    return inputs.source(path)


def test_identities_name_the_source(tmp_path):
    mixed = inputs.mixture({name: records(tmp_path, name, 10) for name in ("web", "books")})
    config = inputs.DataConfig(is_training=True, global_batch_size=8)
    with order.recorded() as placements:
        dataset = inputs.place(
            mixed, lambda record: tf.strings.to_number(record, tf.int64), config=config
        )
    (placement,) = placements
    for number, batch in enumerate(dataset.take(3)):
        identities = placement.identities(number)
        assert [each.place for each in identities] == batch.numpy().tolist()
        assert {each.mixed_as for each in identities} == {"web", "books"}
        for each in identities:
            assert each.path == mixed.sources[each.mixed_as].shards[0].path
            assert each.mixed_as in str(each).partition("/")[0]


def test_a_damaged_record_is_named_with_its_source(tmp_path):
    mixed = inputs.mixture(
        {"web": records(tmp_path, "web", 9), "books": records(tmp_path, "books", 9, damaged=3)}
    )
    with pytest.raises(RunnerError, match=saying("books record 3 damaged")):
        mixed.read(np.arange(len(mixed)))


def test_a_damaged_record_is_replaced_by_another_of_its_source(tmp_path):
    mixed = inputs.mixture(
        {"a": records(tmp_path, "a", 5, damaged=4), "b": records(tmp_path, "b", 5)}
    )
    mixed.max_faults = 1
    config = inputs.DataConfig(is_training=False, global_batch_size=10)
    (read,) = inputs.in_order(mixed, lambda record: record, config=config)
    assert [int(record) for record in read.numpy()] == [0, 1, 2, 3, 0, 0, 1, 2, 3, 4]
    assert list(mixed.faults) == [4]
