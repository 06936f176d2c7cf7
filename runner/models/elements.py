"""Batches that a user's Python code makes, one at a time."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from runner.core import user_code
from runner.errors import ConfigError
from runner.models import arrays


def converted(value: Any, where: str) -> Any:
    """A batch in the form of `arrays.batch`, of numpy arrays.

    Args:
        value: (x, y) or (x, y, sample_weight).
        where: Names the data in messages.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise ConfigError(
            f"{where}: each batch must be (x, y) or (x, y, sample_weight); "
            f"got {arrays.described(value)}"
        )
    x, y, *weight = value
    found = arrays.batch(
        arrays.parts(x, f"{where}: x of a batch"),
        arrays.parts(y, f"{where}: y of a batch"),
        arrays.parts(weight[0], f"{where}: sample_weight of a batch")
        if weight and weight[0] is not None
        else (),
    )
    for part in tf.nest.flatten(found):
        if not isinstance(part, np.ndarray):
            raise ConfigError(
                f"{where}: a batch has {arrays.described(part)}: use a tf.data.Dataset"
            )
        if not part.ndim:
            raise ConfigError(f"{where}: got a single example; give batches, [n, ...]")
    return found


@contextlib.contextmanager
def errors_named(where: str) -> Iterator[None]:
    """Names the data in errors of the user's code, which TensorFlow would show without its place.

    Raises:
        ConfigError: the code in the block failed.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # the user's code may raise anything
        said = f"{type(error).__name__}: {user_code.summary(error)}"
        raise ConfigError(f"{where}: {said}") from error


def size(batch: Any) -> int:
    """The number of examples in a batch."""
    return len(tf.nest.flatten(batch)[0])


def spec(batches: Sequence[Any]) -> Any:
    """The specification of batches of any size. Dimensions in which the given ones differ are None.

    Args:
        batches: Results of `converted`.
    """
    return tf.nest.map_structure(_common, *batches)


def _common(*parts: np.ndarray) -> tf.TensorSpec:
    inner = zip(*(part.shape[1:] for part in parts), strict=False)
    shape = [None, *(sizes[0] if len({*sizes}) == 1 else None for sizes in inner)]
    dtype = tf.string if parts[0].dtype.kind in "SU" else tf.as_dtype(parts[0].dtype)
    return tf.TensorSpec(shape, dtype)
