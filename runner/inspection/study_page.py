"""The page about a study: the best values, their confidence and importance. No TensorFlow."""

import collections
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.core import layout, text
from runner.errors import RunnerError
from runner.inspection import page, study_charts
from runner.run_directory import goodput
from runner.run_directory.run import Run
from runner.run_directory.state import ACTIVE, State
from runner.studies import findings, summary, trial
from runner.studies.statistics import Spread
from runner.studies.summary import Configuration, Summary
from runner.studies.trial import Trial

_MOST = 200  # configurations in the table
_UNFINISHED = (State.PENDING, *ACTIVE, State.PAUSED, State.PREEMPTED)


def render(folder: Path, *, refresh: int = 0) -> tuple[str, bool]:
    """Returns the page as HTML, and whether every trial has ended."""
    problems: list[str] = []
    found = summary.of(_trials(folder, problems))
    states: collections.Counter[str] = collections.Counter(each.state for each in found.trials)
    ended = not any(states[each] for each in _UNFINISHED)
    running = any(states[each] for each in ACTIVE)
    named = [(chart, note) for chart, note in study_charts.charts(found)]
    html = page.render(
        "study.html",
        {"charts": [chart for chart, _ in named]},
        refresh=0 if ended else refresh,
        title=folder.name or str(folder),
        state=State.RUNNING if running else (State.DONE if ended else "unfinished"),
        sentences=[sentence(found)],
        problems=problems,
        sections=[
            ("configurations", "Configurations"),
            ("charts", "Charts"),
            *([("importance", "Importance")] if (shares := _importance(found)) else []),
            ("trials", "Trials"),
            ("time", "Time"),
        ],
        figures=_figures(found, states),
        notes=[*findings.comparisons(found), *findings.notes(found)],
        table=_table(found),
        charts=[(chart["name"], chart.get("kind", "lines"), note) for chart, note in named],
        importance=shares,
        trials=_rows(found),
        time=page.time_rows(_ledger(found, problems)),
    )
    return html, ended


def sentence(found: Summary) -> str:
    """Summarizes the study: `The best of 12 configurations is 0.02: accuracy 0.97 (...)`."""
    trials = text.counted(len(found.trials), "trial")
    if not found.chosen:
        return f"{trials}; nothing is chosen yet."
    spread = found.chosen.best.get(found.objective.metric, Spread(0))
    interval = ""
    if not math.isnan(spread.low):
        low, high = text.number(spread.low), text.number(spread.high)
        interval = f" (95 % interval {low} to {high}, {text.counted(spread.n, 'run')})"
    return (
        f"The best of {text.counted(len(found.configurations), 'configuration')} in {trials} is "
        f"{found.chosen.name}: {found.objective.metric} {text.number(spread.mean)}{interval}."
    )


