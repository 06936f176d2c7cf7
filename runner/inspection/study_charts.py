"""The charts of a study, for the page's script. No TensorFlow."""

import bisect
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from runner.core import text
from runner.inspection import curves
from runner.studies import summary
from runner.studies.summary import Configuration, Summary
from runner.studies.trial import Trial

_LOGARITHMIC = 30  # ratio of the highest to the lowest value from which an axis is logarithmic
_CATEGORIES = 12  # values of a parameter that are not numbers
_GROUPS = 20  # boxes
_CURVES = 12
_POINTS = 200

Chart = dict[str, Any]


def charts(found: Summary) -> Iterator[tuple[Chart, str]]:
    """Yields each chart with a note about it."""
    names = varying(found.trials)
    scored = [each for each in found.trials if score(found, each) is not None]
    if not scored:
        return
    if names:
        note = "A line for each trial, blue for the worst to orange for the best."
        if found.chosen:
            note += f" The thick ones are those of the best configuration, {found.chosen.name}."
        yield _parallel(found, names, scored), note
    for name, label in zip(names, short(names), strict=True):
        if chart := _slice(found, name, label, scored):
            yield chart, ""
    for chart in _fronts(found):
        yield chart, "A point for each configuration. The thick ones are on the Pareto front."
    if boxes := _boxes(found):
        yield boxes, "A point for each run. The line is the median, the box the middle half."
    yield from _over_steps(found, scored)


def varying(trials: Sequence[Trial]) -> list[str]:
    """Returns the parameters that differ between trials."""
    names = dict.fromkeys(name for each in trials for name in each.parameters)
    return [name for name in names if len({_key(each.parameters.get(name)) for each in trials}) > 1]


def short(names: Sequence[str]) -> list[str]:
    """Returns the last parts of names where they are unique."""
    ends = [name.rpartition(".")[2] for name in names]
    return [end if ends.count(end) == 1 else name for name, end in zip(names, ends, strict=True)]


def score(found: Summary, each: Trial) -> float | None:
    """Returns the objective at a trial's best evaluation, after any replacement, or None."""
    value = found.counts_as(each, found.objective.metric, "best")
    return float(value) if math.isfinite(value) else None


def _is_best(found: Summary, each: Trial) -> bool:
    """Returns whether a trial belongs to the chosen configuration."""
    return found.chosen is not None and each in found.chosen.trials


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _said(found: Summary, each: Trial, names: Sequence[str]) -> str:
    values = [
        f"{label} {text.number(each.parameters.get(name))}"
        for name, label in zip(names, short(names), strict=True)
    ]
    reached = text.number(score(found, each))
    parts = [f"trial {each.number}", *values, f"seed {each.seed}"]
    return ", ".join(
        [*parts, f"{found.objective.metric} {reached}", each.state, *_note(found, each)]
    )


def _note(found: Summary, each: Trial) -> list[str]:
    """Returns what a reader must know about a trial's score."""
    is_replaced = summary.is_replaced(each, found.objective, "best")
    return ["scored as the worst of all"] if is_replaced else []


def _axis(label: str, values: Sequence[Any]) -> Chart:
    """Returns an axis with numbers, or with names at 0, 1, 2 and so on."""
    numbers = [each for each in values if _is_number(each)]
    if len(numbers) == len(values):
        low, high = min(numbers), max(numbers)
        return {"name": label, "values": numbers, "log": low > 0 and high / low >= _LOGARITHMIC}
    known = list(dict.fromkeys(map(_text, values)))[:_CATEGORIES]
    placed = [known.index(_text(each)) if _text(each) in known else None for each in values]
    return {"name": label, "values": placed, "names": known, "log": False}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _key(value)


def _parallel(found: Summary, names: Sequence[str], scored: Sequence[Trial]) -> Chart:
    labels = short(names)
    axes = [
        _axis(label, [each.parameters.get(name) for each in scored])
        for name, label in zip(names, labels, strict=True)
    ]
    scores = [score(found, each) for each in scored]
    axes.append(_axis(found.objective.metric, scores))
    worst = sorted(scored, key=lambda each: -found.objective.worse(score(found, each) or 0.0))
    rank = {each.number: n / max(len(worst) - 1, 1) for n, each in enumerate(worst)}
    rows = [
        {
            "values": [axis["values"][n] for axis in axes],
            "rank": round(rank[each.number], 3),
            "best": _is_best(found, each),
            "said": _said(found, each, names),
        }
        for n, each in enumerate(scored)
    ]
    return {"kind": "parallel", "name": "all parameters", "axes": axes, "rows": rows}


def _slice(found: Summary, name: str, label: str, scored: Sequence[Trial]) -> Chart | None:
    """Plots the objective over one parameter."""
    axis = _axis(label, [each.parameters.get(name) for each in scored])
    points = [
        {
            "x": x,
            "y": score(found, each),
            "said": _said(found, each, [name]),
            "best": _is_best(found, each),
        }
        for each, x in zip(scored, axis["values"], strict=True)
        if x is not None
    ]
    kind = {"kind": "points", "name": f"{found.objective.metric} over {label}", "x": label}
    return {**kind, "points": points, "log": axis["log"], "names": axis.get("names")}


