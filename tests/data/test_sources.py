import csv as csv_of_python
import gzip
from pathlib import Path

import array_record.python.array_record_module as array_record
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import record_files
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image
from pyarrow import csv
from wording import saying

import runner
from runner import inputs
from runner.data.sources import tables
from runner.errors import ConfigError, RunnerError

COUNT = 100


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tfrecord(folder):
    record_files.numbers(folder, COUNT, shards=3)
    return folder, lambda record: tf.strings.to_number(record, tf.int64)


def array_records(folder):
    for shard in range(2):
        writer = array_record.ArrayRecordWriter(
            str(folder / f"{shard}.array_record"), "group_size:1"
        )
        for number in range(shard * 50, shard * 50 + 50):
            writer.write(str(number).encode())
        writer.close()
    return folder, lambda record: tf.strings.to_number(record, tf.int64)


def table(first, count):
    numbers = np.arange(first, first + count)
    return pa.table({"number": numbers, "text": [f"text {n}" for n in numbers]})


def parquet(folder):
    pq.write_table(table(0, 60), folder / "a.parquet", row_group_size=7)
    pq.write_table(table(60, 40), folder / "b.parquet", row_group_size=9)
    return folder, lambda row: row["number"]


def comma_separated(folder):
    csv.write_csv(table(0, 60), folder / "a.csv")
    csv.write_csv(table(60, 40), folder / "b.csv")
    return folder, lambda row: row["number"]


def numpy_file(folder):
    np.save(folder / "number.npy", np.arange(COUNT))
    np.save(folder / "square.npy", np.arange(COUNT) ** 2)
    return folder, lambda row: row["number"] + 0 * row["square"]


def hdf5(folder):
    with h5py.File(folder / "all.h5", "w") as file:
        file.create_dataset("number", data=np.arange(COUNT), chunks=(10,))
    return folder, lambda row: row["number"]


def images(folder):
    for number in range(COUNT):
        kind = folder / ("even" if number % 2 == 0 else "odd")
        kind.mkdir(exist_ok=True)
        Image.new("L", (1, 1), number).save(kind / f"{number:03d}.png")
    order = np.array([*range(0, COUNT, 2), *range(1, COUNT, 2)])

    def parse(row):
        pixels = tf.map_fn(
            lambda image: tf.io.decode_png(image)[0, 0, 0],
            row["image"],
            fn_output_signature=tf.uint8,
        )
        return tf.gather(np.argsort(order), tf.cast(pixels, tf.int64))

    return folder, parse


KINDS = [tfrecord, array_records, parquet, comma_separated, numpy_file, hdf5, images]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def opened(request, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    path, parse = request.param(folder)
    return inputs.source(path), parse


def read(opened, count, *, batch=8, **fields):
    source, parse = opened
    config = inputs.DataConfig(is_training=True, global_batch_size=batch, **fields)
    dataset = inputs.place(source, parse, config=config)
    return np.array([part.numpy() for part in dataset.take(count)])


def test_a_source_has_every_example_once_in_an_epoch(opened):
    source, _ = opened
    assert len(source) == COUNT
    epoch = read(opened, 25, batch=4)
    assert sorted(epoch.ravel()) == list(range(COUNT))
    assert epoch.ravel().tolist() != list(range(COUNT))
    assert read(opened, 50, batch=4)[25:].tolist() != epoch.tolist()


def test_a_resume_at_any_step_has_the_batches_of_a_run_through(opened):
    through = read(opened, 30)
    np.testing.assert_array_equal(read(opened, 3, start_step=27), through[27:])


def test_evaluation_data_are_in_order(opened):
    source, parse = opened
    config = inputs.DataConfig(is_training=False, global_batch_size=8)
    parts = [part.numpy() for part in inputs.in_order(source, parse, config=config)]
    assert np.concatenate(parts).tolist() == list(range(COUNT))


def test_any_number_of_workers_reads_the_same_global_batches(opened):
    source, parse = opened
    config = inputs.DataConfig(is_training=True, global_batch_size=12)
    whole = read(opened, 10, batch=12)
    for workers in (2, 3):
        parts = []
        for worker in range(workers):
            context = tf.distribute.InputContext(workers, worker, workers)
            dataset = inputs.place(source, parse, config=config, input_context=context)
            parts.append([part.numpy() for part in dataset.take(10)])
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_every_example_has_an_identity(opened):
    source, _ = opened
    identities = [source.identity(index) for index in range(COUNT)]
    assert [each.index for each in identities] == list(range(COUNT))
    assert len({(each.path, each.place) for each in identities}) == COUNT
    assert all(Path(each.path).exists() for each in identities)


def test_blocks_change_places_and_so_do_their_examples(tmp_path):
    np.save(tmp_path / "number.npy", np.arange(40_000))
    source = inputs.source(tmp_path)
    config = inputs.DataConfig(is_training=True, global_batch_size=400, shuffle="blocks")
    dataset = inputs.place(source, lambda row: row["number"], config=config)
    epochs = np.array([part.numpy() for part in dataset.take(200)]).reshape(2, -1)
    for epoch in epochs:
        assert sorted(epoch) == list(range(40_000))
        assert abs(np.corrcoef(epoch, np.arange(40_000))[0, 1]) < 0.1
    assert (epochs[0] == epochs[1]).mean() < 0.01


# Bad input


def test_a_compressed_file_is_rejected_with_the_command_that_rewrites_it(tmp_path):
    (path,) = record_files.numbers(tmp_path, 3)
    packed = tmp_path / "packed.tfrecord"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ConfigError, match="gzip -dc"):
        inputs.source(packed)


