"""The page about one run. No TensorFlow."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.core import layout, text
from runner.history import records
from runner.inspection import curves, outcome, page, pictures, timeline
from runner.run_directory import goodput
from runner.run_directory.run import Run
from runner.storage import display_names

if TYPE_CHECKING:
    from runner.inspection.predictions import Predictions

_DECISIONS = (
    *(records.Rollback, records.FreshShuffle, records.Corruption),
    *(records.Stop, records.Drop),
)
_LONGEST_DIFF = 20_000  # characters
Rows = list[tuple[str, ...]]


def render(run: Run, *, refresh: int = 0) -> str:
    """Returns the page as HTML."""
    problems: list[str] = []
    found = _predictions(run, problems)
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
        sentences=[outcome.sentence(run)],
        problems=[*run.problems, *problems],
        sections=[(key, name) for key, (name, there) in sections.items() if there],
        figures=list(_figures(run)),
        chart_names=[chart["name"] for chart in charts],
        results=outcome.results(run),
        predictions=found,
        pictures=drawn,
        time=page.time_rows(run.time),
        line=timeline.of(run),
        config=_configuration(run),
        overview=_overview(run.overview),
        environment=_environment(run),
        again=again,
    )


def _predictions(run: Run, problems: list[str]) -> "Predictions | None":
    if not (run.directory / layout.PREDICTIONS).exists():
        return None
    from runner.inspection import predictions  # imports NumPy

    return predictions.of(run.directory, problems)


def _figures(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yields name, value and note of the key figures."""
    end = f"of {run.train_steps:,}" if run.train_steps else ""
    yield "step", f"{run.step:,}", end
    if (last := run.last) and (metric := outcome.decisive(run)):
        if run.best:
            best = run.best.metrics.get(metric)
            yield f"best {metric}", text.number(best), f"step {run.best.step:,}"
        yield f"last {metric}", text.number(last.metrics.get(metric)), f"step {last.step:,}"
    if run.time.starts:
        if not math.isnan(run.time.share):
            yield "time spent training", f"{run.time.share:.0%}", ""
        starts = text.counted(len(run.time.starts), "start")
        yield "duration", goodput.shown(run.time.seconds), starts
    rates = sorted(x for x in run.training.get("steps_per_second", ()) if x is not None)
    if rates:
        yield "steps per second", text.number(rates[len(rates) // 2]), "median"
    if isinstance(count := run.overview.get("parameters"), int):
        yield "parameters", text.short(count), ""


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
            text.number(row.get("trainable")),
            text.number(row.get("not_trainable")),
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
