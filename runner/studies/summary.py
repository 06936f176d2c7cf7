"""Summarizes a study's trials: each configuration, the best one, and the uncertainty.

    found = summary.of(trial.all_of(study))
    found.chosen.best["accuracy"].mean

A configuration is the group of trials that differ only by seed and fold. Its score uses only its
finished trials. For the objective, a trial that diverged, or whose value is not finite, is scored
as the worst value of all trials. The best and the last evaluations each have their own worst value.
The best configuration has the best mean of the objective, which is a metric of the validation data.
No TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from runner.run_directory.state import ACTIVE, FINISHED, State
from runner.studies import metric_bounds, race, space, statistics
from runner.studies.goals import Goals
from runner.studies.race import Standing
from runner.studies.sequential import Judgement
from runner.studies.statistics import Bounds, Difference, Spread
from runner.studies.trial import Objective, Trial

Pair = tuple[int, int | None]
"""A seed and a fold, by which trials of two configurations are paired."""

At = Literal["best", "last"]
"""An evaluation of a trial."""

_BEGUN = (State.PAUSED, State.PREEMPTED, *ACTIVE, State.FAILED)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Trials that differ by seed and fold only.

    Attributes:
        name: Its values that vary in the study, for a sentence.
        values: These values as text, by the parameter's short name.
        parameters: All of them, by their full names.
        trials: All its trials, each pair of seed and fold once.
        counted: Those whose results are used.
        is_finished: Whether these have finished. If none has, the started ones are used, and the
            configuration cannot be chosen.
        best: Each metric at the best evaluation.
        last: Each metric at the last evaluation.
        test: Each metric of the test.
        scores: The objective at the best evaluation, with replaced values.
        replaced: How many of these are the worst value of all trials instead of the trial's own. If
            any are, there is no interval, because it is unknown how bad they are.
    """

    name: str
    values: Mapping[str, str]
    parameters: Mapping[str, Any]
    trials: Sequence[Trial]
    counted: Sequence[Trial]
    is_finished: bool
    best: Mapping[str, Spread]
    last: Mapping[str, Spread]
    test: Mapping[str, Spread]
    scores: Mapping[Pair, float]
    replaced: int

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric at the best evaluation."""
        return {name: spread.mean for name, spread in self.best.items()}

    @property
    def has_own_score(self) -> bool:
        """Whether a trial contributes its own value of the objective."""
        return len(self.scores) > self.replaced


@dataclasses.dataclass(frozen=True)
class Summary:
    """The summary of a study's trials.

    Attributes:
        trials: All trials, by number.
        objective: The metric that they are compared by.
        metrics: The names of all metrics of evaluations, the objective first.
        configurations: The best first. Unfinished ones come last.
        worst: The score of a diverged trial at the best and at the last evaluation. It is the worst
            value there of all trials that finished, are paused or diverged, or NaN if none has a
            finite value.
        bounds: The bounds of each metric.
        goals: All objectives and limits.
        race: The state of the race between the configurations, or None if all have all seeds.
    """

    trials: Sequence[Trial]
    objective: Objective
    metrics: Sequence[str]
    configurations: Sequence[Configuration]
    worst: Mapping[At, float]
    bounds: Mapping[str, Bounds]
    goals: Goals = Goals()  # noqa: RUF009, immutable
    race: Standing | None = None

    @property
    def chosen(self) -> Configuration | None:
        """The best configuration within the limits, or None.

        None if none has finished, or if no metric decides.
        """
        first = next(iter(self.configurations), None)
        if first is None or not first.is_finished or not first.has_own_score:
            return None
        return first if self.is_within(first) else None

    def is_within(self, each: Configuration) -> bool:
        """Returns whether a configuration is known to be within all limits."""
        limits = [limit.name for limit in self.goals.limits]
        means = each.means
        return all(name in means for name in limits) and not self.goals.exceeded(means)

    @functools.cached_property
    def front(self) -> list[Configuration]:
        """The Pareto front, the best by the first objective first. Empty for one objective."""
        if not self.goals.are_several:
            return []
        ended = [each for each in self.configurations if each.is_finished and not each.replaced]
        return [ended[number] for number in self.goals.front([each.means for each in ended])]

    def counts_as(self, each: Trial, name: str, at: At) -> float:
        """Returns a trial's contribution to a configuration's mean of a metric.

        NaN if the trial is excluded. It is excluded if its value is not finite. A diverged trial is
        excluded for all metrics but the objective, because it is unknown which values of other
        metrics are worse.
        """
        if name == self.objective.metric and is_replaced(each, self.objective, at):
            return self.worst[at]
        value = getattr(each, at).get(name, math.nan)
        return value if math.isfinite(value) and each.state != State.DIVERGED else math.nan

    @property
    def to_test(self) -> Configuration | None:
        """The configuration to test: the chosen one, or the only one if no metric decides."""
        only = len(self.configurations) == 1 and self.configurations[0].is_finished
        return self.chosen or (self.configurations[0] if only else None)

    @functools.cached_property
    def differences(self) -> list[tuple[Configuration, Difference]]:
        """The differences between the chosen configuration and each other finished one, in order.

        Configurations with replaced scores are not compared.
        """
        chosen = self.chosen
        if chosen is None or len(chosen.scores) < 2 or chosen.replaced:
            return []
        if self.race:
            return [
                (each, _as_difference(self.race.judged[0, index], self.objective))
                for index, each in enumerate(self.configurations)
                if (0, index) in self.race.judged
            ]
        ended = [each for each in self.configurations[1:] if each.is_finished and each.scores]
        others = [each for each in ended if not each.replaced]
        overlap, comparisons = _overlap(self.trials), len(others)
        bounds = self.bounds[self.objective.metric]
        return [
            (
                each,
                statistics.difference(
                    chosen.scores,
                    each.scores,
                    overlap=overlap,
                    comparisons=comparisons,
                    bounds=bounds,
                ),
            )
            for each in others
        ]


def of(trials: Sequence[Trial]) -> Summary:
    """Summarizes a study's trials.

    Args:
        trials: In any state, by number.
    """
    objective = trials[-1].objective if trials else Objective()
    known = {name for each in trials for name in (*each.best, *each.last)}
    first = [objective.metric] if objective.metric in known else []
    groups: dict[str, dict[Pair, Trial]] = {}
    for each in trials:
        same = groups.setdefault(each.configuration, {})
        same.setdefault((each.seed, each.fold), each)
    found = Summary(
        trials=trials,
        objective=objective,
        metrics=[*first, *sorted(known - set(first))],
        configurations=(),
        worst={at: _worst(trials, objective, at) for at in ("best", "last")},
        bounds=_bounds(trials),
        goals=Goals.read(trials[-1].more) if trials else Goals(),
    )
    name = _naming(trials)
    made = [_configuration([*same.values()], name, found) for same in groups.values()]
    rules = race.Race.read(trials[-1].more) if trials else None
    remaining = rules.standing(_by_seed(made)).remaining if rules else range(len(made))
    among = {made[index].name for index in remaining}
    ordered = sorted(
        made,
        key=lambda each: (
            each.name not in among,
            not each.is_finished,
            not found.is_within(each),
            *_rank(each, objective),
        ),
    )
    standing = rules.standing(_by_seed(ordered)) if rules else None
    return dataclasses.replace(found, configurations=ordered, race=standing)


def _by_seed(configurations: Sequence[Configuration]) -> list[list[float]]:
    """Returns the scores of each configuration, as for `Race.standing`."""
    most = max(configurations, key=lambda each: len(each.trials))
    seeds = [each.seed for each in most.trials]
    return [race.scores(each.trials, seeds, _has_ended) for each in configurations]


def _has_ended(one: Trial) -> bool:
    return one.state in (*FINISHED, State.DIVERGED, State.REJECTED, State.FAILED)


def _as_difference(judged: Judgement, objective: Objective) -> Difference:
    """Returns a comparison in units of the metric, the first configuration minus the second."""
    low, high = sorted((objective.worse(judged.low), objective.worse(judged.high)))
    return Difference(judged.n, objective.worse(judged.mean), low, high)


def _worst(trials: Iterable[Trial], objective: Objective, at: At) -> float:
    values = (
        getattr(each, at).get(objective.metric, math.nan)
        for each in trials
        if each.state in (*FINISHED, State.PAUSED, State.DIVERGED)
    )
    return max(filter(math.isfinite, values), key=objective.worse, default=math.nan)


def _bounds(trials: Iterable[Trial]) -> dict[str, Bounds]:
    values: dict[str, list[float]] = {}
    for each in trials:
        for metrics in (each.best, each.last, each.test):
            for name, value in metrics.items():
                values.setdefault(name, []).append(value)
    return {name: metric_bounds.of(name, known) for name, known in values.items()}


def _rank(each: Configuration, objective: Objective) -> tuple[bool, bool, bool, float, int]:
    """Returns a sort key: best first, and configurations without a finite mean last."""
    mean = statistics.spread([*each.scores.values()]).mean
    unknown = math.isnan(mean)
    order = 0.0 if unknown else objective.worse(mean)
    return (not each.is_finished, unknown, not each.has_own_score, order, each.replaced)


def _configuration(
    trials: Sequence[Trial], naming: Callable[[Trial], Mapping[str, str]], found: Summary
) -> Configuration:
    finished = [each for each in trials if each.state in (*FINISHED, State.DIVERGED)]
    counted = finished or [each for each in trials if each.state in _BEGUN and each.last]
    objective, overlap = found.objective, _overlap(found.trials)
    parameters, values = trials[0].parameters, naming(trials[0])
    scores = {
        (each.seed, each.fold): value
        for each in counted
        if not math.isnan(value := found.counts_as(each, objective.metric, "best"))
    }

    def spreads(at: At) -> dict[str, Spread]:
        rows = [
            {name: found.counts_as(each, name, at) for name in found.metrics} for each in counted
        ]
        known = _spreads(rows, overlap, found.bounds)
        if objective.metric in known and _replaced(counted, objective, at):
            known[objective.metric] = statistics.without_interval(known[objective.metric])
        return known

    return Configuration(
        name=sentence_name(values),
        values=values,
        parameters=parameters,
        trials=trials,
        counted=counted,
        is_finished=bool(finished),
        best=spreads("best"),
        last=spreads("last"),
        test=_spreads([each.test for each in counted], overlap, found.bounds),
        scores=scores,
        replaced=_replaced(counted, objective, "best"),
    )


def _spreads(
    rows: Iterable[Mapping[str, float]], overlap: float, bounds: Mapping[str, Bounds]
) -> dict[str, Spread]:
    """Returns the spread of each metric over trials."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {
        name: statistics.spread(known, overlap=overlap, bounds=bounds[name])
        for name, known in values.items()
    }