def test_a_truncated_file_is_named_when_it_is_opened(tmp_path):
    (path,) = record_files.numbers(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ConfigError, match=f"{path}: record 2.*cut off"):
        inputs.source(path)


def test_a_wrong_length_is_named_when_it_is_opened(tmp_path):
    (path,) = record_files.numbers(tmp_path, 3)
    data = bytearray(path.read_bytes())
    data[8] ^= 1  # the checksum of the first length
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"record 0.*checksum"):
        inputs.source(path)


def damaged(tmp_path):
    (path,) = record_files.numbers(tmp_path, 20)
    data = bytearray(path.read_bytes())
    data[17 * 3 + 12] ^= 1  # of the fourth record
    path.write_bytes(data)
    return path


def test_a_damaged_record_is_named_when_it_is_read(tmp_path):
    source = inputs.source(damaged(tmp_path))
    with pytest.raises(RunnerError, match="record 3"):
        source.read(np.arange(5))


def test_damaged_examples_are_left_out_and_counted(tmp_path):
    source = inputs.source(damaged(tmp_path))
    source.max_faults = 1
    opened = source, lambda record: tf.strings.to_number(record, tf.int64)
    epoch = read(opened, 5, batch=4).ravel().tolist()
    assert sorted(epoch) == sorted([*set(range(20)) - {3}, 4])
    assert list(source.faults) == [3]


