"""Selects the best evaluations. No TensorFlow."""

import bisect
import dataclasses
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

from runner.history.improvement import Watched
from runner.history.records import Evaluation


@dataclasses.dataclass(frozen=True)
class BestRule:
    """Selects the best of several evaluations.

    With one metric, the best is the highest or the lowest value, and the earliest of equals. With
    several metrics, the best is the last evaluation that improved any of them over all before it,
    as in PyABSA's training.

    Attributes:
        metric: The metric that decides.
        higher: Whether higher is better.
        or_higher: Additional metrics where higher is better.
        or_lower: Additional metrics where lower is better.
        from_step: Evaluations before this step are ignored.
    """

    metric: str
    higher: bool = True
    or_higher: tuple[str, ...] = ()
    or_lower: tuple[str, ...] = ()
    from_step: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All metrics."""
        return (self.metric, *self.or_higher, *self.or_lower)

    def ranked(self, rows: Iterable[Evaluation]) -> list[Evaluation]:
        """Returns the evaluations in order, the best first.

        Evaluations whose value is NaN, missing or too early are left out. With several metrics,
        evaluations that improved none of them are left out too.
        """
        ranking = Ranking(self)
        ranking.update(list(rows))
        return list(ranking)

    def best(self, rows: Iterable[Evaluation]) -> Evaluation | None:
        """Returns the best evaluation, or None if every value is NaN, missing or too early."""
        if len(self.names) > 1:
            return next(iter(self.ranked(rows)), None)
        metric, first = self.metric, self.from_step
        found = [(row.metrics.get(metric, math.nan), row) for row in rows if row.step >= first]
        known = (pair for pair in found if not math.isnan(pair[0]))
        choose = max if self.higher else min
        return choose(known, key=operator.itemgetter(0), default=(0, None))[1]


class Ranking:
    """The ranking of a growing list of evaluations by a rule, best first.

    An update costs only for the evaluations that are new.

    Args:
        rule: The rule.
    """

    def __init__(self, rule: BestRule) -> None:
        self._rule = rule
        self._has_several = len(rule.names) > 1
        higher, lower = ((rule.metric,), ()) if rule.higher else ((), (rule.metric,))
        self._watched = Watched((*higher, *rule.or_higher), (*lower, *rule.or_lower))
        self._begin([])

    def _begin(self, rows: Sequence[Evaluation]) -> None:
        self._rows: list[Evaluation] = []
        self._order: list[tuple[float, int]] = []  # with the number of the row, ascending
        self._marks: Mapping[str, float] = {}
        self._extend(rows)

    def update(self, rows: Sequence[Evaluation]) -> None:
        """Makes this the ranking of `rows`. Earlier ones may have been removed or changed."""
        known = len(self._rows)
        if rows[:known] != self._rows:
            self._begin(rows)
        else:
            self._extend(rows[known:])

    def _extend(self, rows: Sequence[Evaluation]) -> None:
        first = len(self._rows)
        self._rows += rows
        keys = [(self._key(number, row), number) for number, row in enumerate(rows, start=first)]
        placed = [(key, number) for key, number in keys if not math.isnan(key)]
        if len(placed) == 1:
            bisect.insort(self._order, placed[0])
        elif placed:
            self._order = sorted([*self._order, *placed])

    def __iter__(self) -> Iterator[Evaluation]:
        return (self._rows[number] for _, number in self._order)

    def _key(self, number: int, row: Evaluation) -> float:
        """Returns what to sort a row by, ascending, or NaN to leave it out."""
        if row.step < self._rule.from_step:
            return math.nan
        if self._has_several:
            better, self._marks = self._watched.better(row, self._marks) or (False, self._marks)
            # the last one that was better than all before it is the best
            return -number if better else math.nan
        value = row.metrics.get(self._rule.metric, math.nan)
        return -value if self._rule.higher else value
