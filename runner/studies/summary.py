"""What the trials of a study say together: each configuration, which is best, and how surely.

    found = summary.of(trial.all_of(study))
    found.chosen.best["accuracy"].mean

A configuration is what trials share that differ only by seed and fold. What counts of it are the
trials that have finished; in the objective, one that diverged, or whose value is not finite, counts
as the worst value that any trial has. The best configuration has the best mean of the objective,
which is a metric of the validation data. No TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.studies import statistics
from runner.studies.statistics import Difference, Spread
from runner.studies.trial import FINISHED, Objective, Trial

Pair = tuple[int, int | None]
"""A seed and a fold: what trials of two configurations are paired by."""

_BEGUN = ("paused", "preempted", "running", "failed")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Trials that differ by seed and fold only.

    Attributes:
        name: Its values that vary in the study, for a sentence.
        values: The same as text, by the parameter's short name.
        parameters: All of them, by their full names.
        trials: All its trials, each pair of seed and fold once.
        counted: Those whose results count.
        is_finished: Whether these have finished; if none has, those that have begun count, and the
            configuration cannot be chosen.
        best: Each metric at the best evaluation.
        last: Each metric at the last evaluation.
        test: Each metric of the test.
        scores: The objective at the best evaluation.
        replaced: How many of these are the worst value instead of one of their own. Then there is
            no interval: nobody knows how bad they are.
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


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the trials of a study say together.

    Attributes:
        trials: All trials, by number.
        objective: What they are compared by.
        metrics: The names of all metrics of evaluations, the objective first.
        configurations: The best first; those that have not finished come last.
        worst: What a trial that diverged counts as; NaN if no trial has a finite value.
    """

    trials: Sequence[Trial]
    objective: Objective
    metrics: Sequence[str]
    configurations: Sequence[Configuration]
    worst: float

    @property
    def chosen(self) -> Configuration | None:
        """The best configuration; None if none has finished, or if no metric decides."""
        first = next(iter(self.configurations), None)
        return first if first and first.is_finished and first.scores else None

    @property
    def to_test(self) -> Configuration | None:
        """What is tested: the chosen configuration; where no metric decides, the only one."""
        only = len(self.configurations) == 1 and self.configurations[0].is_finished
        return self.chosen or (self.configurations[0] if only else None)

    @functools.cached_property
    def differences(self) -> list[tuple[Configuration, Difference]]:
        """How much more the chosen one scores than each other that has finished, in order.

        Configurations with replaced scores are not compared.
        """
        chosen = self.chosen
        if chosen is None or len(chosen.scores) < 2 or chosen.replaced:
            return []
        ended = [each for each in self.configurations[1:] if each.is_finished and each.scores]
        others = [each for each in ended if not each.replaced]
        overlap, comparisons = _overlap(self.trials), len(others)
        return [
            (
                each,
                statistics.difference(
                    chosen.scores, each.scores, overlap=overlap, comparisons=comparisons
                ),
            )
            for each in others
        ]


def of(trials: Sequence[Trial]) -> Summary:
    """The summary of a study's trials.

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
    values = [
        each.best[objective.metric]
        for each in trials
        if each.state in FINISHED and _is_finite(each.best, objective.metric)
    ]
    worst = max(values, key=objective.worse, default=math.nan)
    name = _naming(trials)
    made = [
        _configuration([*same.values()], name, objective, worst, _overlap(trials))
        for same in groups.values()
    ]
    return Summary(
        trials=trials,
        objective=objective,
        metrics=[*first, *sorted(known - set(first))],
        configurations=sorted(made, key=lambda each: _rank(each, objective)),
        worst=worst,
    )


def _rank(each: Configuration, objective: Objective) -> tuple[bool, bool, float, int]:
    """Sorts the best first, and what has no finite mean to the end."""
    mean = statistics.spread([*each.scores.values()]).mean
    unknown = math.isnan(mean)
    order = 0.0 if unknown else objective.worse(mean)
    return (not each.is_finished, unknown, order, each.replaced)


def _configuration(
    trials: Sequence[Trial],
    naming: Callable[[Trial], Mapping[str, str]],
    objective: Objective,
    worst: float,
    overlap: float,
) -> Configuration:
    finished = [each for each in trials if each.state in (*FINISHED, "diverged")]
    counted = finished or [each for each in trials if each.state in _BEGUN and each.last]
    parameters, values = trials[0].parameters, naming(trials[0])
    replaced = sum(each.state == "diverged" or is_spoilt(each, objective) for each in counted)
    scores = {
        (each.seed, each.fold): value
        for each in counted
        if not math.isnan(value := _score(each, each.best, objective, worst))
    }

    def scored(each: Trial, metrics: Mapping[str, float]) -> Mapping[str, float]:
        score = {objective.metric: _score(each, metrics, objective, worst)}
        return score if each.state == "diverged" else {**metrics, **score}

    def spreads(rows: Iterable[Mapping[str, float]]) -> dict[str, Spread]:
        return _spreads(rows, overlap, objective.metric if replaced else None)

    return Configuration(
        name=sentence_name(values),
        values=values,
        parameters=parameters,
        trials=trials,
        counted=counted,
        is_finished=bool(finished),
        best=spreads([scored(each, each.best) for each in counted]),
        last=spreads([scored(each, each.last) for each in counted]),
        test=spreads([each.test for each in counted]),
        scores=scores,
        replaced=replaced,
    )


def _spreads(
    rows: Iterable[Mapping[str, float]], overlap: float, replaced: str | None
) -> dict[str, Spread]:
    """Each metric over trials; of the one with replaced values there is no interval."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    found = {name: statistics.spread(each, overlap=overlap) for name, each in values.items()}
    if replaced in found:
        nan = math.nan
        found[replaced] = dataclasses.replace(found[replaced], std=nan, low=nan, high=nan)
    return found


def _score(each: Trial, metrics: Mapping[str, float], objective: Objective, worst: float) -> float:
    """A trial's value of the objective, or what it counts as; NaN if it has none at all."""
    if each.state == "diverged" or is_spoilt(each, objective):
        return worst
    return metrics.get(objective.metric, math.nan)


def is_spoilt(each: Trial, objective: Objective) -> bool:
    """Whether a trial has values of the objective, of which none is finite at its best."""
    known = objective.metric in each.last or objective.metric in each.best
    return known and not _is_finite(each.best, objective.metric)


def _is_finite(metrics: Mapping[str, float], name: str) -> bool:
    return math.isfinite(metrics.get(name, math.nan))


def _overlap(trials: Iterable[Trial]) -> float:
    """The size of a fold over that of the training data: see `statistics.spread`."""
    folds = {each.fold for each in trials} - {None}
    return 1 / (len(folds) - 1) if len(folds) > 1 else 0.0


def _naming(trials: Sequence[Trial]) -> Callable[[Trial], Mapping[str, str]]:
    """A function from a trial to what varies, with short names and as text."""
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
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sentence_name(values: Mapping[str, str]) -> str:
    """`0.02`, or `rate 0.02, width 64` if more than one parameter varies."""
    given = {name: value for name, value in values.items() if value != "-"}
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "the configuration"
