"""Shows a study's summary as a table, and writes study.json, trials.csv and trials.parquet.

The files are derived from the trials' directories and may be deleted. No TensorFlow.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from runner.core import files, layout, text
from runner.reporting import arrow, table
from runner.studies import across, findings, variance
from runner.studies.statistics import Difference, Spread
from runner.studies.summary import Configuration, Summary
from runner.studies.trial import Trial

_MOST = 20  # configurations shown
_DASH = "-"
_MAY_BE_NONE = ("fold", "copy_of", "copied_at")


def render(found: Summary, *, width: float = math.inf) -> str:
    """Renders the summary: a full table of the objective, short ones of other metrics, and notes.

    Args:
        found: The summary.
        width: Columns of the terminal. Names of configurations are truncated to fit.
    """
    if not found.trials:
        return "no trials yet"
    metric = found.objective.metric
    blocks = [
        _block(found, metric, "best", width),
        _block(found, metric, "last", width) if _differ(found, metric) else "",
        _others(found, width),
        _front(found, width),
        _tested(found),
        "\n".join(findings.comparisons(found)),
        "\n".join(findings.notes(found)),
    ]
    return "\n\n".join(block for block in blocks if block)


def _differ(found: Summary, metric: str) -> bool:
    """Returns whether some last evaluations are not the best ones."""
    return any(each.best.get(metric) != each.last.get(metric) for each in found.configurations)


def _block(found: Summary, metric: str, at: str, width: float) -> str:
    """Renders one metric of each configuration at its best or last evaluations."""
    shown = found.configurations[:_MOST]
    spreads = [getattr(each, at).get(metric, Spread(0)) for each in shown]
    if not any(each.n for each in spreads):
        return ""
    several = any(each.n > 1 for each in spreads)
    number = _format(spreads)
    cells = []
    for each, spread in zip(shown, spreads, strict=True):
        values = [str(spread.n), number(spread.mean)]
        if several:
            interval = _interval(spread, number)
            extremes = (number(spread.std), number(spread.minimum), number(spread.maximum))
            values += [interval, *extremes]
        cells.append([*_left(each), *values, _steps(each.counted), _mark(found, each, at)])
    head = [*_heads(found), "n", "mean"]
    head += ["95 % interval", "std", "min", "max"] if several else []
    direction = "higher" if found.objective.higher else "lower"
    lines = table.aligned([[*head, "steps", ""], *cells], left=len(_heads(found)), width=width)
    if more := found.configurations[_MOST:]:
        lines.append(f"and {len(more):,} more in {layout.STUDY}")
    return "\n".join([f"{metric} ({direction} is better) at the {at} evaluation", *lines])


def _others(found: Summary, width: float) -> str:
    """Renders the other metrics: means with their intervals."""
    shown = found.configurations[:_MOST]
    at = "best" if found.objective.metric else "last"
    names = [name for name in found.metrics if name != found.objective.metric]
    columns = []
    for name in names:
        spreads = [getattr(each, at).get(name, Spread(0)) for each in shown]
        number = _format(spreads)
        columns.append([name, *(_short(each, number) for each in spreads)])
    rows = [_heads(found), *map(_left, shown)]
    while columns:
        cells = [[*left, *row] for left, row in zip(rows, zip(*columns, strict=True), strict=True)]
        lines = table.aligned(cells, left=len(rows[0]))
        if len(columns) == 1 or max(map(len, lines)) <= width:
            cut = "" if len(columns) == len(names) else f"; {layout.STUDY} has all {len(names)}"
            head = f"at the {at} evaluation: means (95 % intervals){cut}"
            return "\n".join([head, *table.aligned(cells, left=len(rows[0]), width=width)])
        columns.pop()
    return ""


def _front(found: Summary, width: float) -> str:
    """Renders the Pareto front."""
    if not found.front:
        return ""
    goals = found.goals.objectives
    heads = [f"{each.name} ({'higher' if each.higher else 'lower'} is better)" for each in goals]
    rows = [_heads(found), *map(_left, found.front)]
    columns = []
    for head, each in zip(heads, goals, strict=True):
        spreads = [one.best[each.name] for one in found.front]
        columns.append([head, *map(_format(spreads), (one.mean for one in spreads))])
    cells = [[*left, *row] for left, row in zip(rows, zip(*columns, strict=True), strict=True)]
    limits = f" within {' and '.join(map(str, found.goals.limits))}" if found.goals.limits else ""
    title = f"Pareto front: not worse than any other in all objectives{limits}"
    return "\n".join([title, *table.aligned(cells, left=len(rows[0]), width=width)])


def _tested(found: Summary) -> str:
    """Renders the test of the chosen configuration."""
    tested = found.to_test
    if not (tested and tested.test):
        return ""
    cells = [["test", "n", "mean", "95 % interval"]]
    for name, spread in sorted(tested.test.items()):
        number = _format([spread])
        interval = _interval(spread, number)
        cells.append([name, str(spread.n), number(spread.mean), interval])
    lines = table.aligned(cells, left=1)
    return "\n".join([f"test of the chosen configuration, {tested.name}", *lines])


def _heads(found: Summary) -> list[str]:
    return ["trials", *found.configurations[0].values]


def _left(each: Configuration) -> list[str]:
    return [_ranges([one.number for one in each.trials]), *each.values.values()]


def _mark(found: Summary, each: Configuration, at: str) -> str:
    if each is found.chosen:
        return "best" if at == "best" else "chosen"
    if each.is_finished and not found.is_within(each):
        return "exceeds a limit" if found.goals.exceeded(each.means) else "not measured"
    return "" if each.is_finished else "not finished"


def _steps(trials: Sequence[Trial]) -> str:
    steps = sorted({each.step for each in trials})
    return (
        " to ".join(f"{step:,}" for step in dict.fromkeys((steps[0], steps[-1])))
        if steps
        else _DASH
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Returns `0-4` or `0, 3, 6 and 2 more`."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return text.some([str(each) for each in numbers])


def _short(spread: Spread, number: Any) -> str:
    interval = "" if math.isnan(spread.low) else f" ({_interval(spread, number)})"
    return f"{number(spread.mean)}{interval}"


def _interval(spread: Spread, number: Any) -> str:
    return _DASH if math.isnan(spread.low) else f"{number(spread.low)} to {number(spread.high)}"


def _format(spreads: Sequence[Spread]) -> Any:
    """Returns a formatter with enough decimals to distinguish a column's values."""
    stds = [each.std for each in spreads if each.std > 0]
    decimals = 1 - math.floor(math.log10(min(stds))) if stds else -1
    style = f".{decimals}f" if 0 <= decimals <= 6 else ".4g"
    return lambda value: _DASH if math.isnan(value) else f"{value:{style}}"


