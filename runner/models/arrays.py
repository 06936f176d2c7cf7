"""A user's data in memory: arrays, converted and checked before training."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from runner.errors import ConfigError
from runner.models import tables, tensors

NOTHING_COUNTS = "every sample_weight is 0, so nothing would be learned"


class Arrays(NamedTuple):
    """Examples in memory: x, y and weights are arrays, or dicts and tuples of them.

    Attributes:
        x: Features, [n, ...]. They may also be a tf.RaggedTensor or a tf.SparseTensor.
        y: Labels, [n, ...]. () if there are none.
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
        return tensors.count(tf.nest.flatten(self.x)[0]) or 0

    def load(self) -> Callable[[tf.Tensor], Any]:
        """The function with which `runner.inputs` looks up examples. See `batch`."""
        with tf.device("cpu:0"):
            lookups = tf.nest.map_structure(tensors.lookup, batch(*self[:3]))

        def load(index: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda look_up: look_up(index), lookups)

        return load

    def taken(self, index: np.ndarray) -> "Arrays":
        """The examples at some indices."""
        return Arrays(*tf.nest.map_structure(lambda part: tensors.taken(part, index), tuple(self)))

    def classes(self) -> np.ndarray | None:
        """The class of each example, [n], if labels are integers or one-hot. Else None."""
        y = self.y
        if not isinstance(y, np.ndarray) or y.ndim > 2:
            return None
        if y.ndim == 2 and y.shape[1] > 1:
            one_hot = np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all()
            return y.argmax(axis=1) if one_hot else None
        return y.reshape(-1) if y.dtype.kind in "iub" else None


def batch(x: Any, y: Any = (), weight: Any = ()) -> tuple[Any, tuple[Any, Any]]:
    """An element in the form that the task's steps take: x, and y with its weights."""
    return x, (y, weight)


def read(
    x: Any, y: Any, weight: Any, where: str, *, group: Any = (), takes: tables.Takes
) -> Arrays:
    """Converts and checks data in memory.

    Args:
        x: Arrays, tensors, tables, or dicts and tuples of them.
        y: In the same form, or None.
        weight: In the same form, or None.
        where: Names the data in messages.
        group: As in `Arrays`.
        takes: Returns what the model takes, by which a table becomes one matrix or a dict.

    Raises:
        ConfigError: no model can learn from them.
    """
    if tables.is_frame(x):
        x = tables.features(tables.of_frame(x, f"{where}: x"), f"{where}: x", takes)
    arrays = Arrays(
        parts(x, f"{where}: x"),
        () if y is None else parts(y, f"{where}: y"),
        () if weight is None else parts(weight, f"{where}: sample_weight"),
        group,
    )
    _check_lengths(arrays, where)
    _check_values(arrays, where)
    return arrays


def parts(value: Any, name: str) -> Any:
    """Arrays in the given structure, floats as float32, which Keras computes with.

    Args:
        value: Arrays or what numpy makes arrays of, tensors, tables, or dicts and tuples of them.
        name: Names it in messages.

    Raises:
        ConfigError: it is something else.
    """
    if tables.is_frame(value):
        return parts(tables.matrix(tables.of_frame(value, name), name), name)
    if tables.is_series(value):
        value = tables.of_series(value, name)
    if scipy.sparse.issparse(value):
        value = tensors.of_sparse_matrix(value)
    if tensors.is_composite(value):
        return _composite(value, name)
    if isinstance(value, Mapping):
        return {key: parts(part, f"{name}[{key!r}]") for key, part in value.items()}
    nested = isinstance(value, tuple | list) and any(hasattr(part, "shape") for part in value)
    if nested and any(part.shape for part in value if hasattr(part, "shape")):
        return tuple(parts(part, f"{name}[{n}]") for n, part in enumerate(value))
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


def _composite(value: Any, name: str) -> Any:
    """Checks a ragged or sparse tensor and converts its floats."""
    if value.shape.rank is None or value.shape.rank < 2 or value.shape[0] is None:
        raise ConfigError(f"{name} has the shape {value.shape}: it needs at least 2 dimensions")
    return tf.cast(value, tf.float32) if value.dtype == tf.float64 else value


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
    sizes = {name: tensors.count(part) for name, part in named(arrays)}
    if None in sizes.values():
        scalar = next(name for name, size in sizes.items() if size is None)
        raise ConfigError(f"{where}: {scalar} is a single number, not one for each example")
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{size:,} of {name}" for name, size in sizes.items())
        raise ConfigError(f"{where}: all need the same number of examples: there are {shown}")
    if not arrays.size:
        raise ConfigError(f"{where}: there are no examples")


def _check_values(arrays: Arrays, where: str) -> None:
    for name, rows in named(arrays):
        part = tensors.values(rows)
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            bad = ~np.isfinite(part)
            kind = "values" if tensors.is_composite(rows) else "examples"
            number = bad.reshape(len(part), -1).any(axis=1).sum()
            first = np.argwhere(bad)[0].tolist()
            raise ConfigError(
                f"{where}: {name} has values that are not finite (NaN or infinite) in "
                f"{number:,} of {len(part):,} {kind}, the first at index "
                f"{first if len(first) > 1 else first[0]}"
            )
        if part.dtype.kind in "SU" and not name.startswith("x"):
            advice = "class numbers, such as from 0" if name.startswith("y") else "numbers"
            raise ConfigError(f"{where}: {name} has strings; give {advice}")
    weights = tf.nest.flatten(arrays.weight)
    if weights and not any(tensors.values(part).any() for part in weights):
        raise ConfigError(f"{where}: {NOTHING_COUNTS}")


def named(arrays: Arrays) -> Iterator[tuple[str, tensors.Rows]]:
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


def described(value: Any) -> str:
    """What a value of the user's is, for messages."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    return "None" if value is None else f"a {type(value).__name__}"
