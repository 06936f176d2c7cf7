"""How a run is doing or ended: in a sentence, and as a table of its metrics. No TensorFlow."""

from collections.abc import Mapping
from typing import Any

from runner.core import text
from runner.run_directory import goodput
from runner.run_directory.run import Run
from runner.run_directory.state import State

_METRICS = 500  # rows in the table of best and last
_AT = {
    State.PENDING: "Started, at",
    State.RUNNING: "Running, at",
    State.UNRESPONSIVE: "No heartbeat since",
}


def sentence(run: Run) -> str:
    """Summarizes the run: `Done at step 2,000: best accuracy 0.97 at step 1,400, ...`."""
    end = f" of {run.train_steps:,}" if run.train_steps and run.step < run.train_steps else ""
    said = f"{_AT.get(run.state, f'{run.state.capitalize()} at')} step {run.step:,}{end}"
    if run.reason and run.state != State.UNRESPONSIVE:
        said += f" ({run.reason})"
    if run.last and (metric := decisive(run)):
        parts = [f"final {metric} {text.number(run.last.metrics.get(metric))}"]
        if run.best:
            value = text.number(run.best.metrics.get(metric))
            parts.insert(0, f"best {metric} {value} at step {run.best.step:,}")
        said += f": {', '.join(parts)}"
    if run.time.starts:
        said += f". {_capital(goodput.sentence(run.time))}"
    return f"{said}."


def _capital(said: str) -> str:
    return said[:1].upper() + said[1:]


def decisive(run: Run) -> str:
    """Returns the metric to report, or an empty string if there is none."""
    if run.last is None:
        return ""
    metrics = run.last.metrics
    names = [run.rule.metric] if run.rule else []
    return next((name for name in (*names, "validation_loss", *metrics) if name in metrics), "")


def results(run: Run) -> dict[str, Any] | None:
    """Returns the metrics of the best and last evaluation and the tests, or None without any."""
    columns: list[tuple[str, Mapping[str, float]]] = []
    if run.best:
        columns.append((f"best, step {run.best.step:,}", run.best.metrics))
    if run.last:
        columns.append((f"last, step {run.last.step:,}", run.last.metrics))
    for test in run.tests:
        columns.append((f"test of the {test.weights} weights, step {test.tested:,}", test.metrics))
    if not columns:
        return None
    names = sorted({name for _, metrics in columns for name in metrics})
    if run.rule and run.rule.metric in names:
        names.insert(0, names.pop(names.index(run.rule.metric)))
    rows = [
        [name, *(text.number(metrics.get(name)) for _, metrics in columns)]
        for name in names[:_METRICS]
    ]
    more = f"and {len(names) - _METRICS:,} more metrics" if len(names) > _METRICS else ""
    limited = [row.limited for row in run.evaluations if row.limited]
    if limited:
        more = f"{more} Evaluations of {limited[-1]:,} batches only.".strip()
    return {"head": ["metric", *(name for name, _ in columns)], "rows": rows, "more": more}
