"""Converts the logs of a loop or an evaluation to arrays, and to the numbers in a row."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def arrays(logs: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Returns all values of `logs`, with nested names joined by "/"."""
    found: dict[str, np.ndarray] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(arrays(value, f"{prefix}{name}/"))
        else:
            found[prefix + name] = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return found


def scalars(logs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numeric scalars of `logs`, with nested names joined by "/"."""
    return {
        name: float(array.reshape(()))
        for name, array in arrays(logs).items()
        if array.size == 1 and np.issubdtype(array.dtype, np.number)
    }
