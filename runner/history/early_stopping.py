"""Decides when a run stops early, as a fold over its evaluations. No TensorFlow."""

import dataclasses
from typing import TYPE_CHECKING

from runner.core import text
from runner.history.improvement import Trend, Watched
from runner.history.records import Evaluation

if TYPE_CHECKING:  # importing it loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class StoppingRule:
    """See `run_config.EarlyStoppingConfig`. Without metrics, it never stops a run."""

    watched: Watched
    patience: int
    from_step: int = 0
    source: str = ""

    @classmethod
    def of(cls, options: "run_config.EarlyStoppingConfig") -> "StoppingRule":
        """Returns the rule that a configuration describes."""
        watched = Watched.of(options)
        return cls(watched, options.patience, options.from_step, options.source)

    def step(self, state: Trend, row: Evaluation) -> Trend:
        """Returns the state after one more evaluation. A decision to stop is final."""
        seen = None if row.step < self.from_step else self.watched.better(row, state.best)
        if seen is None or self.reason(state):
            return state
        better, best = seen
        return Trend(best, row.step) if better else state.one_worse()

    def reason(self, state: Trend) -> str | None:
        """Returns why the run stops, or None if it continues."""
        if state.worse < self.patience:
            return None
        names = " or ".join(self.watched.names)
        best = ", ".join(f"{name} {value:.4g}" for name, value in state.best.items())
        of = f" of evaluator {self.source!r}" if self.source else ""
        since = f"since step {state.step:,} ({best})" if state.best else "at all"
        count = text.counted(state.worse, "evaluation")
        return f"early stopping: {names}{of} no better in {count}, {since}"