def _fronts(found: Summary) -> Iterator[Chart]:
    """Plots the first objective over each further one."""
    first, *others = found.goals.objectives or (None,)
    ended = [each for each in found.configurations if each.is_finished]
    for other in others:
        assert first
        shown = [each for each in ended if {first.name, other.name} <= each.means.keys()]
        axis = _axis(other.name, [each.means[other.name] for each in shown])
        points = [
            {
                "x": x,
                "y": each.means[first.name],
                "said": _of_goals(found, each),
                "best": each in found.front,
            }
            for each, x in zip(shown, axis["values"], strict=True)
        ]
        name = f"{first.name} over {other.name}"
        kind = {"kind": "points", "name": name, "x": other.name}
        if points:
            yield {**kind, "points": points, "log": axis["log"], "names": None}


def _of_goals(found: Summary, each: Configuration) -> str:
    values = [
        f"{name} {text.number(each.means[name])}"
        for name in found.goals.names
        if name in each.means
    ]
    beyond = [f"exceeds {limit}" for limit in found.goals.exceeded(each.means)]
    return ", ".join([each.name, *values, *beyond])


def _boxes(found: Summary) -> Chart | None:
    """Plots a box for each configuration, if any has several runs."""
    groups = [_group(found, each) for each in found.configurations[:_GROUPS]]
    shown = [each for each in groups if each]
    if not any(len(each["points"]) > 1 for each in shown):
        return None
    name = f"{found.objective.metric} of each configuration"
    return {"kind": "boxes", "name": name, "groups": shown}


def _group(found: Summary, each: Configuration) -> Chart | None:
    runs = [(one, score(found, one)) for one in each.counted]
    points = [{"y": y, "said": _said(found, one, [])} for one, y in runs if y is not None]
    values = np.array([point["y"] for point in points], float)
    if not len(values):
        return None
    box = [float(value) for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1])]
    made = {"name": each.name, "points": points, "box": box, "best": each is found.chosen}
    return {**made, "density": _density(values)}


def _density(values: np.ndarray) -> list[tuple[float, float]] | None:
    """Returns a Gaussian density with Scott's bandwidth: values and densities, scaled to 1."""
    width = values.std() * len(values) ** -0.2
    if not width:
        return None
    at = np.linspace(values.min() - 2 * width, values.max() + 2 * width, 40)
    heights = np.exp(-(((at[:, None] - values) / width) ** 2) / 2).sum(1)
    rounded = zip(at, heights / heights.max(), strict=True)
    return [(float(f"{x:.5g}"), round(float(y), 4)) for x, y in rounded]


def _over_steps(found: Summary, scored: Sequence[Trial]) -> Iterator[tuple[Chart, str]]:
    """Plots the objective of the best trials during training, and their ranks among all."""
    metric = found.objective.metric
    runs = {
        each.number: [(step, row[metric]) for step, row in each.evaluations if metric in row]
        for each in found.trials
    }
    order = sorted(scored, key=lambda each: found.objective.worse(score(found, each) or 0.0))
    chosen = [each for each in order if len(runs[each.number]) > 1][:_CURVES]
    if not chosen:
        return
    series = [_series(each.number, runs[each.number]) for each in chosen]
    yield {"name": f"{metric} while training", "series": series}, "The best trials."
    ranks = _ranks(found, runs)
    series = [_series(each.number, ranks[each.number]) for each in chosen]
    if any(len(each["x"]) > 1 for each in series) and len(found.trials) > 1:
        note = "The place of a trial among those that were evaluated at that step; 1 is the best."
        yield {"name": f"rank by {metric}", "series": series, "flip": True}, note


def _ranks(
    found: Summary, runs: dict[int, list[tuple[int, float]]]
) -> dict[int, list[tuple[int, float]]]:
    """Returns each trial's rank at each step, by its best value until then. Equals share one."""
    at: dict[int, list[tuple[float, int]]] = {}
    for number, rows in runs.items():
        best = math.inf
        for step, value in rows:
            best = min(best, math.inf if math.isnan(value) else found.objective.worse(value))
            at.setdefault(step, []).append((best, number))
    ranks: dict[int, list[tuple[int, float]]] = {number: [] for number in runs}
    for step in sorted(at):
        if len(at[step]) > 1:
            values = sorted(best for best, _ in at[step])
            for best, number in at[step]:
                ranks[number].append((step, bisect.bisect_left(values, best) + 1))
    return ranks


def _series(number: int, points: Sequence[tuple[int, float]]) -> Chart:
    """Returns the curve of a trial, in the color of its number, whichever others are shown."""
    x, y = [step for step, _ in points], [value for _, value in points]
    return {**curves.series(f"trial {number}", x, y, _POINTS), "color": number}