@pytest.mark.parametrize(
    ("make", "key_word"),
    [
        (lambda folder: None, "empty"),
        (lambda folder: record_files.numbers(folder, 0), "no examples"),
        (lambda folder: (folder / "a.parquet").write_text("no"), "a.parquet"),
        (lambda folder: (folder / "a.h5").write_text("no"), "a.h5"),
        (lambda folder: (folder / "a.npy").write_text("no"), "a.npy"),
        (lambda folder: np.save(folder / "a.npy", np.zeros(2, "datetime64[D]")), "datetime64"),
        (lambda folder: (folder / "a.array_record").write_text("no"), "a.array_record"),
        (lambda folder: (folder / "a.csv").write_text('a,b\n1,2\n1,"2'), "a.csv"),
        (
            lambda folder: [record_files.numbers(folder / name, 2) for name in "ab"],
            "same name",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, make, key_word):
    folder = tmp_path / "data"
    folder.mkdir()
    make(folder)
    with pytest.raises(ConfigError, match=key_word):
        inputs.source(folder)


def test_a_pattern_without_a_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        inputs.source(str(tmp_path / "*.tfrecord"))


def test_an_index_is_built_once_and_again_if_the_file_changes(tmp_path):
    (path,) = record_files.numbers(tmp_path / "data", 5)
    first = inputs.source(path)
    (index,) = (tmp_path / "cache" / "runner" / "indexes").iterdir()
    before = index.stat().st_mtime_ns
    inputs.source([path])
    assert index.stat().st_mtime_ns == before
    (path,) = record_files.numbers(tmp_path / "data", 7)
    again = inputs.source((path,))
    assert len(again) == 7
    assert first.shards[0].fingerprint != again.shards[0].fingerprint


def test_an_index_of_another_file_is_rejected(tmp_path):
    (path,) = record_files.numbers(tmp_path / "data", 5)
    inputs.source(path)
    (index,) = (tmp_path / "cache" / "runner" / "indexes").iterdir()
    numbers = np.load(index)
    numbers[-1] += 1
    np.save(index, numbers)
    with pytest.raises(ConfigError, match="does not match"):
        inputs.source(path, "tfrecord")


@pytest.mark.parametrize(
    ("pattern", "is_whole"), [("", True), ("a*", True), ("a.tfrecord-0000[02]*", False)]
)
def test_a_missing_shard_is_named_unless_a_pattern_selects_some(tmp_path, pattern, is_whole):
    for number in (0, 2):
        record_files.write(tmp_path / f"a.tfrecord-{number:05}-of-00003", [b"one"])
    if not is_whole:
        assert len(inputs.source(tmp_path / pattern)) == 2
        return
    with pytest.raises(ConfigError, match=r"a\.tfrecord-00001-of-00003"):
        inputs.source(tmp_path / pattern)


def test_a_parser_that_rejects_the_records_is_named_before_training(tmp_path):
    record_files.write(tmp_path / "a.tfrecord", [b"abc"] * 4)
    records = inputs.source(tmp_path / "a.tfrecord")
    config = inputs.DataConfig(is_training=True, global_batch_size=2)
    with pytest.raises(ConfigError, match=r"a.tfrecord, example 0.*DecodeRaw"):
        inputs.place(records, lambda batch: tf.io.decode_raw(batch, tf.float32), config=config)

    def parse(batch):  # takes batches of one size only
        return tf.reshape(batch, [2])

    assert next(iter(inputs.place(records, parse, config=config))).shape == [2]


def everything(*paths, **options):
    """All examples of files, by column."""
    found = inputs.source([str(path) for path in paths], **options)
    return found.read(np.arange(len(found)))


def test_numpy_files_of_any_byte_order_and_text(tmp_path):
    np.save(tmp_path / "big.npy", np.arange(4, dtype=">f4"))
    np.save(tmp_path / "text.npy", np.array(["a", "äö", "", "ß"]))
    source = inputs.source(str(tmp_path))
    batch = source.load(tf.constant([3, 1]))
    assert batch["big"].numpy().tolist() == [3.0, 1.0]
    assert [each.decode() for each in batch["text"].numpy()] == ["ß", "äö"]


@pytest.mark.parametrize(
    "other", [np.zeros((2, 1), "f4"), np.zeros((2, 5), "f4"), np.zeros((2, 3), "f8")]
)
def test_hdf5_files_that_differ_in_shape_or_type_are_named(tmp_path, other):
    for name, values in {"a": np.zeros((2, 3), "f4"), "b": other}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = values
    with pytest.raises(ConfigError, match=r"b\.h5, 'x'.*float32\[3\]"):
        inputs.source(str(tmp_path))


@pytest.mark.parametrize(
    "rows",
    [
        ['1,5" pipe', "2,plain", '3,6" pipe', '4,7" pipe', "5,plain"],
        ['1,"two\n""lines"""', '2,"a, b"', '3,"x" y', '4,""', '5,a""b'],
    ],
)
def test_quotes_in_a_csv_file_mean_what_they_mean_to_its_parser(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["id,name", *rows]) + "\n")
    expected = csv.read_csv(path).to_pydict()
    found = everything(path)
    assert found["id"].tolist() == expected["id"] == [1, 2, 3, 4, 5]
    assert [each.decode() for each in found["name"]] == expected["name"]


def test_csv_files_whose_numbers_look_different_have_one_type(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n1.5\n")
    assert everything(tmp_path)["x"].tolist() == [1.0, 1.5]
    (tmp_path / "b.csv").write_text("x,x\n1.5,1\n")
    (tmp_path / "a.csv").unlink()
    with pytest.raises(ConfigError, match="'x'"):
        inputs.source(str(tmp_path))
    with gzip.open(tmp_path / "c.csv", "wt") as file:
        file.write("x\n1\n")
    with pytest.raises(ConfigError, match="compressed"):
        inputs.source(str(tmp_path / "c.csv"))


def test_the_type_of_a_csv_column_holds_all_of_its_values(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CSV_BYTES", 1 << 16)
    lines = [f"{n % 7},{n % 7:019},{n % 7}" for n in range(20_000)]
    lines[15_000] = "1.5,1,text"
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["x,y,z", *lines]) + "\n")
    found = everything(path)
    assert len(found["x"]) == 20_000
    assert found["x"][[0, 15_000, -1]].tolist() == [0.0, 1.5, 19_999 % 7]
    assert found["y"].dtype == np.int64
    assert found["z"][[0, 15_000]].tolist() == [b"0", b"text"]


LISTS = {
    "fixed": pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int64(), 2)),
    "number": pa.array([1, None, 3]),
    "flag": pa.array([True, None, False]),
}


