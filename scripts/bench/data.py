"""Measures indexed training data, in user and system CPU time of one process.

    python -m scripts.bench.data index       # index a million records, then open them again
    python -m scripts.bench.data resume      # the first batch at step 10^6 and at step 0
    python -m scripts.bench.data throughput  # vs. shuffle(10,000), including image decoding
    python -m scripts.bench.data memory --gigabytes=10
    python -m scripts.bench.data mixing      # both permutations vs. shuffle(10,000)
    python -m scripts.bench.data packing     # rows of packed sequences, and a mixture of them

The script writes data to --folder and reuses them. The contenders A and B alternate, and the median
of the pairs' ratios is printed, because other work on the machine then affects both equally.
"""

import argparse
import io
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from PIL import Image

from runner import inputs
from runner.data import order
from runner.data.sources import number_files, packed_rows, record_index
from runner.data.sources import packing as heuristic

SIDE = 64  # of an image, in pixels
REPEATS = 5


def cpu() -> float:
    """Returns the CPU seconds of this process so far."""
    return time.process_time()


def timed(work: Callable[[], Any]) -> float:
    """Returns the CPU seconds that `work` takes."""
    began = cpu()
    work()
    return cpu() - began


def ratio(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float, float]:
    """Alternates two kinds of work. Returns the median CPU seconds of both, and of their ratio."""
    first(), second()  # warms up
    pairs = [(timed(first), timed(second)) for _ in range(REPEATS)]
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return a, b, statistics.median(x / y for x, y in pairs)


