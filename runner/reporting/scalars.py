"""The logs of a loop or an evaluation as arrays, and as the numbers that a row holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def arrays(logs: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """All of `logs`, nested names joined by "/"."""
    found: dict[str, np.ndarray] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(arrays(value, f"{prefix}{name}/"))
        else:
            found[prefix + name] = np.asarray(value.numpy() if tf.is_tensor(value) else value)
    return found


def scalars(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `logs`, nested names joined by "/"; anything but a scalar is left out."""
    return {
        name: float(array.reshape(()))
        for name, array in arrays(logs).items()
        if array.size == 1 and np.issubdtype(array.dtype, np.number)
    }
