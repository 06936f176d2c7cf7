"""Decisions as folds over the evaluations of a history. No TensorFlow.

Each rule is a fold: `Trend()` is its first state, `step(state, row)` the next. A state is nothing
but what the rows so far say, so it is saved nowhere: whoever has the rows has the decisions.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from runner.history import Rollback, Row

if TYPE_CHECKING:  # which loads TensorFlow
    from runner import run_config


@dataclasses.dataclass(frozen=True)
class Watched:
    """The metrics that tell whether an evaluation is better than all before it.

    Attributes:
        higher: Those of which higher is better.
        lower: Those of which lower is better.
        min_delta: What one must gain to count.
    """

    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    min_delta: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.higher, *self.lower)

    def better(
        self, row: Row, best: Mapping[str, float]
    ) -> tuple[bool, Mapping[str, float]] | None:
        """Whether any metric of `row` beats `best`, and the best of each with it.

        NaN beats nothing. None where the row has none of the metrics, as one of another set.
        """
        given = {name: row.metrics[name] for name in self.names if name in row.metrics}
        if not given:
            return None
        gained = {name: new for name, new in given.items() if self._beats(name, new, best)}
        return bool(gained), {**best, **gained}

    def _beats(self, name: str, new: float, best: Mapping[str, float]) -> bool:
        if math.isnan(new):
            return False
        if name not in best:
            return True
        old, by = best[name], self.min_delta
        return new > old + by if name in self.higher else new < old - by


@dataclasses.dataclass(frozen=True)
class BestRule:
    """Which of several evaluations is the best.

    By one metric it is the highest or the lowest, the earliest of equals. By several it is the last
    that was better in any of them than all before it, as in PyABSA's training.

    Attributes:
        metric: What decides.
        higher: Whether higher is better.
        or_higher: Further metrics, of which higher is better.
        or_lower: Further metrics, of which lower is better.
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

    @property
    def watched(self) -> Watched:
        """The same metrics, by what is better."""
        higher, lower = ((self.metric,), ()) if self.higher else ((), (self.metric,))
        return Watched((*higher, *self.or_higher), (*lower, *self.or_lower))


@dataclasses.dataclass(frozen=True)
class Trend:
    """What a rule knows after some evaluations.

    Attributes:
        best: The best value of each metric.
        step: When the newest of them was reached.
        worse: Evaluations in a row since then, or since the last drop, that were no better.
        cooling: Evaluations still to come that do not count.
        drops: How often the learning rate was dropped.
    """

    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int = 0
    worse: int = 0
    cooling: int = 0
    drops: int = 0


@dataclasses.dataclass(frozen=True)
class StoppingRule:
    """When a run ends early: see `run_config.EarlyStoppingConfig`."""

    watched: Watched
    patience: int
    from_step: int = 0
    source: str = ""

    def step(self, state: Trend, row: Row) -> Trend:
        """After one more. Once it says stop, nothing takes that back."""
        seen = None if row.step < self.from_step else self.watched.better(row, state.best)
        if seen is None or self.reason(state):
            return state
        better, best = seen
        return Trend(best, row.step) if better else _worse(state)

    def reason(self, state: Trend) -> str | None:
        """Why the run ends, None while it goes on."""
        if state.worse < self.patience:
            return None
        names = " or ".join(self.watched.names)
        best = ", ".join(f"{name} {value:.4g}" for name, value in state.best.items())
        of = f" of eval-{self.source}" if self.source else ""
        since = f"since step {state.step:,} ({best})" if state.best else "at all"
        count = f"{state.worse} evaluation{'s' if state.worse != 1 else ''}"
        return f"early stopping: {names}{of} no better in {count}, {since}"


