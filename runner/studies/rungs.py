"""Lossless early stopping: a trial pauses at a rung and resumes if it is promoted.

Promotion depends only on the evaluations in the trials' directories: asynchronous successive
halving (Li et al. 2020), Hyperband (Li et al. 2018) as brackets of it, or median stopping (Golovin
et al. 2017). No TensorFlow.
"""

import dataclasses
import math
from collections.abc import Sequence

from runner.core import schedule
from runner.run_directory.state import FINISHED, State
from runner.studies.trial import Trial


@dataclasses.dataclass(frozen=True)
class Rungs:
    """Decides where trials pause, and which of them continue.

    Attributes:
        rule: `asha`, `hyperband` or `median`.
        steps: The steps of the rungs, ascending. The last one is the length of a full run.
        factor: One in this many of the trials that reach a rung continues.
    """

    rule: str
    steps: Sequence[int]
    factor: int

    def target(self, one: Trial, trials: Sequence[Trial]) -> int | None:
        """Returns the step that a trial trains to now, or None while it waits."""
        first = self._bracket(one)
        reached = [n for n in range(first, len(self.steps)) if self._value(one, n) is not None]
        if not reached:
            return self.steps[first]
        rung = reached[-1]
        if one.state != State.PAUSED and one.step > self.steps[rung]:
            return self.steps[min(rung + 1, len(self.steps) - 1)]
        if one.state != State.PAUSED:
            return self.steps[rung]  # killed before it paused, or resumed at the rung
        if one.number in self._promoted(rung, first, trials):
            return self.steps[rung + 1]
        return None

    def left(self, trials: Sequence[Trial]) -> Trial | None:
        """Returns the best paused trial of the highest rung if no trial has ended, else None."""
        if any(each.state in FINISHED for each in trials):
            return None
        for rung in reversed(range(len(self.steps) - 1)):
            paused = [
                (value, each.number, each)
                for each in trials
                if each.state == State.PAUSED and (value := self._value(each, rung)) is not None
            ]
            if paused:
                return min(paused)[2]
        return None

    def after(self, one: Trial) -> int:
        """Returns the rung after the last one that a trial has reached."""
        reached = [n for n in range(len(self.steps)) if self._value(one, n) is not None]
        return self.steps[min((reached[-1] if reached else -1) + 1, len(self.steps) - 1)]

    def _promoted(self, rung: int, first: int, trials: Sequence[Trial]) -> set[int]:
        """Returns the numbers of the trials at a rung that continue."""
        values = [
            (value, each.number)
            for each in trials
            if self._bracket(each) == first and (value := self._value(each, rung)) is not None
        ]
        count = math.ceil(len(values) / 2) if self.rule == "median" else len(values) // self.factor
        if self.rule == "median" and len(values) < 3:  # too few for a median
            count = len(values)
        return {number for _, number in sorted(values)[:count]}

    def _bracket(self, one: Trial) -> int:
        """Returns the first rung at which a trial pauses."""
        if self.rule != "hyperband":
            return 0
        last = len(self.steps) - 1
        sizes = [
            math.ceil(len(self.steps) / (last - n + 1) * self.factor ** (last - n))
            for n in range(len(self.steps))
        ]
        place = one.number % sum(sizes)
        return next(n for n in range(len(sizes)) if place < sum(sizes[: n + 1]))

    def _value(self, one: Trial, rung: int) -> float | None:
        """Returns the best value up to a rung, where lower is better, or None before the rung."""
        step = self.steps[rung]
        if one.state == State.DIVERGED:
            before = self.steps[rung - 1] if rung > self._bracket(one) else -1
            if before < one.step <= step:
                return math.inf
        if not any(at == step for at, _ in one.evaluations):
            return None
        return _best(one, step)


def _best(one: Trial, step: int) -> float:
    found: list[float] = []
    for at, metrics in one.evaluations:
        value = metrics.get(one.objective.metric, math.nan)
        if at <= step and not math.isnan(value):
            found.append(one.objective.worse(value))
    return min(found, default=math.inf)


def steps(
    first: int, factor: int, end: int, *, rule: str, every: schedule.Interval = 1
) -> list[int]:
    """Returns the steps of the rungs from `first` to `end`, by a factor or evenly spaced.

    All but the last are multiples of `every`.
    """
    number = schedule.passed(first, every)
    found = [number]
    while schedule.multiple(found[-1], every) < end:
        found.append(found[-1] * factor if rule in ("asha", "hyperband") else found[-1] + number)
    due = [schedule.multiple(each, every) for each in found]
    return [*(each for each in due if each < end), end]