def records(path: Path, count: int, make: Callable[[int], bytes]) -> Path:
    """Writes a file of records unless it exists."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with tf.io.TFRecordWriter(str(part)) as file:
            for number in range(count):
                file.write(make(number))
        part.rename(path)
    return path


def png(number: int) -> bytes:
    """Encodes a noisy image."""
    file = io.BytesIO()
    pixels = np.random.default_rng(number % 500).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def decoded(batch: tf.Tensor) -> tf.Tensor:
    """Decodes the images of a batch of records."""
    return tf.map_fn(one, batch, fn_output_signature=tf.float32)


def one(record: tf.Tensor) -> tf.Tensor:
    """Decodes the image of a record."""
    return tf.cast(tf.ensure_shape(tf.io.decode_png(record), [SIDE, SIDE, 3]), tf.float32)


def index(given: argparse.Namespace) -> None:
    """Measures how long it takes to index a million small records, and to open them again."""
    path = records(given.folder / "million.tfrecord", 10**6, lambda n: b"%0100d" % n)
    built = timed(lambda: record_index._built(path, path.stat()))
    record_index.of(path)
    again = timed(lambda: record_index.of(path))
    print(f"index of 1,000,000 records: {built:.2f} s of CPU; opened again: {again * 1000:.1f} ms")


def sources(folder: Path) -> dict[str, tuple[inputs.Source, Callable[[Any], Any]]]:
    """Writes the same images in several formats."""
    count = 2000
    tfrecord = records(folder / "images.tfrecord", count, png)
    array, table, images = folder / "a.array_record", folder / "a.parquet", folder / "images"
    if not array.exists():
        from array_record.python import array_record_module

        writer = array_record_module.ArrayRecordWriter(str(array), "group_size:1")
        for number in range(count):
            writer.write(png(number))
        writer.close()
    if not table.exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        column = pa.array([png(number) for number in range(count)], pa.binary())
        pq.write_table(pa.table({"image": column}), table, row_group_size=50)
    if not images.exists():
        for number in range(count):
            (images / str(number % 10)).mkdir(parents=True, exist_ok=True)
            (images / str(number % 10) / f"{number}.png").write_bytes(png(number))
    return {
        "TFRecord": (inputs.source(tfrecord), decoded),
        "ArrayRecord": (inputs.source(array), decoded),
        "Parquet": (inputs.source(table), lambda row: decoded(row["image"])),
        "images": (inputs.source(images), lambda row: decoded(row["image"])),
    }


def resume(given: argparse.Namespace) -> None:
    """Measures the first batch of a pipeline that starts at step 10^6, relative to step 0."""
    for name, (source, parse) in sources(given.folder).items():

        def first(step: int, source: Any = source, parse: Any = parse) -> None:
            config = inputs.DataConfig(is_training=True, global_batch_size=64, start_step=step)
            next(iter(inputs.place(source, parse, config=config)))

        late, early, times = ratio(lambda: first(10**6), lambda: first(0))
        print(f"{name}: step 10^6 {late:.3f} s, step 0 {early:.3f} s, ratio {times:.2f}")


def throughput(given: argparse.Namespace) -> None:
    """Measures batches per CPU second: indexed, and from a pipeline with shuffle(10,000)."""
    path = records(given.folder / "many.tfrecord", 20_000, png)
    config = inputs.DataConfig(is_training=True, global_batch_size=64)
    place = iter(inputs.place(inputs.source(path), decoded, config=config))
    streamed = iter(
        tf.data.TFRecordDataset(str(path))
        .repeat()
        .shuffle(10_000, seed=0)
        .map(one, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(64)
        .prefetch(tf.data.AUTOTUNE)
    )

    def take(iterator: Any) -> None:
        for _ in range(50):
            next(iterator)

    a, b, times = ratio(lambda: take(streamed), lambda: take(place))
    print(f"50 batches of 64: shuffle(10,000) {a:.2f} s, indexed {b:.2f} s of CPU")
    print(f"throughput, indexed relative to the shuffle buffer: {times:.2f}")


def memory(given: argparse.Namespace) -> None:
    """Measures the peak resident memory while many batches are read, from large and small data."""
    sizes = {}
    for gigabytes in (0.1, given.gigabytes):
        path = records(
            given.folder / f"{gigabytes:g}.tfrecord",
            int(gigabytes * 10**4),
            lambda n: b"%d" % n + bytes(10**5),
        )
        if (pid := os.fork()) == 0:
            config = inputs.DataConfig(is_training=True, global_batch_size=16)
            iterator = iter(inputs.place(inputs.source(path), tf.strings.length, config=config))
            for _ in range(2000):
                next(iterator)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            (given.folder / "memory").write_text(str(most))
            os._exit(0)
        os.waitpid(pid, 0)
        sizes[gigabytes] = int((given.folder / "memory").read_text())
        print(f"{gigabytes:g} GB: {sizes[gigabytes] / 1024:.0f} MB resident")
    small, large = sizes.values()
    print(f"ratio {large / small:.3f}")


def mixing(_: argparse.Namespace) -> None:
    """Measures how well an epoch mixes examples that are neighbours in the data."""
    size = 10**6
    place = tf.range(size, dtype=tf.int64)
    full = order.Shuffle(size).serial(place).numpy()
    blocks = order.Shuffle(size, block=1024, window=16).serial(place).numpy()
    buffered = np.array(
        list(tf.data.Dataset.range(size).shuffle(10_000, seed=0).as_numpy_iterator())
    )
    print(
        "order | correlation with the data's | neighbours within 16 batches of 64 | runs of 1,024"
    )
    for name, epoch in (("full", full), ("blocks", blocks), ("shuffle(10,000)", buffered)):
        where = np.empty(size, np.int64)
        where[epoch] = np.arange(size)
        correlation = np.corrcoef(where, np.arange(size))[0, 1]
        near = (np.abs(np.diff(where)) < 1024).mean()
        distinct = np.mean(
            [len(np.unique(epoch[at : at + 1024] // 1024)) for at in range(0, size - 1024, 99_991)]
        )
        print(f"{name} | {correlation:.3f} | {near:.4f} | {distinct:.0f} blocks in 1,024 examples")


def packing(given: argparse.Namespace) -> None:
    """Measures the packing of 100,000 sequences, the reading of rows, and a mixture of sources."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(4.5, 0.7, 10**5).astype(int), 1, 512)
    several = {"log-normal": lengths[:20_480]}
    for low, high in ((1, 512), (1, 19), (200, 399)):
        several[f"{low} to {high}"] = random.integers(low, high + 1, 20_480)
    for name, sizes in several.items():
        windows = np.split(sizes[:, np.newaxis], 10)
        rows = sum(len(heuristic.rows(window, [512])) for window in windows)
        before, after = sizes.mean() / 512, sizes.sum() / 512 / rows
        print(f"lengths {name}: {before:.1%} full, {after:.1%} when packed")

    def sequence(number: int) -> bytes:
        example = tf.train.Example()
        tokens = random.integers(1, 2**15, lengths[number]).tolist()
        example.features.feature["tokens"].int64_list.value.extend(tokens)
        return bytes(example.SerializeToString())

    source = inputs.source(records(given.folder / "tokens.tfrecord", len(lengths), sequence))
    for path in number_files.folder(packed_rows.FOLDER).glob("*"):
        path.unlink()
    built = timed(lambda: inputs.packed(source, {"tokens": 512}))
    again = timed(lambda: inputs.packed(source, {"tokens": 512}))
    packed = inputs.packed(source, {"tokens": 512})
    read = timed(lambda: [packed.read(np.arange(n, n + 32)) for n in range(0, 6400, 32)]) / 6400
    print(f"packed in {built:.2f} s of CPU; opened again: {again * 1000:.1f} ms")
    print(f"a row is read in {read * 10**6:.0f} us of CPU")
    mixed = inputs.mixture({"a": packed, "b": packed}, {"a": 0.7, "b": 0.3})

    def first(source: Any, step: int) -> None:
        config = inputs.DataConfig(is_training=True, global_batch_size=64, start_step=step)
        next(iter(inputs.place(source, lambda row: row["tokens"], config=config)))

    late, early, times = ratio(lambda: first(mixed, 10**6), lambda: first(mixed, 0))
    print(f"mixture: step 10^6 {late:.3f} s, step 0 {early:.3f} s, ratio {times:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    works = {work.__name__: work for work in (index, resume, throughput, memory, mixing, packing)}
    parser.add_argument("what", choices=works)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/benchmark_data"))
    parser.add_argument("--gigabytes", type=float, default=10)
    options = parser.parse_args(sys.argv[1:])
    works[options.what](options)
