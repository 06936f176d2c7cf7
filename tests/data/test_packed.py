import itertools

import numpy as np
import pytest
import tensorflow as tf
import token_files
from wording import saying, says

from runner import inputs
from runner.data.sources import packing
from runner.errors import ConfigError, RunnerError

LENGTH = 32


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sequences(count, seed=0):
    """Sequences of 1 to 20 tokens. All tokens are different, and none is 0."""
    lengths = np.random.default_rng(seed).integers(1, 20, count)
    ends = np.cumsum(lengths)
    return [
        {"tokens": list(range(end - length + 1, end + 1))}
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]


WRITERS = {
    "tfrecord": token_files.records,
    "parquet": lambda path, rows: token_files.table(path, rows, row_group_size=50),
}


@pytest.fixture(params=WRITERS)
def source(request, tmp_path):
    """Two files of sequences."""
    rows = sequences(300)
    for name, part in (("a", rows[:180]), ("b", rows[180:])):
        WRITERS[request.param](tmp_path / "data" / f"{name}.{request.param}", part)
    return inputs.source(tmp_path / "data")


def epoch(packed, epochs=1, **fields):
    """The rows of the first epochs."""
    config = inputs.DataConfig(is_training=True, global_batch_size=1, **fields)
    dataset = inputs.place(packed, lambda row: row, config=config)
    rows = list(dataset.take(len(packed) * epochs).as_numpy_iterator())
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def unpacked(rows, name="tokens"):
    """The sequences in rows, by their segments, once positions and padding are checked."""
    for tokens, segments, positions in zip(
        rows[name], rows[f"{name}_segment_ids"], rows[f"{name}_positions"], strict=True
    ):
        used = np.count_nonzero(segments)
        assert not tokens[used:].any()
        assert not positions[used:].any()
        assert set(np.diff(segments[:used], prepend=0)) <= {0, 1}
        for segment in range(1, segments.max() + 1):
            inside = segments == segment
            assert positions[inside].tolist() == list(range(inside.sum()))
            yield tokens[inside].tolist()


def test_every_epoch_has_every_sequence_once(source):
    packed = inputs.packed(source, {"tokens": LENGTH})
    rows = epoch(packed, 2)
    for first in (0, len(packed)):
        half = {name: array[first : first + len(packed)] for name, array in rows.items()}
        assert half["tokens"].shape == (len(packed), LENGTH)
        expected = sorted(each["tokens"] for each in sequences(300))
        assert sorted(unpacked(half)) == expected
    assert (rows["tokens"][: len(packed)] != rows["tokens"][len(packed) :]).any()


def test_the_rows_are_full_and_the_log_tells(source, capsys):
    packed = inputs.packed(source, {"tokens": LENGTH})
    tokens = sum(len(each["tokens"]) for each in sequences(300))
    assert packed.fill["tokens"] == tokens / (LENGTH * len(packed)) > 0.95
    says(capsys.readouterr().err, f"300 {len(packed)} tokens {packed.fill['tokens']:.1%}")


def test_any_number_of_workers_reads_the_same_rows_from_any_step(source):
    packed = inputs.packed(source, {"tokens": LENGTH})

    def tokens(start, count, context=None):
        config = inputs.DataConfig(is_training=True, global_batch_size=6, start_step=start)
        dataset = inputs.place(
            packed, lambda row: row["tokens"], config=config, input_context=context
        )
        return np.array([part.numpy() for part in dataset.take(count)])

    whole = tokens(10**6, 5)
    np.testing.assert_array_equal(tokens(10**6 + 3, 2), whole[3:])
    for workers in (2, 3):
        contexts = [tf.distribute.InputContext(workers, n, workers) for n in range(workers)]
        parts = [tokens(10**6, 5, context) for context in contexts]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_row_has_the_identity_of_its_sequences(source):
    packed = inputs.packed(source, {"tokens": LENGTH})
    every = sequences(300)
    first = {shard.path: start for shard, start in zip(source.shards, (0, 180), strict=True)}
    rows = packed.read(np.arange(len(packed)))
    for index, expected in enumerate(rows["tokens"]):
        identity = packed.identity(index)
        members = [every[first[identity.path] + place]["tokens"] for place in identity.packed]
        assert list(itertools.chain(*members)) == expected[expected > 0].tolist()
        assert (identity.index, identity.place) == (index, identity.packed[0])
        assert f"{index:,}" in str(identity)