@pytest.mark.parametrize("name", LISTS)
def test_only_the_rows_that_lack_a_value_are_damaged(tmp_path, name, capsys):
    pq.write_table(pa.table({name: LISTS[name]}), tmp_path / "a.parquet")
    source = inputs.source(str(tmp_path))
    assert source.read(np.array([0, 2]))[name].tolist() == [LISTS[name][n].as_py() for n in (0, 2)]
    with pytest.raises(RunnerError, match=f"row 1.*'{name}'"):
        source.read(np.array([0, 1]))
    source.max_faults = 1
    (batch,) = tf.data.Dataset.from_tensors([1]).map(source.load)
    assert batch[name].numpy().tolist() == [LISTS[name][2].as_py()]
    assert "1 of up to 1" in capsys.readouterr().err


def test_lists_of_any_length_that_lack_a_value_are_damaged(tmp_path):
    lists = pa.array([[1, 2], None, [3, None], []], pa.list_(pa.int64()))
    pq.write_table(pa.table({"x": lists}), tmp_path / "a.parquet")
    source = inputs.source(str(tmp_path))
    assert [each.tolist() for each in source.read(np.array([0, 3]))["x"]] == [[1, 2], []]
    for row in (1, 2):
        with pytest.raises(RunnerError, match=f"row {row}"):
            source.read(np.array([row]))


