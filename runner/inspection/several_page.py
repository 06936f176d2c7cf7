"""The page about several runs: their curves together, and a table of them. No TensorFlow."""

from collections.abc import Sequence
from typing import Any

from runner.core import text
from runner.inspection import curves, goodput, page, run_page
from runner.inspection.run_data import RunData
from runner.storage import display_names

_METRICS = 12  # of the table
_DIFFERENCES = 100


def render(runs: Sequence[RunData], *, refresh: int = 0) -> str:
    """The page as HTML."""
    runs = _named(runs)
    first = [name for run in runs if run.rule for name in run.rule.names]
    charts = curves.charts(runs, first=first)
    differences = _differences(runs)
    return page.render(
        "several.html",
        {"charts": charts},
        refresh=refresh,
        title=f"{text.counted(len(runs), 'run')}: {text.some([run.name for run in runs])}",
        state="",
        sentences=[f"{run.name}: {run_page.sentence(run)}" for run in runs[:3]],
        problems=[problem for run in runs for problem in run.problems],
        sections=[
            ("runs", "Runs"),
            *([("curves", "Curves")] if charts else []),
            *([("differences", "Differences")] if differences else []),
            ("time", "Time"),
        ],
        table=_table(runs),
        chart_names=[chart["name"] for chart in charts],
        differences=differences,
        names=[run.name for run in runs],
        time=page.time_rows(goodput.together(run.ledger for run in runs if run.ledger)),
    )


def _named(runs: Sequence[RunData]) -> list[RunData]:
    """The runs; where two have the same name, they are called by their paths."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return list(runs)
    return [run.called(display_names.of(run.folder)) for run in runs]


def _table(runs: Sequence[RunData]) -> dict[str, Any]:
    """A row for each run: how far, how good at its best or else its last evaluation."""
    shown = [run.best or next(iter(run.evaluations[-1:]), None) for run in runs]
    known = dict.fromkeys(name for row in shown if row for name in sorted(row.metrics))
    first = dict.fromkeys(run.rule.metric for run in runs if run.rule and run.rule.metric in known)
    names = list({**first, **known})[:_METRICS]
    rows = []
    for run, row in zip(runs, shown, strict=True):
        metrics = [curves.number(row.metrics.get(name) if row else None) for name in names]
        at = f"{row.step:,}" if row else "-"
        share = goodput.percent(run.ledger) if run.ledger else "-"
        rows.append([run.name, run.state, f"{run.step:,}", at, *metrics, share])
    return {"head": ["run", "state", "step", "best step", *names, "time training"], "rows": rows}


def _differences(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """The configuration's values that are not the same in all runs."""
    flat = [dict(page.flat(run.params)) if run.params else {} for run in runs]
    paths = dict.fromkeys(path for each in flat for path in each)
    found = [(path, *(each.get(path, "-") for each in flat)) for path in paths]
    return [row for row in found if len(set(row[1:])) > 1][:_DIFFERENCES]
