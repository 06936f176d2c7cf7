"""Decisions as folds over the evaluations of a history. No TensorFlow.

Each rule is a fold: `Trend()` is its first state, `step(state, row)` the next. A state is nothing
but what the rows so far say, so it is saved nowhere: whoever has the rows has the decisions.
"""

import bisect
import dataclasses
import functools
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from runner.history.records import Evaluation, Rollback

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
        self, row: Evaluation, best: Mapping[str, float]
    ) -> tuple[bool, Mapping[str, float]] | None:
        """Whether any metric of `row` beats `best`, and the best of each with it.

        NaN beats nothing. None where the row has none of the metrics, as one of another set.
        """
        given = {name: row.metrics[name] for name in self.names if name in row.metrics}
        if not given:
            return None
        gained = {name: new for name, new in given.items() if self._beats(name, new, best)}
        return bool(gained), {**best, **gained} if gained else best

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

    def step(self, state: Trend, row: Evaluation) -> Trend:
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

    def step(self, state: Trend, row: Evaluation) -> Trend:
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


class Ranking:
    """Evaluations in their order by a rule, taken in as they come.

    By one metric the best is first, of equals the earliest; by several, the newest of those that
    were better than all before them, whether these are to choose from or not.

    Args:
        rule: What decides.
        rows: The first evaluations.

    Attributes:
        best: The best row; None while every value is NaN, missing or too early.
    """

    def __init__(self, rule: BestRule, rows: Sequence[Evaluation] = ()) -> None:
        self._rule = rule
        self._watched = rule.watched
        self._begin()
        self.take(rows)

    def _begin(self) -> None:
        self._marks: Mapping[str, float] = {}
        self._rows: Sequence[Evaluation] = ()
        self._taken = 0
        self._ranked = array("q")  # which of the rows, the best first
        self._places = array("d")  # what puts each of these where it is: less is better
        self.best: Evaluation | None = None

    def take(self, rows: Sequence[Evaluation]) -> None:
        """Takes in those of `rows` that are new, after those of the call before.

        Other rows than then, as after some were dropped, are taken in from the first on.
        """
        if self._taken and self._mark(rows) != self._mark(self._rows):
            self._begin()
        new = enumerate(rows[self._taken :], self._taken)
        self._rows, self._taken = rows, len(rows)
        places = ((self._place(n, row), n) for n, row in new if row.step >= self._rule.from_step)
        ranked = [(place, n) for place, n in places if not math.isnan(place)]
        if len(ranked) == 1:
            ((place, n),) = ranked
            at = bisect.bisect(self._places, place)
            self._places.insert(at, place)
            self._ranked.insert(at, n)
        elif ranked:
            ranked = sorted([*zip(self._places, self._ranked, strict=True), *ranked])
            self._places = array("d", [place for place, _ in ranked])
            self._ranked = array("q", [n for _, n in ranked])

    def _mark(self, rows: Sequence[Evaluation]) -> tuple[int, float] | None:
        """What tells the last row that was taken in from one that stands in its place now."""
        if len(rows) < self._taken:
            return None
        row = rows[self._taken - 1]
        return row.step, row.time

    def first(self, count: int, *, among: Callable[[Evaluation], bool]) -> list[Evaluation]:
        """The `count` best rows that are `among` those to choose from, one a step.

        Better ones that are not are forgotten: what is gone is not looked for again and again.
        """
        found: dict[int, Evaluation] = {}
        looked = 0
        kept = []
        for n in self._ranked:
            if len(found) == count:
                break
            row = self._rows[n]
            if among(row):
                kept.append(looked)
                found.setdefault(row.step, row)
            looked += 1
        self._ranked[:looked] = array("q", [self._ranked[at] for at in kept])
        self._places[:looked] = array("d", [self._places[at] for at in kept])
        return list(found.values())

    def _place(self, n: int, row: Evaluation) -> float:
        """What ranks the row, the `n`-th of all; NaN where it cannot be the best."""
        gains = self._gains(row)
        self.best = row if gains else self.best
        if len(self._rule.names) > 1:
            return -n if gains else math.nan
        value = row.metrics.get(self._rule.metric, math.nan)
        return -value if self._rule.higher else value

    def _gains(self, row: Evaluation) -> bool:
        """Whether `row` is better than all before it."""
        seen = self._watched.better(row, self._marks)
        if seen:
            self._marks = seen[1]
        return bool(seen and seen[0])


Rule = StoppingRule | PlateauRule


def stopping(options: "run_config.EarlyStoppingConfig") -> StoppingRule:
    """The rule that a configuration describes; without metrics it never stops anything."""
    watched = Watched(tuple(options.higher), tuple(options.lower), options.min_delta)
    return StoppingRule(watched, options.patience, options.from_step, options.source)


def plateau(options: "run_config.PlateauConfig") -> PlateauRule:
    """The rule that a configuration describes; without metrics it never drops anything."""
    watched = Watched(tuple(options.higher), tuple(options.lower), options.min_delta)
    return PlateauRule(watched, options.factor, options.tolerance, options.cooldown, options.source)


def best(rows: Sequence[Evaluation], rule: BestRule) -> Evaluation | None:
    """The best row by `rule`; None while every value is NaN, missing or too early."""
    return Ranking(rule, rows).best


def skipped(rollbacks: Iterable[Rollback]) -> list[tuple[int, int]]:
    """The batches that training leaves out."""
    return [rollback.skipped for rollback in rollbacks]


def rollback_scale(rollbacks: Iterable[Rollback]) -> float:
    """What rollbacks multiply the scheduled learning rate by."""
    return math.prod(rollback.rate for rollback in rollbacks)


def stop_reason(rows: Iterable[Evaluation], rule: StoppingRule) -> str | None:
    """Why a run with these evaluations ends, None while it goes on."""
    return rule.reason(functools.reduce(rule.step, rows, Trend()))


def plateau_scale(rows: Iterable[Evaluation], rule: PlateauRule) -> float:
    """What the scheduled learning rate is multiplied by after these evaluations."""
    return rule.scale(functools.reduce(rule.step, rows, Trend()))


def _worse(state: Trend) -> Trend:
    return dataclasses.replace(state, worse=state.worse + 1)