def _trials(folder: Path, problems: list[str]) -> list[Trial]:
    """Returns the trials that can be read, by number."""
    found = []
    for each in layout.trials(folder):
        if (each / layout.TRIAL).exists():
            try:
                found.append(trial.read(each))
            except (RunnerError, OSError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{each}: {' '.join(str(error).split())}")
    return sorted(found, key=lambda each: each.number)


def _figures(found: Summary, states: Mapping[str, int]) -> list[tuple[str, str, str]]:
    said = ", ".join(f"{count:,} {state}" for state, count in states.items())
    figures = [("trials", f"{len(found.trials):,}", said)]
    if found.chosen:
        spread = found.chosen.best.get(found.objective.metric, Spread(0))
        name = f"best {found.objective.metric}"
        figures.append((name, text.number(spread.mean), found.chosen.name))
    figures.append(("configurations", f"{len(found.configurations):,}", ""))
    return figures


def _table(found: Summary) -> dict[str, Any]:
    """Returns the configurations, the best first, without empty columns."""
    metric, shown = found.objective.metric, found.configurations[:_MOST]
    heads = list(shown[0].values) if shown else []
    others = [name for name in found.metrics if name != metric][:4]
    head = [*(heads or ["configuration"]), "", "runs", metric or "-"]
    head += ["95 % interval", "min", "max", *others]
    rows = []
    for each in shown:
        spread = each.best.get(metric) or each.last.get(metric, Spread(0))
        ends = [spread.minimum, spread.maximum] if spread.n > 1 else [math.nan, math.nan]
        numbers = [_mean(each, metric), _interval(spread), *map(_number, ends)]
        left = list(each.values.values()) or [each.name]
        more = [_mean(each, name) for name in others]
        rows.append([*left, _mark(found, each), f"{len(each.counted):,}", *numbers, *more])
    best = next((n for n, each in enumerate(shown) if each is found.chosen), None)
    rest = len(found.configurations) - len(shown)
    left_columns = len(heads) or 1
    kept = _filled(rows, range(left_columns))
    return {
        "head": [head[n] for n in kept],
        "left": sum(n <= left_columns for n in kept),
        "rows": [[row[n] for n in kept] for row in rows],
        "best": best,
        "more": f"and {rest:,} more: study.json has them all" if rest else "",
    }


def _filled(rows: Sequence[Sequence[str]], always: Container[int]) -> list[int]:
    """Returns the columns with a value in any row, and those always shown."""
    width = len(rows[0]) if rows else 0
    return [n for n in range(width) if n in always or any(row[n] not in ("", "-") for row in rows)]


def _mark(found: Summary, each: Configuration) -> str:
    if each is found.chosen:
        return "best"
    return "" if each.is_finished else "not finished"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else text.number(value)


def _mean(each: Configuration, name: str) -> str:
    spread = each.best.get(name) or each.last.get(name, Spread(0))
    return _number(spread.mean)


def _interval(spread: Spread) -> str:
    if math.isnan(spread.low):
        return "-"
    return f"{text.number(spread.low)} to {text.number(spread.high)}"


def _rows(found: Summary) -> dict[str, Any]:
    names = study_charts.varying(found.trials)
    folded = any(each.fold is not None for each in found.trials)
    head = ["trial", *study_charts.short(names), "seed", *(["fold"] if folded else [])]
    head += ["state", "step", f"best {found.objective.metric}".strip(), "reason"]
    rows = []
    for each in found.trials:
        values = [text.number(each.parameters.get(name)) for name in names]
        fold = [text.number(each.fold)] if folded else []
        best = text.number(each.best.get(found.objective.metric))
        outcome = [each.state, f"{each.step:,}", best, each.reason]
        rows.append([str(each.number), *values, str(each.seed), *fold, *outcome])
    kept = _filled(rows, range(len(head) - 2))
    long = kept.index(len(head) - 1) if len(head) - 1 in kept else -1
    return {
        "head": [head[n] for n in kept],
        "rows": [[row[n] for n in kept] for row in rows],
        "long": long,
    }


def _importance(found: Summary) -> list[tuple[str, float]]:
    """Returns the fraction of variance that each parameter alone explains, highest first."""
    every = ((each, study_charts.score(found, each)) for each in found.trials)
    scored = [(each, value) for each, value in every if value is not None]
    names = study_charts.varying([each for each, _ in scored])
    shares = []
    for name in names:  # a conditional one only where it applies
        pairs = [(each.parameters[name], x) for each, x in scored if name in each.parameters]
        shares.append(explained([value for value, _ in pairs], np.array([x for _, x in pairs])))
    known = [(name, share) for name, share in zip(study_charts.short(names), shares, strict=True)
             if share is not None]  # fmt: skip
    return sorted(known, key=lambda each: -each[1])


def explained(values: Sequence[Any], scores: np.ndarray) -> float | None:
    """Returns omega squared: the fraction of the variance of scores [n] that the values explain.

    It is corrected for chance (Hays, 1963), so a parameter without effect has about zero. Numbers
    with many values are grouped by quantiles. Returns None if there are too few scores.
    """
    groups = _groups(values)
    means = {each: scores[groups == each].mean() for each in set(groups.tolist())}
    between, within = len(means) - 1, len(scores) - len(means)
    total = float(((scores - scores.mean()) ** 2).sum())
    if not between or within < 2 or not total:
        return None
    inside = float(sum((scores[n] - means[each]) ** 2 for n, each in enumerate(groups.tolist())))
    noise = inside / within
    return max((total - inside - between * noise) / (total + noise), 0.0)


def _groups(values: Sequence[Any]) -> np.ndarray:
    """Returns the number of each value's group."""
    known = sorted({str(each) for each in values})
    most = max(2, min(8, len(values) // 3))
    if len(known) > most and all(isinstance(each, int | float) for each in values):
        numbers = np.array(values, float)
        edges = np.quantile(numbers, np.linspace(0, 1, most + 1)[1:-1])
        return np.searchsorted(edges, numbers, side="right")
    return np.array([known.index(str(each)) for each in values])


def _ledger(found: Summary, problems: list[str]) -> goodput.Ledger:
    ledgers = []
    for each in found.trials:
        try:
            ledgers.append(Run(each.folder).time)
        except (RunnerError, OSError) as error:
            problems.append(str(error))
    return goodput.together(ledgers)
