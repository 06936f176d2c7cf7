"""Divides examples into the parts of a cross-validation.

The part of an example depends on the seed, the number of parts and the examples, not on which part
validates. Groups are placed one at a time, the largest first, each where it improves the balance
most, as in scikit-learn's StratifiedGroupKFold.
"""

from typing import NamedTuple

import numpy as np

from runner.errors import ConfigError


class Fold(NamedTuple):
    """One side of one part. Equal folds select equal examples.

    Attributes:
        folds: The number of parts.
        fold: The part that validates, from 0.
        seed: Selects the division.
        validates: Whether this side is the part itself. Otherwise it is all other parts.
    """

    folds: int
    fold: int
    seed: int
    validates: bool

    def __str__(self) -> str:
        return f"{'' if self.validates else 'all but '}fold {self.fold} of {self.folds}"

    def count(self, size: int) -> int:
        """Returns how many of `size` examples are on this side, assuming there are no groups.

        Raises:
            ConfigError: if there are fewer examples than parts.
        """
        _check(size, self.folds)
        own = len(range(self.fold, size, self.folds))
        return own if self.validates else size - own

    def members(
        self,
        size: int,
        *,
        labels: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns the indices of this side's examples, [n] int64, in order.

        Args:
            size: The number of examples, both sides together.
            labels: [size] Classes, which are spread evenly over the parts, or None to ignore them.
            groups: [size] Numbers or strings. Examples of the same group stay together.

        Raises:
            ConfigError: if there are fewer examples or groups than parts.
        """
        parts = divide(size, self.folds, self.seed, labels=labels, groups=groups)
        return np.flatnonzero((parts == self.fold) == self.validates)


def divide(
    size: int,
    folds: int,
    seed: int,
    *,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the part of each example, [size] int64 from 0.

    Arguments and errors are those of `members`. Without groups, the sizes of the parts differ by
    one at most. The same applies to the counts of each class.
    """
    classes = np.zeros(size, np.int64) if labels is None else _numbered(labels)
    if groups is not None:
        numbers = _numbered(groups)
        counts = np.zeros((numbers.max(initial=-1) + 1, classes.max(initial=0) + 1), np.int64)
        np.add.at(counts, (numbers, classes), 1)
        if len(counts) < folds:
            raise ConfigError(f"folds={folds}: there are only {len(counts)} groups to divide")
        return _placed(counts, folds, seed)[numbers]
    _check(size, folds)
    order = np.lexsort((_random(size, seed), classes))
    parts = np.empty(size, np.int64)
    parts[order] = np.arange(size) % folds
    return parts


def _check(size: int, folds: int) -> None:
    if size < folds:
        raise ConfigError(f"folds={folds}: there are only {size} examples to divide")


def _placed(counts: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Returns the part of each group from its counts per class: [groups, classes] -> [groups]."""
    weights = np.column_stack([counts / counts.sum(axis=0), counts.sum(axis=1) / counts.sum()])
    held = np.zeros((folds, weights.shape[1]))
    parts = np.empty(len(counts), np.int64)
    for group in np.lexsort((_random(len(counts), seed), -counts.sum(axis=1))):
        parts[group] = (held @ weights[group]).argmin()  # least increases the sum of squares
        held[parts[group]] += weights[group]
    return parts


def _random(size: int, seed: int) -> np.ndarray:
    # A bit generator's raw output is the same in all NumPy versions, but shuffles may change.
    return np.random.Philox(key=seed).random_raw(size)


def _numbered(values: np.ndarray) -> np.ndarray:
    """Returns equal values as equal numbers from 0."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)
