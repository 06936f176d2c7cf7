"""How much of the variance of a metric each kind of randomness contributes. No TensorFlow.

A study that varies seeds only, such as `--seeds=3 --vary="RunConfig.data_seed=0,1,2"`, trains all
combinations of them. Each seed is then a random effect of an analysis of variance with one run per
combination. Its variance is estimated from the mean squares, and interactions of the seeds are the
residual. See Bouthillier et al., Accounting for Variance in Machine Learning Benchmarks, 2021.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from runner.run_directory.state import FINISHED
from runner.studies.trial import Trial

WEIGHTS = "RunConfig.seed"
SEEDS = (WEIGHTS, "RunConfig.data_seed", "RunConfig.augmentation_seed")


class Component(NamedTuple):
    """The contribution of one kind of randomness.

    Attributes:
        seed: The seed that varies it, or empty for interactions of the seeds.
        values: How many values the seed had.
        std: The standard deviation that it alone causes.
        share: Its share of the variance, from 0 to 1.
    """

    seed: str
    values: int
    std: float
    share: float


def varies_seeds_only(trials: Sequence[Trial]) -> bool:
    """Returns whether a study compares seeds, and no other values."""
    names = {name for each in trials for name in each.parameters}
    return bool(names) and names <= set(SEEDS)


def of(trials: Sequence[Trial], metric: str) -> list[Component]:
    """Returns the components of the variance of a metric at the best evaluations.

    Args:
        trials: The trials of a study that varies seeds only.
        metric: Its name.

    Returns:
        Empty if a combination of the seeds is missing or has not finished, or if no seed has two
        values. Folds are averaged.
    """
    rows = [
        ({**each.parameters, WEIGHTS: each.seed}, each.fold, each.best.get(metric, math.nan))
        for each in trials
    ]
    axes = {
        name: values
        for name in SEEDS
        if len(values := sorted({row[name] for row, _, _ in rows if name in row})) > 1
    }
    folds = sorted({fold for _, fold, _ in rows}, key=str)
    sizes = [*map(len, axes.values()), len(folds)]
    has_finished = all(each.state in FINISHED for each in trials)
    if not axes or not has_finished or len(rows) != math.prod(sizes):
        return []
    scores = np.full(sizes, math.nan)
    for row, fold, value in rows:
        place = tuple(values.index(row[name]) for name, values in axes.items())
        scores[(*place, folds.index(fold))] = value
    table = scores.mean(axis=-1)
    return _components(table, axes) if np.isfinite(table).all() else []


def _components(table: np.ndarray, axes: Mapping[str, Sequence[int]]) -> list[Component]:
    total, squares, degrees = table.size, {}, {}
    for axis, name in enumerate(axes):
        others = tuple(each for each in range(table.ndim) if each != axis)
        effects = table.mean(axis=others) - table.mean()
        degrees[name] = table.shape[axis] - 1
        squares[name] = total / table.shape[axis] * float(np.sum(effects**2))
    left = total - 1 - sum(degrees.values())
    residual = float(np.sum((table - table.mean()) ** 2)) - sum(squares.values())
    error = max(residual, 0.0) / left if left else 0.0
    variances = {
        name: max(squares[name] / degrees[name] - error, 0.0) * len(axes[name]) / total
        for name in axes
    }
    if left:
        variances[""] = error
    whole = sum(variances.values())
    return [
        Component(
            name, len(axes.get(name, ())), math.sqrt(each), each / whole if whole else math.nan
        )
        for name, each in variances.items()
    ]
