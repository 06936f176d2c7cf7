"""Which evaluations are the best. No TensorFlow."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping

from runner.history.improvement import Watched
from runner.history.records import Evaluation


@dataclasses.dataclass(frozen=True)
class BestRule:
    """Which of several evaluations is the best.

    By one metric it is the highest or the lowest, the earliest of equals. By several it is the last
    that was better in any of them than all before it, as in PyABSA's training.

    Attributes:
        metric: The metric that decides.
        higher: Whether higher is better.
        or_higher: Further metrics where higher is better.
        or_lower: Further metrics where lower is better.
        from_step: Evaluations before this step are left out.
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
        """The evaluations in order, the best first.

        Those whose value is NaN, missing or too early are left out; by several metrics, also those
        that were not better than all before them.
        """
        rows = [row for row in rows if row.step >= self.from_step]
        if len(self.names) > 1:
            return [*self._gains(rows)][::-1]
        sign = -1 if self.higher else 1
        values = [sign * row.metrics.get(self.metric, math.nan) for row in rows]
        order = sorted((value, n) for n, value in enumerate(values) if not math.isnan(value))
        return [rows[n] for _, n in order]

    def best(self, rows: Iterable[Evaluation]) -> Evaluation | None:
        """The best one; None if every value is NaN, missing or too early."""
        return next(iter(self.ranked(rows)), None)

    def _gains(self, rows: Iterable[Evaluation]) -> Iterator[Evaluation]:
        """The evaluations that were better than all before them."""
        higher, lower = ((self.metric,), ()) if self.higher else ((), (self.metric,))
        watched = Watched((*higher, *self.or_higher), (*lower, *self.or_lower))
        marks: Mapping[str, float] = {}
        for row in rows:
            better, marks = watched.better(row, marks) or (False, marks)
            if better:
                yield row
