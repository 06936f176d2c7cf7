"""Selects the best evaluations. No TensorFlow."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping

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
        rows = [row for row in rows if row.step >= self.from_step]
        if len(self.names) > 1:
            return [*self._gains(rows)][::-1]
        sign = -1 if self.higher else 1
        values = [sign * row.metrics.get(self.metric, math.nan) for row in rows]
        order = sorted((value, n) for n, value in enumerate(values) if not math.isnan(value))
        return [rows[n] for _, n in order]

    def best(self, rows: Iterable[Evaluation]) -> Evaluation | None:
        """Returns the best evaluation, or None if every value is NaN, missing or too early."""
        return next(iter(self.ranked(rows)), None)

    def _gains(self, rows: Iterable[Evaluation]) -> Iterator[Evaluation]:
        """Yields the evaluations that were better than all before them."""
        higher, lower = ((self.metric,), ()) if self.higher else ((), (self.metric,))
        watched = Watched((*higher, *self.or_higher), (*lower, *self.or_lower))
        marks: Mapping[str, float] = {}
        for row in rows:
            better, marks = watched.better(row, marks) or (False, marks)
            if better:
                yield row
