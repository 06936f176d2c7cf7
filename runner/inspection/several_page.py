"""The page about several runs: their curves together, and a table of them. No TensorFlow."""

from collections.abc import Sequence
from typing import Any

from runner.core import text
from runner.inspection import curves, outcome, page
from runner.run_directory import goodput
from runner.run_directory.run import Run
from runner.storage import display_names

_METRICS = 12  # columns of the table
_DIFFERENCES = 100


def render(runs: Sequence[Run], *, refresh: int = 0) -> str:
    """Returns the page as HTML."""
    _name(runs)
    first = [name for run in runs if run.rule for name in run.rule.names]
    charts = curves.charts(runs, first=first)
    differences, table = _differences(runs), _table(runs)
    return page.render(
        "several.html",
        {"charts": charts},
        refresh=refresh,
        title=f"{text.counted(len(runs), 'run')}: {text.some([run.name for run in runs])}",
        state="",
        sentences=[f"{run.name}: {outcome.sentence(run)}" for run in runs[:3]],
        sections=[
            ("runs", "Runs"),
            *([("curves", "Curves")] if charts else []),
            *([("differences", "Differences")] if differences else []),
            ("time", "Time"),
        ],
        table=table,
        chart_names=[chart["name"] for chart in charts],
        differences=differences,
        names=[run.name for run in runs],
        time=page.time_rows(goodput.together(run.time for run in runs)),
        problems=[problem for run in runs for problem in run.problems],
    )


def _name(runs: Sequence[Run]) -> None:
    """Renames the runs to their paths if two have the same name."""
    if len({run.name for run in runs}) < len(runs):
        for run in runs:
            run.name = display_names.of(run.directory)


def _table(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns a row for each run, with its step and its best or else last evaluation."""
    shown = [run.best or run.last for run in runs]
    known = dict.fromkeys(name for row in shown if row for name in sorted(row.metrics))
    first = dict.fromkeys(run.rule.metric for run in runs if run.rule and run.rule.metric in known)
    names = list({**first, **known})[:_METRICS]
    rows = []
    for run, row in zip(runs, shown, strict=True):
        metrics = [text.number(row.metrics.get(name) if row else None) for name in names]
        at = f"{row.step:,}" if row else "-"
        share = goodput.percent(run.time)
        rows.append([run.name, run.state, f"{run.step:,}", at, *metrics, share])
    return {"head": ["run", "state", "step", "best step", *names, "time training"], "rows": rows}


def _differences(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Returns the configuration values that are not equal in all runs."""
    flat = [dict(page.flat(run.params)) if run.params else {} for run in runs]
    paths = dict.fromkeys(path for each in flat for path in each)
    found = [(path, *(each.get(path, "-") for each in flat)) for path in paths]
    return [row for row in found if len(set(row[1:])) > 1][:_DIFFERENCES]
