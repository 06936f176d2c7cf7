"""Whether evaluations get better: what early stopping and learning rate drops fold over.

A rule is a fold: `Trend()` is its first state, `step(state, row)` the next. A state
depends only on the rows so far, so it is not saved: the rows determine the decisions.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.history.records import Evaluation

if TYPE_CHECKING:  # which loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class Watched:
    """The metrics that tell whether an evaluation is better than all before it.

    Attributes:
        higher: Metrics where higher is better.
        lower: Metrics where lower is better.
        min_delta: How much a metric must gain to count as better.
    """

    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    min_delta: float = 0.0

    @classmethod
    def of(cls, options: "run_config.EarlyStoppingConfig | run_config.PlateauConfig") -> "Watched":
        """The metrics that a configuration names."""
        return cls(tuple(options.higher), tuple(options.lower), options.min_delta)

    @property
    def names(self) -> tuple[str, ...]:
        """All metrics."""
        return (*self.higher, *self.lower)

    def better(
        self, row: Evaluation, best: Mapping[str, float]
    ) -> tuple[bool, Mapping[str, float]] | None:
        """Whether any metric of `row` beats `best`, and the best of each, including this row.

        NaN beats nothing. None if the row, coming from another set, has none of the metrics.
        """
        values = {name: row.metrics[name] for name in self.names if name in row.metrics}
        if not values:
            return None
        gained = {name: new for name, new in values.items() if self._beats(name, new, best)}
        return bool(gained), {**best, **gained} if gained else best

    def _beats(self, name: str, new: float, best: Mapping[str, float]) -> bool:
        if math.isnan(new):
            return False
        if name not in best:
            return True
        old, by = best[name], self.min_delta
        return new > old + by if name in self.higher else new < old - by


@dataclasses.dataclass(frozen=True)
class Trend:
    """What a rule knows after some evaluations.

    Attributes:
        best: The best value of each metric.
        step: When the newest of these values was reached.
        worse: Evaluations in a row since then, or since the last drop, that were no better.
        cooling: How many of the next evaluations do not count.
        drops: How often the learning rate was dropped.
    """

    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int = 0
    worse: int = 0
    cooling: int = 0
    drops: int = 0

    def one_worse(self) -> "Trend":
        """The state after one more evaluation that was no better."""
        return dataclasses.replace(self, worse=self.worse + 1)
