"""A user's data: arrays, an .npz file, or a tf.data.Dataset of (x, y) or (x, y, weights)."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from runner.core import console
from runner.errors import ConfigError
from runner.internals import image_files
from runner.storage import data_copies

_EXPECTED = (
    "expected (x, y) or (x, y, sample_weight) of arrays, the path of an .npz file with the arrays "
    "x and y, or a tf.data.Dataset of such pairs"
)
_NOTHING_COUNTS = "every sample_weight is 0, so nothing would be learned"
_LOOKED_AT = 100  # maximum number of batches to search for a weight that is not 0


class Arrays(NamedTuple):
    """Examples in memory: x, y and weights are arrays, or dicts and tuples of them.

    Attributes:
        x: Features, [n, ...].
        y: Labels, [n, ...].
        weight: Sample weights, [n]. () if all examples have equal weight.
        group: Marks examples that stay together in folds, [n]. () without groups.
    """

    x: Any
    y: Any
    weight: Any = ()
    group: Any = ()

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(tf.nest.flatten(self.x)[0])

    def load(self) -> Callable[[tf.Tensor], Any]:
        """The function with which `runner.inputs` looks up examples. See `batch`."""
        with tf.device("cpu:0"):
            parts = tf.nest.map_structure(tf.constant, batch(*self[:3]))

        def load(index: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda part: tf.gather(part, index), parts)

        return load

    def taken(self, index: np.ndarray) -> "Arrays":
        """The examples at some indices."""
        return Arrays(*tf.nest.map_structure(lambda part: part[index], tuple(self)))

    def classes(self) -> np.ndarray | None:
        """The class of each example, [n], if labels are integers or one-hot. Else None."""
        y = self.y
        if not isinstance(y, np.ndarray) or y.ndim > 2:
            return None
        if y.ndim == 2 and y.shape[1] > 1:
            one_hot = np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all()
            return y.argmax(axis=1) if one_hot else None
        return y.reshape(-1) if y.dtype.kind in "iub" else None


Examples: TypeAlias = Arrays | tf.data.Dataset
"""The result of `read`. A dataset has elements like those of `batch`."""


def batch(x: Any, y: Any, weight: Any = ()) -> tuple[Any, tuple[Any, Any]]:
    """An element in the form that the task's steps take: x, and y with its weights."""
    return x, (y, weight)


def read(given: Any, where: str, group: str = "") -> Examples:
    """Validates the user's data.

    Args:
        given: Arrays, a path, or a dataset, as in `_EXPECTED`.
        where: Names it in messages.
        group: A further array that an .npz may have, for folds.

    Raises:
        ConfigError: it is something else, or has examples that no model can learn from.
    """
    if isinstance(given, tf.data.Dataset):
        return _dataset(given, where)
    if isinstance(given, str | Path):
        *given, groups = _from_file(data_copies.local(given, where), where, group)
    else:
        groups = ()
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise ConfigError(f"{where}: {_EXPECTED}; got {_described(given)}")
    x, y, *weight = given
    arrays = Arrays(
        _parts(x, f"{where}: x"),
        _parts(y, f"{where}: y"),
        _parts(weight[0], f"{where}: sample_weight") if weight and weight[0] is not None else (),
        groups,
    )
    _check_lengths(arrays, where)
    _check_values(arrays, where)
    return arrays


def of_fold(examples: Examples, data: Any, where: str) -> Examples:
    """The examples that a `SupervisedData` reads.

    Raises:
        ConfigError: they cannot be split, or not by `fold_group`.
    """
    if not data.folds:
        if data.fold_group:
            raise ConfigError(f"SupervisedData.fold_group={data.fold_group!r}: folds is 0")
        return examples
    if isinstance(examples, tf.data.Dataset):
        raise ConfigError(
            f"SupervisedData.folds={data.folds}: {where} is a tf.data.Dataset, whose examples "
            "cannot be divided; give arrays or an .npz"
        )
    groups = _groups(examples, data.fold_group, where) if data.fold_group else None
    return examples.taken(data.chosen(examples.size, labels=examples.classes(), groups=groups))


