"""Decides when and by how much the learning rate drops, as folds over a history. No TensorFlow."""

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runner.history.improvement import Trend, Watched
from runner.history.records import Evaluation, Rollback

if TYPE_CHECKING:  # importing it loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class PlateauRule:
    """See `run_config.PlateauConfig`. Without metrics, it never drops the learning rate."""

    watched: Watched
    factor: float
    tolerance: int
    cooldown: int = 0
    source: str = ""

    @classmethod
    def of(cls, options: "run_config.PlateauConfig") -> "PlateauRule":
        """Returns the rule that a configuration describes."""
        watched = Watched.of(options)
        return cls(watched, options.factor, options.tolerance, options.cooldown, options.source)

    def step(self, state: Trend, row: Evaluation) -> Trend:
        """Returns the state after one more evaluation."""
        seen = self.watched.better(row, state.best)
        if seen is None:
            return state
        better, best = seen
        if better:
            cooling = max(state.cooling - 1, 0)
            return Trend(best, row.step, cooling=cooling, drops=state.drops)
        if state.cooling:
            return dataclasses.replace(state, cooling=state.cooling - 1)
        state = state.one_worse()
        if state.worse < self.tolerance:
            return state
        return dataclasses.replace(state, worse=0, cooling=self.cooldown, drops=state.drops + 1)

    def scale(self, state: Trend) -> float:
        """Returns the factor of all drops on the scheduled learning rate."""
        return float(self.factor**state.drops)


def rollback_scale(rollbacks: Iterable[Rollback]) -> float:
    """Returns the factor of all rollbacks on the scheduled learning rate."""
    return math.prod(rollback.rate for rollback in rollbacks)
