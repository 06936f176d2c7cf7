"""When the learning rate drops and by how much: folds over a history. No TensorFlow."""

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from runner.history.improvement import Trend, Watched
from runner.history.records import Evaluation, Rollback

if TYPE_CHECKING:  # which loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class PlateauRule:
    """See `run_config.PlateauConfig`; without metrics it never drops anything."""

    watched: Watched
    factor: float
    tolerance: int
    cooldown: int = 0
    source: str = ""

    @classmethod
    def of(cls, options: "run_config.PlateauConfig") -> "PlateauRule":
        """The rule that a configuration describes."""
        watched = Watched.of(options)
        return cls(watched, options.factor, options.tolerance, options.cooldown, options.source)

    def step(self, state: Trend, row: Evaluation) -> Trend:
        """The state after one more evaluation."""
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
        """The factor that drops put on the scheduled learning rate."""
        return float(self.factor**state.drops)


def rollback_scale(rollbacks: Iterable[Rollback]) -> float:
    """The factor that rollbacks put on the scheduled learning rate."""
    return math.prod(rollback.rate for rollback in rollbacks)