def specs(examples: Examples) -> tuple[Any, tuple[Any, Any]]:
    """The specification of a batch of any size, structured like the result of `batch`."""
    if isinstance(examples, tf.data.Dataset):
        return tf.nest.map_structure(_any_size, examples.element_spec)
    return tf.nest.map_structure(
        lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), batch(*examples[:3])
    )


def first(examples: Examples) -> Any:
    """The features of one example, [1, ...]."""
    if isinstance(examples, tf.data.Dataset):
        x, _ = first_batch(examples)
    else:
        x = examples.x
    return tf.nest.map_structure(lambda part: tf.convert_to_tensor(part[:1]), x)


def fingerprint(examples: Examples) -> str:
    """Shapes, types and a hash of the values. For a dataset, its specification and length."""
    if isinstance(examples, tf.data.Dataset):
        return f"{examples.element_spec}, {examples.cardinality()} batches"
    found = hashlib.blake2b(digest_size=6)
    for _, part in _named(examples):
        found.update(np.ascontiguousarray(part).tobytes())
    shown = [f"{name} {part.dtype}{list(part.shape)}" for name, part in _named(examples)]
    return f"{', '.join(shown)}: {found.hexdigest()}"


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


def _from_file(path: Path, where: str, group: str) -> tuple[Any, ...]:
    if path.suffix != ".npz":
        raise ConfigError(f"{where}: {_EXPECTED}; got the path {path}")
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error}") from error
    if not {"x", "y"} <= found.keys() <= {"x", "y", "sample_weight", group}:
        raise ConfigError(
            f"{where}: {path} has the arrays {', '.join(found) or 'none'}; expected x, y and, "
            "if examples are weighted, sample_weight"
        )
    return found["x"], found["y"], found.get("sample_weight"), found.get(group, ())


def _groups(arrays: Arrays, name: str, where: str) -> np.ndarray:
    columns = arrays.x if isinstance(arrays.x, Mapping) else {}
    found = columns.get(name, arrays.group)
    if np.shape(found)[:1] != (arrays.size,) or np.size(found) != arrays.size:
        has = f"; x has {', '.join(map(repr, columns))}" if columns else ""
        raise ConfigError(
            f"{where}: SupervisedData.fold_group={name!r} must be a key of x, or an array of the "
            f".npz, with one value for each example{has}"
        )
    return np.reshape(found, -1)


def _dataset(dataset: tf.data.Dataset, where: str) -> tf.data.Dataset:
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ConfigError(
            f"{where}: the elements of a tf.data.Dataset must be (x, y) or (x, y, sample_weight); "
            f"these are {_described(spec)}"
        )
    if any(part.shape.rank == 0 for part in tf.nest.flatten(spec)):
        raise ConfigError(f"{where}: the dataset gives single examples; add .batch(n)")
    for name, part, advice in zip(
        ("y", "sample_weight"), spec[1:], ("class numbers, such as from 0", "numbers"), strict=False
    ):
        if any(each.dtype == tf.string for each in tf.nest.flatten(part)):
            raise ConfigError(f"{where}: {name} has strings; give {advice}")
    if len(spec) == 3:
        _check_weights(dataset, where)
    return dataset.map(batch, num_parallel_calls=tf.data.AUTOTUNE)


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
        raise ConfigError(f"{where}: {_NOTHING_COUNTS}")