def test_features_of_an_example_stay_together(tmp_path):
    random = np.random.default_rng(0)
    examples = [
        {
            "inputs": [number + 1] * int(random.integers(1, 30)),
            "targets": [float(number + 1)] * int(random.integers(1, 10)),
        }
        for number in range(100)
    ]
    source = inputs.source(token_files.records(tmp_path / "a.tfrecord", examples))
    packed = inputs.packed(source, {"inputs": 40, "targets": 16})
    rows = packed.read(np.arange(len(packed)))
    assert rows["targets"].dtype == np.float32
    assert rows["inputs"].shape[1:] == (40,)
    for row in range(len(packed)):
        one = {name: array[row : row + 1] for name, array in rows.items()}
        numbers = [[each[0] for each in unpacked(one, name)] for name in ("inputs", "targets")]
        assert numbers[0] == numbers[1] == [place + 1 for place in packed.identity(row).packed]


@pytest.mark.parametrize(("overlong", "expected"), [("cut", [3, 5, 8, 8]), ("drop", [3, 5, 8])])
def test_sequences_longer_than_a_row(tmp_path, capsys, overlong, expected):
    rows = [{"tokens": [1] * length} for length in (3, 9, 5, 8)]
    source = inputs.source(token_files.records(tmp_path / "a.tfrecord", rows))
    with pytest.raises(ConfigError, match=saying("a.tfrecord example 1 'tokens' 9 8 overlong")):
        inputs.packed(source, {"tokens": 8})
    capsys.readouterr()
    packed = inputs.packed(source, {"tokens": 8}, overlong=overlong)
    read = packed.read(np.arange(len(packed)))
    assert sorted(len(each) for each in unpacked(read)) == expected
    says(capsys.readouterr().err, "1 too long")


def test_rows_are_computed_once_and_again_if_the_file_changes(tmp_path):
    path = token_files.records(tmp_path / "a.tfrecord", sequences(20))
    first = inputs.packed(inputs.source(path), {"tokens": LENGTH})
    (stored,) = (tmp_path / "cache" / "runner" / "packing").iterdir()
    before = stored.stat().st_mtime_ns
    inputs.packed(inputs.source(path), {"tokens": LENGTH})
    assert stored.stat().st_mtime_ns == before
    token_files.records(path, sequences(30))
    again = inputs.packed(inputs.source(path), {"tokens": LENGTH})
    assert list((tmp_path / "cache" / "runner" / "packing").iterdir()) == [stored]
    assert sorted(unpacked(epoch(again))) == sorted(each["tokens"] for each in sequences(30))
    assert len(again) > len(first)


def test_rows_that_do_not_fit_the_data_are_named(tmp_path):
    source = inputs.source(token_files.records(tmp_path / "a.tfrecord", sequences(30)))
    inputs.packed(source, {"tokens": LENGTH})
    (stored,) = (tmp_path / "cache" / "runner" / "packing").iterdir()
    numbers = np.load(stored)
    ends = numbers[8:]  # after the version, the digest and three counts
    ends[0] = ends[1]  # the sequences of two rows in one
    np.save(stored, numbers)
    with pytest.raises(RunnerError, match=saying("a.tfrecord row 0 too long")):
        inputs.packed(source, {"tokens": LENGTH}).read(np.arange(1))


def test_a_damaged_sequence_costs_no_other(tmp_path):
    path = token_files.records(tmp_path / "a.tfrecord", sequences(40))
    data = bytearray(path.read_bytes())
    data[14] ^= 1  # of the first record
    path.write_bytes(data)
    packed = inputs.packed(inputs.source(path), {"tokens": LENGTH})
    with pytest.raises(RunnerError, match=saying("record 0 damaged")):
        packed.read(np.arange(len(packed)))
    packed.max_faults = 1
    read = list(unpacked(epoch(packed)))
    assert {tuple(each) for each in read} == {tuple(each["tokens"]) for each in sequences(40)[1:]}
    (fault,) = packed.faults
    assert packed.identity(fault).packed == (0,)


