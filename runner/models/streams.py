"""A user's data that are read from their start: tf.data.Datasets, and Python generators."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from runner.core import console
from runner.errors import ConfigError
from runner.internals import image_files
from runner.models import arrays, elements

_LOOKED_AT = 100  # maximum number of batches to search for a weight that is not 0
_BATCH = 32  # examples in a batch, as in Keras


def batch_size(dataset: tf.data.Dataset) -> int:
    """The number of examples in a dataset's batches, read from the first one if not declared."""
    known = tf.nest.flatten(dataset.element_spec)[0].shape[0]
    return known or int(tf.nest.flatten(first_batch(dataset))[0].shape[0])


def first_batch(dataset: tf.data.Dataset) -> Any:
    """A dataset's first element.

    Raises:
        ConfigError: it has none.
    """
    with image_files.damage_named(dataset):
        for element in dataset.take(1):
            return element
    raise ConfigError("the tf.data.Dataset is empty")


def rebatched(dataset: tf.data.Dataset, size: int, *, training: bool) -> tf.data.Dataset:
    """The same examples in batches of `size`, repeated endlessly for training."""
    if training and dataset.cardinality() != tf.data.INFINITE_CARDINALITY:
        dataset = dataset.repeat()
    if tf.nest.flatten(dataset.element_spec)[0].shape[0] != size:
        endless = dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        dataset = dataset.rebatch(size, drop_remainder=training)
        if endless:  # `rebatch` has lost this information
            known = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            dataset = dataset.apply(known)
    return dataset.prefetch(tf.data.AUTOTUNE)


def read(dataset: tf.data.Dataset, where: str) -> tf.data.Dataset:
    """Checks a dataset and brings its elements into the form of `arrays.batch`.

    Single examples are put into batches.

    Raises:
        ConfigError: no model can learn from its elements.
    """
    spec = dataset.element_spec
    if not isinstance(spec, tuple):
        return dataset.map(arrays.batch, num_parallel_calls=tf.data.AUTOTUNE)
    if len(spec) not in (2, 3):
        raise ConfigError(
            f"{where}: the elements of a tf.data.Dataset must be x, (x, y) or (x, y, "
            f"sample_weight); these are {arrays.described(spec)}"
        )
    if _is_unbatched(spec):
        console.say(f"{where}: the dataset gives single examples, which are put into batches")
        dataset = dataset.batch(_BATCH)
        spec = dataset.element_spec
    for name, part, advice in zip(
        ("y", "sample_weight"), spec[1:], ("class numbers, such as from 0", "numbers"), strict=False
    ):
        if any(each.dtype == tf.string for each in tf.nest.flatten(part)):
            raise ConfigError(f"{where}: {name} has strings; give {advice}")
    if len(spec) == 3:
        _check_weights(dataset, where)
    return dataset.map(arrays.batch, num_parallel_calls=tf.data.AUTOTUNE)


def _check_weights(dataset: tf.data.Dataset, where: str) -> None:
    """Searches for a weight that is not 0, usually in the first batch only."""
    seen = 0
    for _, _, weight in dataset.take(_LOOKED_AT):
        if any(part.numpy().any() for part in tf.nest.flatten(weight, expand_composites=True)):
            return
        seen += 1
    if seen == _LOOKED_AT:
        said = f"{where}: every sample_weight in the first {seen} batches is 0"
        console.say(said, style="yellow")
    elif seen:
        raise ConfigError(f"{where}: {arrays.NOTHING_COUNTS}")


def _is_unbatched(spec: Any) -> bool:
    """Whether elements are single examples: scalars, or parts with different first dimensions."""
    shapes = [part.shape for part in tf.nest.flatten(spec) if part.shape.rank is not None]
    sizes = {shape[0] for shape in shapes if shape.rank}
    return any(shape.rank == 0 for shape in shapes) or (None not in sizes and len(sizes) > 1)


def generated(make: Callable[[], Iterator[Any]], where: str) -> tf.data.Dataset:
    """The batches of a function that returns a new generator at each call.

    Raises:
        ConfigError: there are none, or the first is not (x, y) or (x, y, sample_weight).
    """
    made = make()
    some = [elements.converted(value, where) for value in itertools.islice(made, 2)]
    if not some:
        raise ConfigError(f"{where}: the generator gives no batch")

    def batches() -> Iterator[Any]:
        with elements.errors_named(where):
            for value in make():
                yield elements.converted(value, where)

    return tf.data.Dataset.from_generator(batches, output_signature=elements.spec(some))


def once(generator: Iterator[Any], where: str) -> tf.data.Dataset:
    """The batches of a generator, which can be read only once. Errors are those of `generated`."""
    console.say(
        f"{where}: a generator cannot be rewound: to resume exactly, run the script again, so that "
        "it makes the same batches from the start, or pass the function that returns the generator"
    )
    return generated(_Once(generator, where), where)


class _Once:
    """Returns the batches of a generator at each call, but only the first two more than once."""

    def __init__(self, generator: Iterator[Any], where: str) -> None:
        self._generator, self._where = generator, where
        self._some = list(itertools.islice(generator, 2))
        self._begun, self._lock = False, threading.Lock()

    def __call__(self) -> Iterator[Any]:
        yield from self._some
        with self._lock:
            begun, self._begun = self._begun, True
        if begun:
            raise ConfigError(
                f"{self._where}: the generator has ended, or was read before, and cannot be "
                "rewound: pass the function that returns it"
            )
        yield from self._generator
