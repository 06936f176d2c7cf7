"""Divides examples into the parts of a cross-validation.

Which part an example is in depends on the seed, the number of parts and the examples, not on which
part validates. Groups are placed one at a time, the largest first, each where it is missed most, as
scikit-learn's StratifiedGroupKFold does.
"""

from typing import NamedTuple

import numpy as np

from runner.errors import ConfigError


class Fold(NamedTuple):
    """One side of one part; equal ones choose equal examples.

    Attributes:
        folds: The number of parts.
        fold: The part that validates, from 0.
        seed: Which division.
        validates: Whether this side is the part itself; otherwise it is all other parts.
    """

    folds: int
    fold: int
    seed: int
    validates: bool

    def __str__(self) -> str:
        return f"{'' if self.validates else 'all but '}fold {self.fold} of {self.folds}"

    def count(self, size: int) -> int:
        """How many of `size` examples are on this side; groups may make it another number.

        Raises:
            ConfigError: there are fewer examples than parts.
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
        """The indices of this side's examples, [n] int64, in order.

        Args:
            size: The number of examples, both sides together.
            labels: [size] Classes, of which every part gets its share; None: they do not count.
            groups: [size] Numbers or strings; examples with the same one stay together.

        Raises:
            ConfigError: there are fewer examples or groups than parts.
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
    """The part of each example, [size] int64 from 0; arguments and errors are those of `members`.

    Without groups, the sizes of the parts differ by one at most, as do the counts of each class.
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
    """The part of each group, of its examples in each class: [groups, classes] -> [groups]."""
    weights = np.column_stack([counts / counts.sum(axis=0), counts.sum(axis=1) / counts.sum()])
    held = np.zeros((folds, weights.shape[1]))
    parts = np.empty(len(counts), np.int64)
    for group in np.lexsort((_random(len(counts), seed), -counts.sum(axis=1))):
        parts[group] = (held @ weights[group]).argmin()  # least increases the sum of squares
        held[parts[group]] += weights[group]
    return parts


def _random(size: int, seed: int) -> np.ndarray:
    # A bit generator's raw output is the same in all NumPy versions; shuffles may change.
    return np.random.Philox(key=seed).random_raw(size)


def _numbered(values: np.ndarray) -> np.ndarray:
    """Equal values as equal numbers from 0."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)
