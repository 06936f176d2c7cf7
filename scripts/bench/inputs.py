"""Reads the same images from memory by index and through a shuffle buffer."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from runner import inputs


class Images:
    """Random images and labels in memory, read in batches in two ways."""

    def __init__(self, examples: int, batch: int) -> None:
        rng = np.random.default_rng(0)
        self._images = tf.constant(rng.integers(0, 256, (examples, 32, 32, 3), dtype=np.uint8))
        self._labels = tf.constant(rng.integers(0, 10, examples, dtype=np.int32))
        self._examples = examples
        self._batch = batch

    def indexed(self, step: int = 0) -> tf.data.Dataset:
        """Returns the runner's dataset, starting with the batch of `step`."""
        config = inputs.DataConfig(
            is_training=True, global_batch_size=self._batch, start_step=step, seed=1
        )

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(self._images, index), tf.gather(self._labels, index)

        return inputs.place(self._examples, load, config=config)

    def buffered(self) -> tf.data.Dataset:
        """Returns a dataset with a shuffle buffer of all examples."""
        dataset = tf.data.Dataset.from_tensor_slices((self._images, self._labels))
        dataset = dataset.shuffle(self._examples).repeat().batch(self._batch, drop_remainder=True)
        return dataset.prefetch(tf.data.AUTOTUNE)


def reader(dataset: tf.data.Dataset, batches: int) -> Callable[[], None]:
    """Returns a warmed-up function that reads `batches` batches in a graph, as training does."""
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
