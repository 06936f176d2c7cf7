"""The proportions of the sources in a mixture."""

import math
import numbers
from collections.abc import Mapping

import numpy as np

from runner.core import spelling
from runner.errors import ConfigError

_SLOTS = 4096  # the largest block of a mixture, which is permuted by a sort


def given(weights: Mapping[str, float], names: Mapping[str, object]) -> dict[str, float]:
    """Returns the share of each source from its weight.

    Raises:
        ConfigError: if a weight is missing, unknown or not a positive number.
    """
    if unknown := sorted(weights.keys() - names.keys()):
        raise ConfigError(
            f"inputs.mixture: weights has {unknown[0]!r}, which is not a source"
            f"{spelling.did_you_mean(unknown[0], names)}"
        )
    if missing := sorted(names.keys() - weights.keys()):
        raise ConfigError(f"inputs.mixture: weights lacks the source {missing[0]!r}")
    for name, weight in weights.items():
        if not _is_positive(weight):
            raise ConfigError(
                f"inputs.mixture: the weight of {name!r} is {weight!r}; it must be a number above 0"
            )
    return _shares(weights)


def by_size(sizes: Mapping[str, int], *, temperature: float, maximum: int) -> dict[str, float]:
    """Returns the share of each source from its size: min(size, maximum) ** (1 / temperature).

    Raises:
        ConfigError: if `temperature` or `maximum` is not positive.
    """
    if not _is_positive(temperature):
        raise ConfigError(f"inputs.mixture: temperature={temperature!r} must be a number above 0")
    if maximum < 0:
        raise ConfigError(f"inputs.mixture: maximum={maximum!r} must be 1 or more, or 0 for none")
    capped = {name: min(size, maximum or size) for name, size in sizes.items()}
    largest = max(capped.values())
    return _shares({name: (size / largest) ** (1 / temperature) for name, size in capped.items()})


def slots(shares: Mapping[str, float]) -> dict[str, int]:
    """Returns how many places of a block each source has.

    Of the sizes up to 4,096 places, the function chooses the one with the smallest relative error
    of a share. Largest remainders divide the places. Equal proportions have equal results.

    Raises:
        ConfigError: if a share is too small to get a place.
    """
    name, least = min(shares.items(), key=lambda share: share[1])
    if least * _SLOTS < 1:
        raise ConfigError(
            f"inputs.mixture: {name!r} has {least:.2g} of the total weight; the smallest possible "
            f"share is 1 / {_SLOTS:,}"
        )
    wanted = np.array(list(shares.values()))
    totals = np.arange(_SLOTS // 2 + 1, _SLOTS + 1)
    exact = totals[:, np.newaxis] * wanted
    counts = np.floor(exact)
    rank = np.argsort(np.argsort(counts - exact, axis=1, kind="stable"), axis=1)
    counts += rank < (totals - counts.sum(axis=1))[:, np.newaxis]
    errors = np.round(np.abs(counts / exact - 1).max(axis=1), 9)  # equal whatever the rounding
    best = counts[np.argmin(errors)].astype(int).tolist()
    unit = [count // math.gcd(*best) for count in best]
    return {name: count * (_SLOTS // sum(unit)) for name, count in zip(shares, unit, strict=True)}


def _is_positive(value: object) -> bool:
    return isinstance(value, numbers.Real) and 0 < float(value) < math.inf


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    largest = max(weights.values())
    parts = {name: float(weight / largest) for name, weight in weights.items()}
    return {name: part / math.fsum(parts.values()) for name, part in parts.items()}
