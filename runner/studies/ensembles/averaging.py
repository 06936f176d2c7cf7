"""Combines the predictions of several models: mean, diversity and selection. No TensorFlow.

Predictions are [n, ..., classes] float arrays of probabilities, one for each batch of a data set.
Batches may differ in their inner sizes.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize

Batches = Sequence[np.ndarray]
_TINY = 1e-12  # a probability that a float32 softmax rounds to 0
_HOTTEST = 20.0
_BINS = 15


def mean(members: Sequence[Batches]) -> list[np.ndarray]:
    """Returns the mean of the members' predictions, batch by batch. Members may be repeated."""
    return [
        np.mean(np.stack(parts).astype(np.float64), axis=0).astype(np.float32)
        for parts in zip(*members, strict=True)
    ]


def are_probabilities(batches: Batches) -> bool:
    """Returns whether the last axis sums to 1."""
    return all(
        part.ndim > 1 and bool((part >= 0).all()) and np.allclose(part.sum(axis=-1), 1, atol=1e-3)
        for part in batches
    )


def disagreement(first: Batches, second: Batches) -> float:
    """Returns the share of predictions whose most probable class differs."""
    differs = [
        (a.argmax(axis=-1) != b.argmax(axis=-1)).ravel() for a, b in zip(first, second, strict=True)
    ]
    return float(np.concatenate(differs).mean())


def divergence(first: Batches, second: Batches) -> float:
    """Returns the mean Kullback-Leibler divergence of the second from the first, in nats."""
    found = [
        (a * (_log(a) - _log(b))).sum(axis=-1).ravel() for a, b in zip(first, second, strict=True)
    ]
    return float(np.concatenate(found).mean())


class Diversity(NamedTuple):
    """The differences between members.

    Attributes:
        disagreement: [members, members] The symmetric matrix of `disagreement`.
        kl: [members, members] The `divergence` of the column from the row.
    """

    disagreement: np.ndarray
    kl: np.ndarray

    @property
    def means(self) -> dict[str, float]:
        """The mean over all pairs of different members."""
        apart = ~np.eye(len(self.kl), dtype=bool)
        return {name: float(values[apart].mean()) for name, values in self._asdict().items()}


def diversity(members: Sequence[Batches]) -> Diversity:
    """Computes the differences of all pairs."""
    count = len(members)
    unlike, kl = np.zeros((count, count)), np.zeros((count, count))
    for row, first in enumerate(members):
        for column, second in enumerate(members):
            if row < column:
                unlike[row, column] = unlike[column, row] = disagreement(first, second)
            if row != column:
                kl[row, column] = divergence(first, second)
    return Diversity(unlike, kl)


class Round(NamedTuple):
    """A step of `select`: the member that was added, and the score of all members so far."""

    member: int
    score: float


def select(
    score: Callable[[Sequence[int]], float], members: int, size: int, *, higher: bool
) -> list[Round]:
    """Chooses members greedily, with replacement. Each step adds the member that helps most.

    From Caruana et al., "Ensemble selection from libraries of models", 2004. Ties go to the first
    member. The search continues when the score gets worse, and leaves the choice of the best size
    to the caller.

    Args:
        score: Returns the score of the mean of some members, which may be repeated.
        members: The number of members.
        size: The number of members to choose.
        higher: Whether a higher score is better.

    Returns:
        [size] The choices in order.

    Raises:
        ValueError: no score is a number.
    """
    chosen: list[int] = []
    rounds = []
    for _ in range(size):
        scores = [score([*chosen, member]) for member in range(members)]
        ranked = [math.inf if math.isnan(one) else -one if higher else one for one in scores]
        best = int(np.argmin(ranked))
        if math.isnan(scores[best]):
            raise ValueError("no score is a number")
        chosen.append(best)
        rounds.append(Round(best, scores[best]))
    return rounds


def tempered(batches: Batches, temperature: float) -> list[np.ndarray]:
    """Returns probabilities to the power of 1 / temperature, normalized to sum to 1. 0 stays 0."""
    found = []
    for part in batches:
        scaled = _log(part.astype(np.float64)) / temperature
        powers = np.where(part > 0, np.exp(scaled - scaled.max(axis=-1, keepdims=True)), 0)
        found.append((powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32))
    return found


def likelihood(batches: Batches, labels: Sequence[np.ndarray]) -> float:
    """Returns the mean negative log-likelihood of labels [n, ...], ignoring negative classes."""
    lost: list[np.ndarray] = []
    for part, classes in zip(batches, labels, strict=True):
        known = classes >= 0
        of_label = np.take_along_axis(part, np.maximum(classes, 0)[..., np.newaxis], axis=-1)
        lost.append(-_log(of_label[..., 0].astype(np.float64))[known])
    return float(np.concatenate(lost).mean())


def calibration(batches: Batches, labels: Sequence[np.ndarray]) -> dict[str, float]:
    """Computes metrics of probabilities over all predictions whose label is not negative.

    Brier's score is in [0, 2]. The calibration error is the mean distance of confidence from
    accuracy over 15 equal bins of confidence, weighted by their sizes (Guo et al., 2017).
    """
    rows = []
    for part, classes in zip(batches, labels, strict=True):
        known = classes >= 0
        held, right = part[known].astype(np.float64), classes[known]
        of_label = np.take_along_axis(held, right[:, np.newaxis], axis=-1)[:, 0]
        sure, best = held.max(axis=-1), held.argmax(axis=-1) == right
        brier = (held**2).sum(axis=-1) - 2 * of_label + 1
        rows.append(np.stack([-_log(of_label), brier, sure, best]))
    likelihoods, briers, sure, best = np.concatenate(rows, axis=1)
    bins = np.minimum(np.ceil(sure * _BINS), _BINS).astype(int)
    off = np.bincount(bins, weights=best - sure, minlength=_BINS + 1)
    return {
        "negative_log_likelihood": float(likelihoods.mean()),
        "brier_score": float(briers.mean()),
        "expected_calibration_error": float(np.abs(off).sum() / len(sure)),
    }


def is_at_an_end(temperature: float) -> bool:
    """Returns whether a temperature is at either end of the search range."""
    return abs(math.log(temperature)) > 0.99 * math.log(_HOTTEST)


def temperature(batches: Batches, labels: Sequence[np.ndarray]) -> float:
    """Returns the temperature with the lowest negative log-likelihood, from 0.05 to 20.

    From Guo et al., "On calibration of modern neural networks", 2017. The logarithms of the
    probabilities replace the logits, which a mean does not have.
    """
    found = optimize.minimize_scalar(
        lambda log: likelihood(tempered(batches, math.exp(log)), labels),
        bounds=(-math.log(_HOTTEST), math.log(_HOTTEST)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(math.exp(found.x))


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, _TINY))
