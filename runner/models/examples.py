"""A user's data for a model, in any of the forms that `runner.fit` takes."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from runner import inputs
from runner.errors import ConfigError
from runner.models import arrays, batch_sequences, data_files, streams, tables, tensors
from runner.models.arrays import Arrays as Arrays
from runner.models.batch_sequences import BatchSequence as BatchSequence
from runner.storage import data_copies

_EXPECTED = (
    "expected x, (x, y) or (x, y, sample_weight) of arrays or DataFrames, the path of an .npz file "
    "with the arrays x and y, (path, column) of a CSV or Parquet file, a tf.data.Dataset, a "
    "PyDataset or Sequence of Keras, or a function that returns a generator"
)

Examples: TypeAlias = Arrays | BatchSequence | tf.data.Dataset
"""The result of `read`. A dataset has elements like those of `arrays.batch`."""


def read(
    given: Any, where: str, group: str = "", *, takes: tables.Takes = tables.unknown
) -> Examples:
    """Validates the user's data.

    Args:
        given: Data as in `_EXPECTED`, a generator, or a function that returns any of these.
        where: Names it in messages.
        group: A further array that an .npz may have, for folds.
        takes: Returns what the model takes, which decides on the form of a table.

    Raises:
        ConfigError: it is something else, or has examples that no model can learn from.
    """
    if batch_sequences.is_sequence(given):
        return BatchSequence(given, where)
    if isinstance(given, tf.data.Dataset):
        return streams.read(given, where)
    if isinstance(given, Iterator):
        return streams.once(given, where)
    if callable(given):
        made = given()
        if isinstance(made, Iterator):
            return streams.generated(given, where)
        return read(made, where, group, takes=takes)
    groups: Any = ()
    if data_files.is_table(given):
        path, label, *named = given
        weight = named[0] if named else None
        given = data_files.table(data_copies.local(path, where), label, weight, where, takes)
    elif isinstance(given, str | Path):
        path = data_copies.local(given, where)
        if path.suffix != ".npz":
            raise data_files.of_other_kind(path, where, _EXPECTED)
        *given, groups = data_files.npz(path, where, group)
    if hasattr(given, "shape") or isinstance(given, Mapping):
        given = (given, None)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise ConfigError(f"{where}: {_EXPECTED}; got {arrays.described(given)}")
    x, y, weight = (*given, None)[:3]
    return arrays.read(x, y, weight, where, group=groups, takes=takes)


def of_fold(examples: Examples, data: Any, where: str) -> Examples:
    """The examples that a `SupervisedData` reads.

    Raises:
        ConfigError: they cannot be split, or not by `fold_group`.
    """
    if not data.folds:
        if data.fold_group:
            raise ConfigError(f"SupervisedData.fold_group={data.fold_group!r}: folds is 0")
        return examples
    if not isinstance(examples, Arrays):
        raise ConfigError(
            f"SupervisedData.folds={data.folds}: {where} come in batches (from a tf.data.Dataset, "
            "PyDataset, Sequence or generator), whose examples cannot be divided; give arrays, a "
            "table or an .npz"
        )
    groups = _groups(examples, data.fold_group, where) if data.fold_group else None
    return examples.taken(data.chosen(examples.size, labels=examples.classes(), groups=groups))


def specs(examples: Examples) -> tuple[Any, tuple[Any, Any]]:
    """The specification of a batch of any size, structured like the result of `arrays.batch`."""
    if isinstance(examples, Arrays):
        return tf.nest.map_structure(tensors.spec, arrays.batch(*examples[:3]))
    return tf.nest.map_structure(_any_size, examples.element_spec)


def first(examples: Examples) -> Any:
    """The features of one example, [1, ...]."""
    if isinstance(examples, Arrays):
        return tf.nest.map_structure(tensors.first, examples.x)
    x, _ = examples.first if isinstance(examples, BatchSequence) else streams.first_batch(examples)
    return tf.nest.map_structure(lambda part: tf.convert_to_tensor(part[:1]), x)


def fingerprint(examples: Examples) -> str:
    """Shapes, types and a hash of the values. For data in batches, specification and length."""
    if isinstance(examples, BatchSequence):
        return examples.describe()
    if isinstance(examples, tf.data.Dataset):
        return f"{examples.element_spec}, {examples.cardinality()} batches"
    found = hashlib.blake2b(digest_size=6)
    for _, part in arrays.named(examples):
        for content in tensors.content(part):
            found.update(content.tobytes())
    shown = [f"{name} {tensors.shown(part)}" for name, part in arrays.named(examples)]
    return f"{', '.join(shown)}: {found.hexdigest()}"


def are_streamed(examples: Examples) -> bool:
    """Whether examples are a sequential stream rather than found by index."""
    return isinstance(examples, tf.data.Dataset)


def batch_size(examples: BatchSequence | tf.data.Dataset) -> int:
    """The number of examples in a batch, that of the first one if not declared."""
    if isinstance(examples, BatchSequence):
        return examples.batch_size
    return streams.batch_size(examples)


def length(examples: BatchSequence | tf.data.Dataset) -> int:
    """The number of batches, or -1 if they do not end, or -2 if it is unknown, as in tf.data."""
    if isinstance(examples, BatchSequence):
        return -1 if examples.length is None else examples.length
    return int(examples.cardinality())


def batches(
    examples: Examples, config: inputs.DataConfig, context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """Batches for the replicas in turn: for training without end, else each example once.

    Args:
        examples: The data.
        config: Describes the batches.
        context: As for `runner.inputs.place`.

    Raises:
        ConfigError: the batches cannot have the configured size.
    """
    if isinstance(examples, BatchSequence):
        return examples.batches(config, context)
    if isinstance(examples, tf.data.Dataset):
        replicas = context.num_replicas_in_sync if context else 1
        size = config.global_batch_size // replicas
        return streams.rebatched(examples, size, training=config.is_training)
    place = inputs.place if config.is_training else inputs.in_order
    return place(examples.size, examples.load(), config=config, input_context=context)


def _groups(examples: Arrays, name: str, where: str) -> np.ndarray:
    columns = examples.x if isinstance(examples.x, Mapping) else {}
    found = columns.get(name, examples.group)
    if np.shape(found)[:1] != (examples.size,) or np.size(found) != examples.size:
        has = f"; x has {', '.join(map(repr, columns))}" if columns else ""
        raise ConfigError(
            f"{where}: SupervisedData.fold_group={name!r} must be a key of x, or an array of the "
            f".npz, with one value for each example{has}"
        )
    return np.reshape(found, -1)


def _any_size(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape[1:]), spec.dtype)