def test_a_source_without_any_intact_example_ends(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n,1\n,2\n3,\n")
    source = inputs.source(str(tmp_path / "a.csv"))
    source.max_faults = 99
    with pytest.raises(RunnerError, match=saying("every damaged")):
        source.load(tf.constant([0, 1, 2]))
    assert "every example" in str(source.failure)


def test_a_mixture_with_a_source_without_any_intact_example_ends(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n,1\n,2\n3,\n")
    (tmp_path / "b.csv").write_text("x,y\n1,1\n2,2\n")
    sources = {name: inputs.source(str(tmp_path / f"{name}.csv")) for name in "ab"}
    mixed = inputs.mixture(sources, weights={"a": 1, "b": 1})
    mixed.max_faults = 99
    with pytest.raises(RunnerError, match=saying("every damaged")):
        mixed.load(tf.constant([0, 3]))


def test_csv_values_with_line_breaks_are_read_wherever_a_block_ends(tmp_path):
    """Arrow reads blocks of a megabyte, which may end within a quoted value."""
    chance = np.random.default_rng(3)
    texts = [
        f"{n} " + "\n".join(["a, b" * int(size), '"c"\n', "\n"])
        for n, size in enumerate(chance.integers(1, 300, 6_000))
    ]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv_of_python.writer(file)
        writer.writerows([["x", "text"], *enumerate(texts)])
    found = everything(tmp_path / "a.csv")
    assert found["x"].tolist() == list(range(6_000))
    assert [each.decode() for each in found["text"]] == texts


def test_categories_and_all_kinds_of_text_are_text(tmp_path):
    words = pa.array(["a", "b", "a", "c"])
    kinds = {
        "category": words.dictionary_encode(),
        "large": words.cast(pa.large_binary()),
        "view": words.cast(pa.string_view()),
    }
    pq.write_table(pa.table(kinds), tmp_path / "a.parquet")
    found = everything(tmp_path / "a.parquet")
    assert list(found) == list(kinds)
    assert all(values.tolist() == [b"a", b"b", b"a", b"c"] for values in found.values())


def with_a_damaged_record(folder):
    path = folder / "a.array_record"
    writer = array_record.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for number in range(40):
        writer.write(bytes([number]) * 1000)
    writer.close()
    data = bytearray(path.read_bytes())
    data[data.find(bytes([30]) * 500) + 100] ^= 1
    path.write_bytes(data)
    return path


def with_a_damaged_chunk(folder):
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        file["y"] = np.arange(40)
        rows = np.arange(40.0 * 64).reshape(40, 64)
        made = file.create_dataset("x", data=rows, chunks=(1, 64), fletcher32=True)
        at = made.id.get_chunk_info(30).byte_offset
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("make", [with_a_damaged_record, with_a_damaged_chunk])
def test_only_the_damaged_one_of_a_batch_is_left_out(tmp_path, make, capsys):
    source = inputs.source(str(make(tmp_path)))
    source.max_faults = 3
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(40)[::-1]).batch(20)
    assert sum(1 for _ in dataset.map(source.load)) == 2
    assert list(source.faults) == [30]
    assert " 30" in capsys.readouterr().err


class Drawn(tfds.core.GeneratorBasedBuilder):
    """Images of different sizes, and features of other kinds."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(num_classes=3),
            "text": tfds.features.Text(),
            "words": tfds.features.Sequence(tf.int64),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        del manager
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for n in range(9):
            image = np.full((2 + n, 3, 3), n, np.uint8)
            yield n, {"image": image, "label": n % 3, "text": f"{n}", "words": [1] * n}


def test_a_prepared_data_set_is_read_by_index_and_images_of_any_size_as_files(tmp_path, capsys):
    made = Drawn(data_dir=str(tmp_path / "data"), file_format="array_record")
    made.download_and_prepare()
    source = inputs.source("tfds:drawn:train", data_dir=str(tmp_path / "data"))
    assert "words" in capsys.readouterr().err
    assert len(source) == 9
    rows = source.read(np.arange(9))
    assert sorted(rows) == ["image", "label", "text"]
    for image, label, text in zip(rows["image"], rows["label"], rows["text"], strict=True):
        pixels = tf.io.decode_image(image).numpy()
        assert (pixels.shape, pixels.max(), label) == (
            (2 + int(text), 3, 3),
            int(text),
            int(text) % 3,
        )
    half = inputs.source("tfds:drawn:train[:50%]", data_dir=str(tmp_path / "data"))
    assert half.shards[0].fingerprint != source.shards[0].fingerprint
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = inputs.source("tfds:drawn:train", data_dir=str(tmp_path / "moved"))
    assert moved.shards == source.shards


def test_a_record_whose_length_looks_like_a_compressed_file_is_read(tmp_path):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(3):
            writer.write(b"a" * 0x178)  # the bytes 78 01
    assert len(inputs.source(str(path))) == 3


def test_classes_without_images_keep_their_numbers_and_hidden_folders_have_none(tmp_path):
    for name in ("cat", "dog", "fox", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    for name in ("cat", "fox", ".ipynb_checkpoints"):
        Image.new("RGB", (2, 2)).save(tmp_path / name / "a.png")
    source = inputs.source(str(tmp_path))
    assert source.classes == ["cat", "dog", "fox"]
    assert source.read(np.arange(2))["label"].tolist() == [0, 2]


def test_a_number_of_bad_examples_is_refused_for_data_that_are_no_source(tmp_path):
    folder = str(tmp_path / "run")
    given = ["TrainerConfig.train_steps = 2", "RunConfig.max_bad_examples = 2"]
    with pytest.raises(ConfigError, match=saying("RunConfig.max_bad_examples 2 effect")):
        runner.run(runner.load("digits.gin", given), folder, "train")