def _replaced(trials: Iterable[Trial], objective: Objective, at: At) -> int:
    return sum(is_replaced(each, objective, at) for each in trials)


def is_replaced(each: Trial, objective: Objective, at: At) -> bool:
    """Returns whether a trial is scored as the worst at its best or its last evaluation."""
    return each.state == State.DIVERGED or is_spoilt(each, objective, at)


def is_spoilt(each: Trial, objective: Objective, at: At) -> bool:
    """Returns whether the objective is known but not finite at the best or the last evaluation.

    A trial has no best evaluation if its objective was never finite.
    """
    values = getattr(each, at)
    known = objective.metric in values or objective.metric in each.last
    return known and not math.isfinite(values.get(objective.metric, math.nan))


def _overlap(trials: Iterable[Trial]) -> float:
    """Returns the size of a fold divided by that of its training data. See `statistics.spread`."""
    folds = {each.fold for each in trials} - {None}
    return 1 / (len(folds) - 1) if len(folds) > 1 else 0.0


def _naming(trials: Sequence[Trial]) -> Callable[[Trial], Mapping[str, str]]:
    """Returns a function from a trial to its varying values, with short names and as text."""
    parameters = [each.parameters for each in trials]
    names = list(dict.fromkeys(name for each in parameters for name in each))
    varying = [name for name in names if len({str(each.get(name)) for each in parameters}) > 1]
    have_copies = any(each.lineage for each in trials)
    ends = [name.rpartition(".")[2] for name in varying]
    short = {
        name: end if ends.count(end) == 1 else name for name, end in zip(varying, ends, strict=True)
    }

    def named(one: Trial) -> Mapping[str, str]:
        values = {short[name]: _text(one.parameters.get(name)) for name in varying}
        origin = f"trial {one.lineage.parent} at {one.lineage.step:,}" if one.lineage else "-"
        return {**values, "copy of": origin} if have_copies else values

    return named


def _text(value: Any) -> str:
    return "-" if value is None else space.shown(value)


def sentence_name(values: Mapping[str, str]) -> str:
    """Returns `0.02`, or `rate 0.02, width 64` if more than one parameter varies."""
    given = {name: value for name, value in values.items() if value != "-"}
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "the configuration"
