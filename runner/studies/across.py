"""The interquartile mean and performance profiles of one metric over several data sets.

After Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021
(arXiv:2108.13264). The metric must mean the same on each data set. An accuracy does, a loss does
not.

    found = summary.of(trial.all_of(folder))
    for each in across.of(found, "AspectData.source"):  # the parameter that names the data set
        print(each.name, each.middle)

The intervals come from a stratified bootstrap, which resamples each data set's runs separately.
They reflect the randomness of the runs, but not the choice of data sets. No TensorFlow.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.reporting import table
from runner.studies.statistics import CONFIDENCE
from runner.studies.summary import Summary, sentence_name

RESAMPLES = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: The number.
        low: The lower end of the interval, or NaN if a data set has only one run.
        high: The upper end.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Across:
    """A configuration on several data sets.

    Attributes:
        name: The values that vary in the study, without the data set.
        scores: The objective of the runs, by data set.
        middle: The interquartile mean of the scores.
        missing: The data sets of the study without a result of this configuration.
    """

    name: str
    scores: Mapping[str, Sequence[float]]
    middle: Estimate
    missing: Sequence[str]

    @property
    def interval(self) -> list[float] | None:
        """The interval of the mean, or None if a data set has only one run."""
        return None if math.isnan(self.middle.low) else [self.middle.low, self.middle.high]


def of(found: Summary, parameter: str) -> list[Across]:
    """Returns a study's configurations over its data sets, the best interquartile mean first.

    Those without a result on some data set come last, because their means cannot be compared.

    Args:
        found: The summary of a study.
        parameter: The full name of the parameter that selects the data set. Configurations that
            differ only in this parameter are merged.

    Raises:
        ConfigError: no trial has this parameter.
    """
    known = {name for each in found.configurations for name in each.parameters}
    if parameter not in known:
        raise ConfigError(
            f"{parameter}: no trial of the study has it{did_you_mean(parameter, known)}"
        )
    names: dict[str, str] = {}
    groups: dict[str, dict[str, list[float]]] = {}
    data_sets: dict[str, None] = {}
    for each in found.configurations:
        data_set = str(each.parameters.get(parameter))
        data_sets[data_set] = None
        if not (each.is_finished and each.scores):
            continue
        rest = {name: value for name, value in each.parameters.items() if name != parameter}
        key = json.dumps(rest, sort_keys=True)
        ours = (parameter, parameter.rpartition(".")[2])
        short = {name: value for name, value in each.values.items() if name not in ours}
        names[key] = sentence_name(short)
        groups.setdefault(key, {}).setdefault(data_set, []).extend(each.scores.values())
    made = [
        Across(names[key], each, interquartile_mean(each), [*(data_sets.keys() - each.keys())])
        for key, each in groups.items()
    ]
    return sorted(
        made, key=lambda each: (bool(each.missing), found.objective.worse(each.middle.value))
    )


def render(rows: Sequence[Across], metric: str) -> str:
    """Returns a line for each configuration, the best first."""
    of = len({name for each in rows for name in (*each.scores, *each.missing)})
    cells = [["over all data sets", "n", "interquartile mean", "95 % interval"]]
    for each in rows:
        count = sum(map(len, each.scores.values()))
        interval = " to ".join(f"{end:.4g}" for end in each.interval or ())
        lacks = f" (only {len(each.scores)} of {of} data sets)" if each.missing else ""
        cells.append([f"{each.name}{lacks}", str(count), f"{each.middle.value:.4g}", interval])
    lines = table.aligned(cells, left=1)
    return "\n".join([f"{metric} over {of} data sets", *lines])


def as_dict(rows: Sequence[Across]) -> list[dict[str, Any]]:
    """Returns the configurations for JSON, the best first."""
    return [
        {
            "name": each.name,
            "interquartile_mean": each.middle.value,
            "interval": each.interval,
            "scores": {name: list(values) for name, values in each.scores.items()},
            "missing": sorted(each.missing),
        }
        for each in rows
    ]


def interquartile_mean(scores: Mapping[str, Sequence[float]]) -> Estimate:
    """Returns the mean of the middle half of all runs on all data sets.

    It is less sensitive to single runs than the mean, and uses more runs than the median.

    Args:
        scores: The values of each data set's runs, at least one.
    """
    from scipy import stats  # takes more than a second to load

    runs = [np.asarray(values, float) for values in scores.values()]
    value = stats.trim_mean(np.concatenate(runs), 0.25)
    drawn = stats.trim_mean(np.concatenate(_resampled(runs), axis=1), 0.25, axis=1)
    low, high = _interval(drawn, runs)
    return Estimate(float(value), float(low), float(high))


def profile(scores: Mapping[str, Sequence[float]], thresholds: Sequence[float]) -> list[Estimate]:
    """Returns the share of runs that score above each threshold, averaged over data sets.

    If one configuration's profile is above another's at every threshold, it is better in
    distribution (stochastic dominance), for any choice of mean.

    Args:
        scores: The values of each data set's runs, at least one.
        thresholds: Any number of scores.
    """
    runs = [np.asarray(values, float) for values in scores.values()]
    drawn = _resampled(runs)
    found = []
    for threshold in thresholds:
        value = np.mean([np.mean(each > threshold) for each in runs])
        shares = np.mean([np.mean(each > threshold, axis=1) for each in drawn], axis=0)
        low, high = _interval(shares, runs)
        found.append(Estimate(float(value), float(low), float(high)))
    return found


def _resampled(runs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Resamples each data set's runs with replacement. Shapes [RESAMPLES, runs]."""
    generator = np.random.default_rng(0)  # fixed seed, for reproducible intervals
    picks = [generator.integers(len(each), size=(RESAMPLES, len(each))) for each in runs]
    return [each[pick] for each, pick in zip(runs, picks, strict=True)]


def _interval(drawn: np.ndarray, runs: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the middle `CONFIDENCE` of the resampled values."""
    if any(len(each) < 2 for each in runs):
        return np.full(2, np.nan)
    return np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
