"""Measures a process's memory and its growth."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_BLOCKS = 15


def resident_mib(pid: int | None = None) -> float:
    """Returns the resident memory of a process in MiB, by default of this one."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def slope(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean increase from one value to the next, and its standard error.

    The line is fitted to the means of 15 blocks. Neighbouring values are correlated, so a fit to
    single values would underestimate the error.
    """
    blocks = min(_BLOCKS, len(values))
    size = len(values) // blocks
    means = np.reshape(values[-size * blocks :], (blocks, size)).mean(axis=1)
    (rise, _), covariance = np.polyfit(np.arange(blocks) * size, means, 1, cov=True)
    return float(rise), float(np.sqrt(covariance[0, 0]))
