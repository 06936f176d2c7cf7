"""The curves of a run, each reduced to as many points as a page can show. No TensorFlow.

Training and validation share a chart. The metrics `training_loss` and `validation_loss`, and
`part/validation_loss` of an additional set, become curves of the chart `loss`.
"""

import collections
import itertools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.core import text
from runner.history import records
from runner.run_directory.run import Columns, Run

_COLORS = {"training": 0, "validation": 1}
_PALETTE = 8  # colors that the theme defines, the first ones
_POINTS = 40_000  # of all curves of a page
_MOST, _LEAST = 1_000, 40  # of one curve
_FIRST = ("loss", "accuracy", "learning_rate", "gradient_norm", "steps_per_second")

Chart = dict[str, Any]
Points = tuple[Sequence[float], Sequence[float]]
"""Steps and values. Lists, because importing NumPy takes as long as drawing 100,000 points."""


def charts(runs: Sequence[Run], *, first: Iterable[str] = ()) -> list[Chart]:
    """Returns the charts of one run, or of several together, for the page's script.

    Args:
        runs: One or more runs. With several, each curve's name starts with its run's name.
        first: The names of metrics whose charts come first.

    Returns:
        For each chart its `name`, and `series` with `name`, `x`, `y`, `color`, `dash`, and `bad`:
        pairs of a step and the name of a value that is not finite. A run has one color in all
        charts. For a single run, training and validation have one each.
    """
    colors = colors_of(runs)
    found: dict[str, list[tuple[int, str, Points]]] = collections.defaultdict(list)
    for number, run in enumerate(runs):
        for chart, name, points in _curves(run):
            found[chart].append((number, name, points))
    count = sum(map(len, found.values()))
    most = max(_LEAST, min(_MOST, _POINTS // max(count, 1)))
    order = dict.fromkeys([*(_place("", name, ())[0] for name in first), *_FIRST])
    names = [name for name in order if name in found] + sorted(found.keys() - order.keys())
    made = []
    for name in names:
        kinds = _kinds(kind for _, kind, _ in found[name])
        shown = []
        for number, kind, points in found[name]:
            if len(runs) == 1:
                drawn = {**series(kind, *points, most), "color": kinds[kind]}
            else:
                label = ": ".join(filter(None, [runs[number].name, kind]))
                dash = len(kinds) > 1 and kinds[kind]
                drawn = {**series(label, *points, most), "color": colors[number], "dash": int(dash)}
            shown.append(drawn)
        made.append({"name": name, "series": shown})
    return made


def colors_of(runs: Sequence[Run]) -> list[int]:
    """Returns the number of each run's color: that of the trial, else one that its name selects.

    A run that would get the color of an older one gets the next free color. So a run keeps its
    color when newer runs are added.
    """
    taken: dict[int, int] = {}
    for place in sorted(range(len(runs)), key=lambda each: _age(runs[each])):
        number = (runs[place].trial or {}).get("number")
        wanted = number if isinstance(number, int) else _named_color(runs[place])
        near = [wanted, *((wanted + more) % _PALETTE for more in range(_PALETTE))]
        free = itertools.chain(near, itertools.count(_PALETTE))
        taken[next(each for each in free if each not in taken)] = place
    return sorted(taken, key=lambda each: taken[each])


def _named_color(run: Run) -> int:
    return zlib.crc32(run.directory.name.encode()) % _PALETTE


def _age(run: Run) -> tuple[float, str]:
    """Returns a sort key that puts runs that were started earlier first."""
    started = run.attempts[0].get("started") if run.attempts else None
    return started if isinstance(started, int | float) else math.inf, str(run.directory)


def _kinds(names: Iterable[str]) -> dict[str, int]:
    """Numbers the kinds of curves in a chart. Training and validation have fixed numbers."""
    others = itertools.count(len(_COLORS))
    return {
        name: _COLORS[name] if name in _COLORS else next(others) for name in dict.fromkeys(names)
    }


def thinned(x: Sequence[float], y: Sequence[float], most: int) -> Points:
    """Reduces points [n] to at most `most`: each part's extremes, and the first and last point.

    A spike of a single step is preserved. The values must be finite.
    """
    count = len(x)
    if count <= most:
        return x, y
    parts = max((most - 2) // 2, 1)
    kept = {0, count - 1}
    for start, end in itertools.pairwise(part * count // parts for part in range(parts + 1)):
        values = y[start:end]
        kept |= {start + values.index(min(values)), start + values.index(max(values))}
    chosen = sorted(kept)
    return [x[place] for place in chosen], [y[place] for place in chosen]


def _curves(run: Run) -> Iterable[tuple[str, str, Points]]:
    """Yields chart, name and points of each curve."""
    sets = run.evaluation_sets
    for name, points in _of_columns(run.training):
        yield *_place("training", name, sets), points
    for name, points in _of_columns(run.system):
        if name != "time":
            yield f"machine: {name}", "", points
    sources = {"": run.history, **run.evaluators}
    for source, rows in sources.items():
        for name, points in _of_evaluations(rows).items():
            chart, part = _place("validation", name, sets)
            yield chart, f"{part} ({source})" if source else part, points


def _of_columns(columns: Columns) -> Iterable[tuple[str, Points]]:
    """Yields the points of each column where it has a value."""
    steps = columns.get("step", ())
    for name, values in columns.items():
        if name != "step":
            known = [value is not None for value in values]
            yield name, (_where(known, steps), _where(known, values))


def _of_evaluations(rows: Iterable[records.Record]) -> Mapping[str, Points]:
    own = [row for row in rows if isinstance(row, records.Evaluation) and row.is_own]
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in sorted(own, key=lambda each: each.step):
        for name, value in row.metrics.items():
            x, y = found.setdefault(name, ([], []))
            x.append(row.step)
            y.append(value)
    return found


def _place(kind: str, name: str, sets: Sequence[str]) -> tuple[str, str]:
    """Returns the chart of a metric, and the name of its curve there."""
    before, slash, rest = name.partition("/")
    if slash and before in sets:
        chart, _ = _place("validation", rest, ())
        return chart, before
    if slash:
        return before, rest
    for prefix in ("training_", "validation_"):
        if name == f"{prefix}loss":
            return "loss", kind or prefix[:-1]
    return name, kind


def series(name: str, x: Sequence[float], y: Sequence[float], most: int) -> dict[str, Any]:
    """Returns a curve of at most `most` points, for the script."""
    finite = list(map(math.isfinite, y))
    strange = [not each for each in finite]
    kept_x, kept_y = thinned(_where(finite, x), _where(finite, y), most)
    return {
        "name": name,
        "x": list(map(int, kept_x)),
        "y": list(map(_short, kept_y)),
        "bad": [
            [int(step), _named(value)]
            for step, value in zip(_where(strange, x), _where(strange, y), strict=True)
        ][:50],
        "of": len(x),
    }


def _where(chosen: Sequence[bool], values: Sequence[float]) -> Sequence[float]:
    """Returns the chosen ones of some values."""
    return values if all(chosen) else list(itertools.compress(values, chosen))


def _short(value: float) -> float:
    """Rounds to six digits, more than a chart shows."""
    return float(f"{value:.6g}")


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "infinity" if value > 0 else "-infinity"


def values(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Returns metrics with their values as text, sorted by name."""
    return [(name, text.number(value)) for name, value in sorted(metrics.items())]
