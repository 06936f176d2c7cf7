"""Batches that training leaves out after a rollback, and the batches that it then reads."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Window = tuple[int, int]
"""Batches that training leaves out: the first, and the one after the last."""


class Reading(NamedTuple):
    """What training reads from its data.

    Attributes:
        skipped: The batches that it leaves out.
        begins: The number of the first batch of the data, which are reshuffled from there on.
        seed: The seed from there on, or None for the run's seed.
    """

    skipped: Sequence[Window] = ()
    begins: int = 0
    seed: int | None = None


def segments(step: int, skipped: Iterable[Window]) -> list[tuple[int, int | None]]:
    """Returns the ranges to read from `step` on: first batch and number (None for all)."""
    first, found = step, []
    for start, end in _merged(skipped):
        if start <= first:
            first += end - start
        else:
            found.append((first, start - first))
            first = end
    return [*found, (first, None)]


def batch_of(step: int, skipped: Iterable[Window]) -> int:
    """Returns the batch that `step` is trained on."""
    return segments(step, skipped)[0][0]


def _merged(windows: Iterable[Window]) -> list[Window]:
    merged: list[Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