def write(folder: Path, found: Summary, rows: Sequence[across.Across] = ()) -> None:
    """Writes study.json, trials.csv and trials.parquet to a study's directory, each atomically.

    Args:
        folder: The study's directory.
        found: The study's summary.
        rows: The study's configurations over several data sets, if there are any.
    """
    files.write_json(folder / layout.STUDY, as_dict(found, rows))
    trials = _arrow(found)
    for name in (layout.TRIALS_TABLE, layout.TRIALS_PARQUET):
        arrow.write(folder / name, trials)


def as_dict(found: Summary, rows: Sequence[across.Across] = ()) -> dict[str, Any]:
    """Returns the summary for JSON. Undefined values, such as one value's interval, are null."""
    chosen = found.chosen
    return {
        **({"across": across.as_dict(rows)} if rows else {}),
        "objective": found.objective._asdict(),
        **_goals(found),
        "trials": len(found.trials),
        "chosen": {"name": chosen.name, "parameters": chosen.parameters} if chosen else None,
        "configurations": [
            _entry(each, shows_test=each is found.to_test) for each in found.configurations
        ],
        "differences": [
            {
                "of": each.name,
                **_plain(gap),
                "told_apart": gap.is_told_apart,
                "in_words": findings.sentence(found, chosen, each, gap),
            }
            for each, gap in found.differences
            if chosen
        ],
        **({"variance": shares} if (shares := _shares(found)) else {}),
        "lineages": [
            {"trial": each.number, **each.lineage._asdict()}
            for each in found.trials
            if each.lineage
        ],
        "notes": findings.notes(found),
    }


def _goals(found: Summary) -> dict[str, Any]:
    """Returns further objectives, limits, and the names of the configurations on the front."""
    if not found.goals.facts:
        return {}
    return {
        "objectives": [each._asdict() for each in found.goals.objectives],
        "limits": [each._asdict() for each in found.goals.limits],
        "front": [each.name for each in found.front],
    }


def _shares(found: Summary) -> list[dict[str, Any]]:
    """Returns the shares of the seeds in the variance, if the study compares seeds."""
    if not variance.varies_seeds_only(found.trials):
        return []
    return [each._asdict() for each in variance.of(found.trials, found.objective.metric)]


def _entry(each: Configuration, *, shows_test: bool) -> dict[str, Any]:
    spreads = {"best": each.best, "last": each.last, **({"test": each.test} if shows_test else {})}
    return {
        "name": each.name,
        "parameters": each.parameters,
        "trials": [one.number for one in each.trials],
        "counted": [one.number for one in each.counted],
        "finished": each.is_finished,
        **{
            at: {name: _plain(spread) for name, spread in found.items()}
            for at, found in spreads.items()
        },
    }


def _plain(numbers: Spread | Difference) -> dict[str, Any]:
    found = {name: getattr(numbers, name) for name in numbers.__slots__}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in found.items()
    }


def _arrow(found: Summary) -> pa.Table:
    """Returns a row for each trial. Paths are relative to the study's, which may be moved."""
    trials = found.trials
    tests = sorted({name for each in trials for name in each.test})
    parameters = list(dict.fromkeys(name for each in trials for name in each.parameters))
    columns: dict[str, list[Any]] = {
        "number": [each.number for each in trials],
        "folder": [f"{layout.TRIALS}/{each.folder.name}" for each in trials],
        "state": [str(each.state) for each in trials],  # not an enum
        "step": [each.step for each in trials],
        "seed": [each.seed for each in trials],
        "fold": [each.fold for each in trials],
        **_lineages(trials),
        **{name: [each.parameters.get(name) for each in trials] for name in parameters},
    }
    for at in ("best", "last"):
        for name in found.metrics:
            columns[f"{at}/{name}"] = [_number(getattr(each, at), name) for each in trials]
    for name in tests:
        columns[name] = [_number(each.test, name) for each in trials]
    columns["reason"] = [each.reason for each in trials]
    kinds = dict.fromkeys(_MAY_BE_NONE, pa.int64())  # pyarrow cannot infer it from None
    return arrow.table(columns, as_text=json.dumps, kinds=kinds)


def _lineages(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Returns the columns of a population's study."""
    if not any(each.lineage for each in trials):
        return {}
    return {
        "copy_of": [each.lineage.parent if each.lineage else None for each in trials],
        "copied_at": [each.lineage.step if each.lineage else None for each in trials],
    }


def _number(metrics: Mapping[str, float], name: str) -> float | None:
    return float(metrics[name]) if name in metrics else None
