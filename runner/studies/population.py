"""Population based training (Jaderberg et al. 2017): the worst members copy the best and mutate.

All members pause at the end of each generation. A copy of one of the best members replaces each of
those with the worst metric, and continues from its checkpoint with other values. The replacement is
decided once all members have paused. It is therefore a function of the study's seed, the generation
and the results of its members, and does not depend on kills or on the number of workers. No
TensorFlow.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.run_directory.state import FINISHED, State
from runner.studies import space, suggest
from runner.studies.trial import Trial

if TYPE_CHECKING:
    import numpy as np

    from runner import run_config

Members = Mapping[int, Trial]
"""The current trial of each member, by the number of the trial that it started as."""

_FACTORS = (0.8, 1.2)


class _Front(NamedTuple):
    """The state of a population: the generation that it trains for, and the copies it waits for."""

    generation: int
    members: Members
    copies: Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Population:
    """Decides where members pause, and which of them are replaced.

    Attributes:
        parameters: The parameters that vary.
        steps: The last steps of the generations, ascending. The final one is the length of a full
            run.
        options: The study's config class: `factor`, `resample` and `seed`.
        is_final: Returns whether a trial will not be retried.
    """

    parameters: Sequence[space.Parameter]
    steps: Sequence[int]
    options: "run_config.StudyConfig"
    is_final: Callable[[Trial], bool]

    def target(self, one: Trial, trials: Sequence[Trial]) -> int | None:
        """Returns the step that a trial trains to now, or None if it waits or was replaced."""
        front = self._front(trials)
        step = self.steps[front.generation]
        is_member = one.number in [each.number for each in front.members.values()]
        return step if is_member and not self._has_arrived(one, step) else None

    def left(self, trials: Sequence[Trial]) -> None:
        """Returns None: a paused member either waits for the others or was replaced."""

    def after(self, one: Trial) -> int:
        """Returns the next generation's step after the last step that a trial has reached."""
        return next((step for step in self.steps if step > one.step), self.steps[-1])

    def copies(self, trials: Sequence[Trial]) -> Sequence[dict[str, Any]]:
        """Returns the facts of the copies to create before any member continues."""
        return self._front(trials).copies

    def _front(self, trials: Sequence[Trial]) -> _Front:
        members = {each.number: each for each in trials if each.lineage is None}
        for generation, step in enumerate(self.steps[:-1]):
            made = {
                each.lineage.member: each
                for each in trials
                if each.lineage and each.lineage.generation == generation
            }
            now = {**members, **made}
            if not _is_past(generation, step, now, trials):
                if not all(self._has_result(each, step) for each in members.values()):
                    return _Front(generation, members, ())
                wanted = self._decided(generation, members)
                missing = [each for each in wanted if each["lineage"][0] not in made]
                if missing:
                    paused = all(self._has_arrived(each, step) for each in members.values())
                    return _Front(generation, members, missing if paused else ())
            members = now
        return _Front(len(self.steps) - 1, members, ())

    def _has_arrived(self, one: Trial, step: int) -> bool:
        """Returns whether a member has paused at the step, or will never reach it."""
        return (one.state == State.PAUSED and one.step >= step) or self.is_final(one)

    def _has_result(self, one: Trial, step: int) -> bool:
        """Returns whether a member was evaluated at the step, or never will be."""
        return any(at == step for at, _ in one.evaluations) or self.is_final(one)

    def _decided(self, generation: int, members: Members) -> Iterator[dict[str, Any]]:
        """Yields the facts of each copy, by member, except for members that ended early."""
        import numpy as np

        step = self.steps[generation]
        values = {
            member: _value(each, step)
            for member, each in members.items()
            if not (each.state in FINISHED and each.step <= step)
        }
        ranked = sorted(values, key=lambda member: (values[member], member))
        count = max(len(ranked) // self.options.factor, 1)
        ended = [member for member in ranked if self.is_final(members[member])]
        lost = [member for member in ended if members[member].step < step]
        replaced = {*ranked[max(count, len(ranked) - count) :], *lost}
        best = [
            member
            for member in ranked[:count]
            if member not in replaced and math.isfinite(values[member])
        ]
        for member in sorted(replaced) if best else ():
            generator = np.random.default_rng([self.options.seed, generation, member])
            parent = members[best[generator.integers(len(best))]]
            yield {
                "parameters": self._explored(parent.parameters, generator),
                "seed": parent.seed,
                "fold": parent.fold,
                "lineage": [member, generation, parent.number, step],
            }

    def _explored(
        self, chosen: Mapping[str, Any], generator: "np.random.Generator"
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for each in self.parameters:
            anew, up = generator.random() < self.options.resample, bool(generator.integers(2))
            drawn, value = suggest.at(each, generator.random()), chosen.get(each.name)
            fits = value in each.values if each.kind == "list" else value is not None
            values[each.name] = _beside(each, value, up=up) if fits and not anew else drawn
        return values


def _is_past(generation: int, step: int, now: Members, trials: Sequence[Trial]) -> bool:
    """Returns whether a member has continued past a generation, after which no copies are made."""
    later = (each.lineage and each.lineage.generation > generation for each in trials)
    return any(later) or any(each.step > step for each in now.values())


def _value(one: Trial, step: int) -> float:
    """Returns a member's value at the end of a generation, where lower is better."""
    values = [metrics.get(one.objective.metric) for at, metrics in one.evaluations if at == step]
    known = [one.objective.worse(each) for each in values if each is not None]
    return known[-1] if known and not math.isnan(known[-1]) else math.inf


def _beside(parameter: space.Parameter, value: Any, *, up: bool) -> Any:
    """Returns the neighbour in a list, or a fifth more or less in a range.

    At an end, it moves in the other direction.
    """
    moved = _moved(parameter, value, up=up)
    return _moved(parameter, value, up=not up) if moved == value else moved


def _moved(parameter: space.Parameter, value: Any, *, up: bool) -> Any:
    values = parameter.values
    if parameter.kind == "list":
        place = values.index(value) + (1 if up else -1)
        return values[min(max(place, 0), len(values) - 1)]
    moved = value * _FACTORS[up]
    if parameter.kind == "int":
        moved = max(round(moved), value + 1) if up else min(round(moved), value - 1)
    return min(max(moved, values[0]), values[1])