@dataclasses.dataclass(frozen=True)
class PlateauRule:
    """When the learning rate drops, and by how much: see `run_config.PlateauConfig`."""

    watched: Watched
    factor: float
    tolerance: int
    cooldown: int = 0
    source: str = ""

    def step(self, state: Trend, row: Row) -> Trend:
        """After one more."""
        seen = self.watched.better(row, state.best)
        if seen is None:
            return state
        better, best = seen
        if better:
            cooling = max(state.cooling - 1, 0)
            return Trend(best, row.step, cooling=cooling, drops=state.drops)
        if state.cooling:
            return dataclasses.replace(state, cooling=state.cooling - 1)
        state = _worse(state)
        if state.worse < self.tolerance:
            return state
        return dataclasses.replace(state, worse=0, cooling=self.cooldown, drops=state.drops + 1)

    def scale(self, state: Trend) -> float:
        """What the scheduled learning rate is multiplied by."""
        return float(self.factor**state.drops)


Rule = StoppingRule | PlateauRule


def stopping(options: "run_config.EarlyStoppingConfig") -> StoppingRule:
    """The rule that a configuration describes; without metrics it never stops anything."""
    watched = Watched(tuple(options.higher), tuple(options.lower), options.min_delta)
    return StoppingRule(watched, options.patience, options.from_step, options.source)


def plateau(options: "run_config.PlateauConfig") -> PlateauRule:
    """The rule that a configuration describes; without metrics it never drops anything."""
    watched = Watched(tuple(options.higher), tuple(options.lower), options.min_delta)
    return PlateauRule(watched, options.factor, options.tolerance, options.cooldown, options.source)


def best(rows: Iterable[Row], rule: BestRule) -> Row | None:
    """The best row by `rule`; None while every value is NaN, missing or too early."""
    return next(iter(_gains(rows, rule)), None)


def best_of(
    rows: Iterable[Row], rule: BestRule, count: int, *, among: Callable[[Row], bool]
) -> list[Row]:
    """The `count` best rows by `rule` that are `among` those to choose from, one a step.

    The best is first: by one metric, of equals the earliest; by several, the newest of those that
    were better than all before them, whether these are to choose from or not.
    """
    ranked = [row for row in _ranked(rows, rule) if among(row)]
    first = {row.step: row for row in reversed(ranked)}
    return [row for row in ranked if row is first[row.step]][:count]


def skipped(rollbacks: Iterable[Rollback]) -> list[tuple[int, int]]:
    """The batches that training leaves out."""
    return [rollback.skipped for rollback in rollbacks]


def rollback_scale(rollbacks: Iterable[Rollback]) -> float:
    """What rollbacks multiply the scheduled learning rate by."""
    return math.prod(rollback.rate for rollback in rollbacks)


def stop_reason(rows: Iterable[Row], rule: StoppingRule) -> str | None:
    """Why a run with these evaluations ends, None while it goes on."""
    return rule.reason(functools.reduce(rule.step, rows, Trend()))


def plateau_scale(rows: Iterable[Row], rule: PlateauRule) -> float:
    """What the scheduled learning rate is multiplied by after these evaluations."""
    return rule.scale(functools.reduce(rule.step, rows, Trend()))


def _ranked(rows: Iterable[Row], rule: BestRule) -> list[Row]:
    """The rows that may be kept as best, the best first."""
    if len(rule.names) > 1:
        return _gains(rows, rule)
    counted = (row for row in rows if row.step >= rule.from_step)
    given = [row for row in counted if not math.isnan(row.metrics.get(rule.metric, math.nan))]
    return sorted(given, key=lambda row: row.metrics[rule.metric], reverse=rule.higher)


def _gains(rows: Iterable[Row], rule: BestRule) -> list[Row]:
    """The rows that were better than all before them, the newest first."""
    found: list[Row] = []
    watched = rule.watched
    best: Mapping[str, float] = {}
    for row in rows:
        seen = None if row.step < rule.from_step else watched.better(row, best)
        if seen and seen[0]:
            found.append(row)
            best = seen[1]
    return found[::-1]


def _worse(state: Trend) -> Trend:
    return dataclasses.replace(state, worse=state.worse + 1)
