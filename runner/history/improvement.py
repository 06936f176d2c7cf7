"""Detects whether evaluations improve, for early stopping and learning rate drops.

A rule is a fold: `Trend()` is its first state and `step(state, row)` returns the next. A state
depends only on the rows so far, so it is not saved: the rows determine the decisions.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.history.records import Evaluation

if TYPE_CHECKING:  # importing it loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class Watched:
    """The metrics that decide whether an evaluation is better than all before it.

    Attributes:
        higher: Metrics where higher is better.
        lower: Metrics where lower is better.
        min_delta: The minimum gain of a metric that makes it better.
    """

    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    min_delta: float = 0.0

    @classmethod
    def of(cls, options: "run_config.EarlyStoppingConfig | run_config.PlateauConfig") -> "Watched":
        """Returns the metrics that a configuration names."""
        return cls(tuple(options.higher), tuple(options.lower), options.min_delta)

    @property
    def names(self) -> tuple[str, ...]:
        """All metrics."""
        return (*self.higher, *self.lower)

    def better(
        self, row: Evaluation, best: Mapping[str, float]
    ) -> tuple[bool, Mapping[str, float]] | None:
        """Returns whether any metric of `row` beats `best`, and the best of each with this row.

        NaN never beats a value. Returns None if the row, from another set, has none of the metrics.
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
    """The state of a rule after some evaluations.

    Attributes:
        best: The best value of each metric.
        step: When the newest of these values was reached.
        worse: Evaluations without improvement in a row since then, or since the last drop.
        cooling: The number of next evaluations to ignore.
        drops: The number of learning rate drops.
    """

    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int = 0
    worse: int = 0
    cooling: int = 0
    drops: int = 0

    def one_worse(self) -> "Trend":
        """Returns the state after one more evaluation without improvement."""
        return dataclasses.replace(self, worse=self.worse + 1)
