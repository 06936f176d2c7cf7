"""The page about one run. No TensorFlow."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.core import layout, text
from runner.history import records
from runner.inspection import curves, page, pictures, predictions, timeline
from runner.run_directory import goodput
from runner.run_directory.run import Run
from runner.run_directory.state import State
from runner.storage import display_names

_DECISIONS = (
    *(records.Rollback, records.FreshShuffle, records.Corruption),
    *(records.Stop, records.Drop),
)
_LONGEST_DIFF = 20_000  # characters
_METRICS = 500  # rows in the table of best and last
_AT = {
    State.PENDING: "Started, at",
    State.RUNNING: "Running, at",
    State.UNRESPONSIVE: "No heartbeat since",
}

Rows = list[tuple[str, ...]]


def render(run: Run, *, refresh: int = 0) -> str:
    """Returns the page as HTML."""
    problems: list[str] = []
    found = predictions.of(run.directory, problems)
    drawn = pictures.of(run.directory)
    first = run.rule.names if run.rule else ()
    charts = curves.charts([run], first=first)
    again = _again(run)
    sections = {
        "curves": ("Curves", bool(charts)),
        "results": ("Best and last", bool(run.evaluations or run.tests)),
        "predictions": ("Predictions", found is not None),
        "pictures": ("Images", bool(drawn)),
        "time": ("Time", True),
        "configuration": ("Configuration", bool(run.params)),
        "model": ("Model", bool(run.overview)),
        "environment": ("Environment", bool(run.attempts)),
        "again": ("Reproduce it", bool(again)),
    }
    return page.render(
        "run.html",
        {"charts": charts},
        refresh=refresh,
        title=run.name,
        state=run.state,
        sentences=[sentence(run)],
        problems=[*run.problems, *problems],
        sections=[(key, name) for key, (name, there) in sections.items() if there],
        figures=list(_figures(run)),
        chart_names=[chart["name"] for chart in charts],
        results=results(run),
        predictions=found,
        pictures=drawn,
        time=page.time_rows(run.time),
        line=timeline.of(run),
        config=_configuration(run),
        overview=_overview(run.overview),
        environment=_environment(run),
        again=again,
    )


def sentence(run: Run) -> str:
    """Summarizes the run: `Done at step 2,000: best accuracy 0.97 at step 1,400, ...`."""
    end = f" of {run.train_steps:,}" if run.train_steps and run.step < run.train_steps else ""
    said = f"{_AT.get(run.state, f'{run.state.capitalize()} at')} step {run.step:,}{end}"
    if run.reason and run.state != State.UNRESPONSIVE:
        said += f" ({run.reason})"
    if metric := _decisive(run):
        last = run.evaluations[-1]
        parts = [f"final {metric} {curves.number(last.metrics.get(metric))}"]
        if run.best:
            value = curves.number(run.best.metrics.get(metric))
            parts.insert(0, f"best {metric} {value} at step {run.best.step:,}")
        said += f": {', '.join(parts)}"
    if run.time.starts:
        said += f". {_capital(goodput.sentence(run.time))}"
    return f"{said}."


def _capital(said: str) -> str:
    return said[:1].upper() + said[1:]


def _decisive(run: Run) -> str:
    """Returns the metric to report, or an empty string if there is none."""
    if not run.evaluations:
        return ""
    metrics = run.evaluations[-1].metrics
    names = [run.rule.metric] if run.rule else []
    return next((name for name in (*names, "validation_loss", *metrics) if name in metrics), "")


def _figures(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yields name, value and note of the key figures."""
    end = f"of {run.train_steps:,}" if run.train_steps else ""
    yield "step", f"{run.step:,}", end
    if metric := _decisive(run):
        if run.best:
            best = run.best.metrics.get(metric)
            yield f"best {metric}", curves.number(best), f"step {run.best.step:,}"
        last = run.evaluations[-1]
        yield f"last {metric}", curves.number(last.metrics.get(metric)), f"step {last.step:,}"
    if run.time.starts:
        if not math.isnan(run.time.share):
            yield "time spent training", f"{run.time.share:.0%}", ""
        starts = text.counted(len(run.time.starts), "start")
        yield "duration", goodput.shown(run.time.seconds), starts
    rates = sorted(x for x in run.training.get("steps_per_second", ()) if x is not None)
    if rates:
        yield "steps per second", curves.number(rates[len(rates) // 2]), "median"
    if isinstance(count := run.overview.get("parameters"), int):
        yield "parameters", text.short(count), ""


def results(run: Run) -> dict[str, Any] | None:
    """Returns the metrics of the best and last evaluation and the tests, or None without any."""
    columns: list[tuple[str, Mapping[str, float]]] = []
    if run.best:
        columns.append((f"best, step {run.best.step:,}", run.best.metrics))
    if run.evaluations:
        step = run.evaluations[-1].step
        newest: dict[str, float] = {}
        for row in run.evaluations:
            newest.update(row.metrics if row.step == step else {})
        columns.append((f"last, step {step:,}", newest))
    for test in run.tests:
        columns.append((f"test of the {test.weights} weights, step {test.tested:,}", test.metrics))
    if not columns:
        return None
    names = sorted({name for _, metrics in columns for name in metrics})
    if run.rule and run.rule.metric in names:
        names.insert(0, names.pop(names.index(run.rule.metric)))
    rows = [
        [name, *(curves.number(metrics.get(name)) for _, metrics in columns)]
        for name in names[:_METRICS]
    ]
    more = f"and {len(names) - _METRICS:,} more metrics" if len(names) > _METRICS else ""
    limited = [row.limited for row in run.evaluations if row.limited]
    if limited:
        more = f"{more} Evaluations of {limited[-1]:,} batches only.".strip()
    return {"head": ["metric", *(name for name, _ in columns)], "rows": rows, "more": more}


def _configuration(run: Run) -> dict[str, Any]:
    everything = page.flat(run.params) if run.params else []
    known = dict(everything)
    places: Mapping[str, str] = {}
    changes = []
    for number, start in enumerate(run.attempts, 1):
        places = start.get("origins") or places
        for change in start.get("changed") or ():
            changes.append((f"start {number}", str(change)))
    chosen = [
        (path, _value(known, path), place or "what configures the experiment")
        for path, place in places.items()
    ]
    return {"all": everything, "set": chosen, "changes": changes}


def _value(known: Mapping[str, str], path: str) -> str:
    """Returns the value at a path, or the values below it."""
    if path in known:
        return known[path]
    below = [f"{each[len(path) + 1 :]} {value}" for each, value in known.items()
             if each.startswith((f"{path}.", f"{path}["))]  # fmt: skip
    return ", ".join(below[:6]) + (" ..." if len(below) > 6 else "")


def _overview(found: Mapping[str, Any]) -> dict[str, Any] | None:
    if not found:
        return None
    totals = [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in found.items()
        if not isinstance(value, list | dict)
    ]
    layers = [
        [
            str(row.get("layer")),
            str(row.get("kind")),
            ", ".join("x".join(map(str, shape)) or "scalar" for shape in row.get("shapes") or ()),
            curves.number(row.get("trainable")),
            curves.number(row.get("not_trainable")),
        ]
        for row in found.get("layers") or ()
        if isinstance(row, Mapping)
    ]
    return {"totals": totals, "layers": layers}


def _environment(run: Run) -> dict[str, Any] | None:
    if not run.attempts:
        return None
    start = run.attempts[-1]
    versions, code = start.get("versions") or {}, start.get("code") or {}
    rows = [
        ("machine", f"{start.get('host')}, {start.get('platform')}"),
        ("devices", ", ".join(map(str, start.get("devices") or ["unknown"]))),
        ("Python", str(start.get("python"))),
        *((name, str(version)) for name, version in versions.items()),
    ]
    for name in ("runner", "task"):
        part = code.get(name) or {}
        if commit := part.get("commit"):
            dirty = " with uncommitted changes" if part.get("changed") else ""
            rows.append((f"code of the {name}", f"commit {commit}{dirty}"))
    if code.get("commit"):
        dirty = " with uncommitted changes" if code.get("diff") else ""
        rows.append(("code", f"commit {code.get('commit')} on {code.get('branch')}{dirty}"))
        if untracked := code.get("untracked"):
            rows.append(("untracked files", text.some([str(each) for each in untracked], 10)))
    rows.append(("directory", display_names.of(run.directory)))
    diff = str(code.get("diff") or "")
    if len(diff) > _LONGEST_DIFF:
        diff = f"{diff[:_LONGEST_DIFF]}\n... the rest is in run.json"
    return {"rows": rows, "diff": diff}


def _again(run: Run) -> list[tuple[str, str, str]]:
    """Returns commands that repeat the run: an id, a description, the command."""
    if not run.attempts:
        return []
    start = run.attempts[-1]
    words = [str(word) for word in start.get("command") or ()]
    found = []
    if any(word.startswith("--mode") for word in words):
        line = shlex.join(["runner", *words[1:]])
        found.append(("as-then", f"As it was started, in {start.get('folder')}:", line))
    mode = str(start.get("mode") or "train_and_eval")
    path = run.directory / layout.GIN
    if path.exists():
        folder, gin = display_names.of(run.directory), display_names.of(path)
        line = shlex.join(
            ["runner", f"--mode={mode}", f"--gin_file={gin}", f"--model_dir={folder}-again"]
        )
        found.append(("from-folder", "From the configuration in the run directory:", line))
    return found


def decisions(rows: Sequence[records.Record]) -> int:
    """Returns the number of rows that are decisions."""
    return sum(isinstance(row, _DECISIONS) for row in rows)