def test_packed_sources_can_be_mixed(tmp_path):
    for name, writer in WRITERS.items():
        writer(tmp_path / f"a.{name}", sequences(60))
    packed = {
        name: inputs.packed(inputs.source(tmp_path / f"a.{name}"), {"tokens": LENGTH})
        for name in WRITERS
    }
    rows = epoch(inputs.mixture(packed))
    assert all(list(unpacked(rows)))
    both = packed["tfrecord"].read(np.arange(5)), packed["parquet"].read(np.arange(5))
    np.testing.assert_array_equal(both[0]["tokens"], both[1]["tokens"])


@pytest.mark.parametrize("seed", range(20))
def test_packing_wastes_little_and_fits(seed):
    random = np.random.default_rng(seed)
    limits = [64, 16][: 1 + seed % 2]
    lengths = random.integers(0, np.array(limits) + 1, [500, len(limits)])
    if seed % 4 < 2:
        lengths = lengths // random.integers(1, 9, lengths.shape)
    rows = packing.rows(lengths, limits)
    assert sorted(itertools.chain(*rows)) == list(range(500))
    sums = np.array([lengths[row].sum(axis=0) for row in rows])
    assert (sums <= limits).all()
    needed = (lengths.sum(axis=0) / limits).max()
    assert len(rows) <= 1.35 * needed + 1


# Bad input


def text(path):
    with tf.io.TFRecordWriter(str(path)) as file:
        example = tf.train.Example()
        example.features.feature["tokens"].bytes_list.value.append(b"text")
        file.write(example.SerializeToString())
    return inputs.source(path)


def other_records(path):
    with tf.io.TFRecordWriter(str(path)) as file:
        file.write(b"\xff\xff")
    return inputs.source(path)


def of_two_types(path):
    return inputs.source(token_files.records(path, [{"tokens": [1]}, {"tokens": [1.5]}]))


def without(path):
    return inputs.source(token_files.records(path, [{"tokes": [1]}]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (text, "example 0 'tokens' bytes_list"),
        (other_records, "example 0 tf.Example"),
        (of_two_types, "example 1 'tokens' float_list int64"),
        (without, "'tokens' 'tokes'"),
    ],
)
def test_records_without_sequences_are_rejected(tmp_path, make, words):
    source = make(tmp_path / "a.tfrecord")
    with pytest.raises(ConfigError, match=saying(words)):
        inputs.packed(source, {"tokens": 8})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"tokes": [1]}, "'tokens' 'tokes'"),
        ({"tokens": 1}, "'tokens'"),
        ({"tokens": "text"}, "'tokens'"),
    ],
)
def test_columns_without_sequences_are_rejected(tmp_path, row, words):
    source = inputs.source(token_files.table(tmp_path / "a.parquet", [row]))
    with pytest.raises(ConfigError, match=saying(words)):
        inputs.packed(source, {"tokens": 8})


def test_sequences_that_are_not_packed_cannot_be_batched(tmp_path):
    source = inputs.source(token_files.table(tmp_path / "a.parquet", sequences(5)))
    config = inputs.DataConfig(is_training=True, global_batch_size=2)
    with pytest.raises(ConfigError, match=saying("a.parquet inputs.packed")):
        inputs.place(source, lambda row: row, config=config)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lengths": {}}, "lengths"),
        ({"lengths": {"tokens": 0}}, "lengths"),
        ({"lengths": {"tokens": 8}, "overlong": "split"}, "split"),
    ],
)
def test_wrong_options_are_rejected(source, options, word):
    with pytest.raises(ConfigError, match=word):
        inputs.packed(source, **options)


def test_a_mixture_cannot_be_packed(source):
    with pytest.raises(ConfigError, match="mix"):
        inputs.packed(inputs.mixture({"a": source}), {"tokens": 8})