def _parts(value: Any, name: str) -> Any:
    """Arrays in the given structure, floats as float32, which Keras computes with."""
    if isinstance(value, Mapping):
        return {key: _parts(part, f"{name}[{key!r}]") for key, part in value.items()}
    nested = isinstance(value, tuple | list) and any(hasattr(part, "shape") for part in value)
    if nested and any(part.shape for part in value if hasattr(part, "shape")):
        return tuple(_parts(part, f"{name}[{n}]") for n, part in enumerate(value))
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, NotImplementedError) as error:
        said = str(error).partition(". ")[0]
        raise ConfigError(f"{name} is not an array: {said} (or use a tf.data.Dataset)") from error
    if np.ma.is_masked(value):
        raise ConfigError(f"{name} is a masked array, whose masked values would count: fill them")
    if array.dtype == object:
        array = _plain(value, array, name)
    if array.dtype.kind in "mMV":
        raise ConfigError(f"{name} is an array of {_kind(array)}, not of numbers: convert it")
    if array.dtype.kind == "f" and array.dtype != np.float16:
        array = array.astype(np.float32, copy=False)
    return array


def _plain(value: Any, array: np.ndarray, name: str) -> np.ndarray:
    """Converts an array of objects to strings or numbers.

    Raises:
        ConfigError: it holds other objects. For a table, the message names the column.
    """
    if all(isinstance(each, str | bytes) for each in array.flat):
        return array.astype(str)
    if all(isinstance(each, bool | int | float | np.number) for each in array.flat):
        return array.astype(np.float32)
    columns = getattr(value, "columns", ())
    for column in columns:
        part = np.asarray(value[column])
        if part.dtype.kind not in "biuf":
            raise ConfigError(f"{name}: column {column!r} has {_kind(part)}, not numbers")
    raise ConfigError(f"{name} is an array of {_kind(array)}, not of numbers")


def _kind(array: np.ndarray) -> str:
    """Describes the content of an array."""
    if array.dtype.names:
        return f"records ({', '.join(array.dtype.names)})"
    if array.dtype != object:
        return array.dtype.name
    kinds = sorted({type(each).__name__ for each in array.flat})
    return f"objects ({', '.join(kinds[:3])})"


def _check_lengths(arrays: Arrays, where: str) -> None:
    sizes = {name: len(part) if part.ndim else None for name, part in _named(arrays)}
    if None in sizes.values():
        scalar = next(name for name, size in sizes.items() if size is None)
        raise ConfigError(f"{where}: {scalar} is a single number, not one for each example")
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{size:,} of {name}" for name, size in sizes.items())
        raise ConfigError(f"{where}: all need the same number of examples: there are {shown}")
    if not arrays.size:
        raise ConfigError(f"{where}: there are no examples")


def _check_values(arrays: Arrays, where: str) -> None:
    for name, part in _named(arrays):
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            bad = ~np.isfinite(part)
            rows = bad.reshape(len(part), -1).any(axis=1).sum()
            first = np.argwhere(bad)[0].tolist()
            raise ConfigError(
                f"{where}: {name} has values that are not finite (NaN or infinite) in "
                f"{rows:,} of {len(part):,} examples, the first at index "
                f"{first if len(first) > 1 else first[0]}"
            )
        if part.dtype.kind in "SU" and not name.startswith("x"):
            advice = "class numbers, such as from 0" if name.startswith("y") else "numbers"
            raise ConfigError(f"{where}: {name} has strings; give {advice}")
    weights = tf.nest.flatten(arrays.weight)
    if weights and not any(part.any() for part in weights):
        raise ConfigError(f"{where}: {_NOTHING_COUNTS}")


def _named(arrays: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each array with its name: `x`, `y['class']`."""
    for name, part in zip(("x", "y", "sample_weight"), arrays[:3], strict=True):
        for path, leaf in _leaves(part):
            yield name + path, leaf


def _leaves(part: Any) -> Iterator[tuple[str, np.ndarray]]:
    pairs: Any = ()
    if isinstance(part, dict):
        pairs = part.items()
    elif isinstance(part, tuple):
        pairs = enumerate(part)
    else:
        yield "", part
    for key, inner in pairs:
        for path, leaf in _leaves(inner):
            yield f"[{key!r}]{path}", leaf


def _any_size(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape[1:]), spec.dtype)


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    return "None" if value is None else f"a {type(value).__name__}"
