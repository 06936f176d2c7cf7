"""Placed inputs against a shuffle buffer, and the time to the first batch at later steps.

    python scripts/benchmark_inputs.py [--examples=50000] [--batch=128] [--rounds=7]

Both read the same uint8 images of 32x32x3 from memory, in turns, in one process; ratios are
computed within a round, so that drifts in the machine's speed cancel out.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from runner import inputs


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=3_000, help="read in each round")
    flags = parser.parse_args()

    images = Images(flags.examples, flags.batch)
    reads = {
        "placed": reader(images.placed(), flags.batches),
        "buffered": reader(images.buffered(), flags.batches),
    }
    rates: dict[str, list[float]] = {name: [] for name in reads}
    for _ in range(flags.rounds):
        for name, read in reads.items():
            rates[name].append(flags.batches / seconds(read))
    ratios = [a / b for a, b in zip(rates["placed"], rates["buffered"], strict=True)]
    for name, values in rates.items():
        print(f"{name:9} {statistics.median(values):8,.0f} batches/s (median of {flags.rounds})")
    print(
        f"placed / buffered: {statistics.median(ratios):.2f}"
        f" (from {min(ratios):.2f} to {max(ratios):.2f})"
    )
    for step in (0, 10**6, 10**9):
        firsts = [
            seconds(lambda step=step: next(iter(images.placed(step)))) for _ in range(flags.rounds)
        ]
        print(f"first batch at step {step:13,}: {statistics.median(firsts) * 1000:5.0f} ms")


class Images:
    """Random images and labels in memory, read in batches in two ways."""

    def __init__(self, examples: int, batch: int) -> None:
        rng = np.random.default_rng(0)
        self._images = tf.constant(rng.integers(0, 256, (examples, 32, 32, 3), dtype=np.uint8))
        self._labels = tf.constant(rng.integers(0, 10, examples, dtype=np.int32))
        self._examples = examples
        self._batch = batch

    def placed(self, step: int = 0) -> tf.data.Dataset:
        """Read by the runner, from the batch of `step` on."""
        config = inputs.DataConfig(
            is_training=True, global_batch_size=self._batch, start_step=step, seed=1
        )

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(self._images, index), tf.gather(self._labels, index)

        return inputs.place(self._examples, load, config=config)

    def buffered(self) -> tf.data.Dataset:
        """Read through a shuffle buffer of all examples."""
        dataset = tf.data.Dataset.from_tensor_slices((self._images, self._labels))
        dataset = dataset.shuffle(self._examples).repeat().batch(self._batch, drop_remainder=True)
        return dataset.prefetch(tf.data.AUTOTUNE)


def reader(dataset: tf.data.Dataset, batches: int) -> Callable[[], None]:
    """A function that reads `batches` batches in a graph, as a training loop does; warmed up."""
    iterator = iter(dataset)

    @tf.function
    def read(iterator: tf.data.Iterator) -> tf.Tensor:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(batches):
            _, labels = next(iterator)
            total += tf.cast(labels[0], tf.int64)
        return total

    read(iterator)
    return lambda: read(iterator)


def seconds(call: Callable[[], object]) -> float:
    """The duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
