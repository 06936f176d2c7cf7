"""Plots a study: for each metric a box, violin, bar and trajectory plot, as SVG and PNG.

The same trials produce the same SVG, byte for byte. The kinds follow PyABSA's metric plots. Here
every run is also drawn as a point, because a box around five values hides more than it shows. No
TensorFlow.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import figure
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from runner.core import files
from runner.run_directory.state import FINISHED
from runner.studies import across
from runner.studies.statistics import Spread
from runner.studies.summary import At, Configuration, Summary

MOST = 20
"""The number of configurations to draw, the best first."""

_MARGIN = 0.1  # inches, like the next constant
_LEFT = 0.9  # for the axis of any metric
_FORMATS: Mapping[str, Mapping[str, str | None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def draw(folder: Path, found: Summary, metrics: Sequence[str] = ()) -> list[Path]:
    """Plots each metric at the trials' best evaluations, and over the steps.

    Args:
        folder: The target directory of `<metric>-<kind>.svg` and `.png`. A slash in a metric's name
            becomes a dash.
        found: The summary of the study.
        metrics: The metrics to plot, or all if empty.

    Returns:
        The files.
    """
    paths = []
    boxes: dict[Any, Bbox] = {}  # computing a box takes as long as drawing; all metrics share it
    for metric in metrics or found.metrics:
        data = _data(found, metric)
        shown = data.shown
        for kind, paint in KINDS.items() if shown else ():
            width = max(4.0, 1.5 + 0.6 * len(shown))
            drawn = figure.Figure(figsize=(width, 3.5), dpi=100)
            drawn.subplots_adjust(left=_LEFT / width)
            axes = drawn.subplots()
            paint(axes, data)
            axes.set_ylabel(metric)
            axes.grid(axis="y", color="0.9")
            axes.set_axisbelow(True)
            name = f"{metric.replace('/', '-')}-{kind}"
            names = kind, *(each.name for each in shown)
            if names not in boxes:
                boxes[names] = _box_around(drawn)
            paths += _save(drawn, folder / name, boxes[names])
    return paths


def draw_profiles(path: Path, rows: Sequence[across.Across], metric: str) -> list[Path]:
    """Draws the performance profiles of configurations over several data sets, with their bands.

    Args:
        path: The target path without `.svg` and `.png`.
        rows: The configurations.
        metric: The name of the metric, for the axis.

    Returns:
        The files.
    """
    scores = [score for each in rows for runs in each.scores.values() for score in runs]
    thresholds = np.linspace(min(scores), max(scores), 101)
    drawn = figure.Figure(figsize=(5.0, 3.5), dpi=100)
    axes = drawn.subplots()
    for each in rows[:MOST]:
        found = across.profile(each.scores, thresholds.tolist())
        (line,) = axes.plot(thresholds, [point.value for point in found], label=each.name)
        low, high = [point.low for point in found], [point.high for point in found]
        axes.fill_between(thresholds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel(metric)
    axes.set_ylabel("share of runs above")
    axes.legend(fontsize="small")
    return _save(drawn, path, _box_around(drawn))


def _box_around(drawn: figure.Figure) -> Bbox:
    """Returns the area to save, in inches: the drawing, and room for the axis of any metric."""
    box = drawn.get_tightbbox()
    return Bbox.union([box, Bbox.from_extents(_MARGIN, box.y0, box.x1, box.y1)]).padded(_MARGIN)


def _save(drawn: figure.Figure, path: Path, box: Bbox) -> list[Path]:
    written = []
    for kind, metadata in _FORMATS.items():
        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "runner", "svg.fonttype": "none"}):
            drawn.savefig(buffer, format=kind, metadata=metadata, bbox_inches=box)
        written.append(path.with_name(f"{path.name}.{kind}"))
        with files.whole(written[-1]) as file:
            file.write(buffer.getvalue())
    return written


class _Data(NamedTuple):
    """The data of a metric's plots: configurations with their values, means and colors."""

    metric: str
    shown: Sequence[Configuration]
    rows: Sequence[np.ndarray]
    spreads: Sequence[Spread]
    colors: Sequence[str]


def _colors(found: Summary) -> Mapping[str, str]:
    """Returns a color for each configuration, which it keeps when further ones are trained.

    Colors follow the order of the configurations' first trials, not their ranks.
    """
    ordered = sorted(found.configurations, key=lambda each: min(one.number for one in each.trials))
    return {each.trials[0].configuration: f"C{n}" for n, each in enumerate(ordered)}


def _data(found: Summary, metric: str) -> _Data:
    """Returns the metric at the best evaluations, or at the last ones if no metric decides.

    The values are those whose means the tables show.
    """
    at: At = "best" if found.objective.metric else "last"
    shown = [each for each in found.configurations[:MOST] if metric in getattr(each, at)]
    rows = [[found.counts_as(one, metric, at) for one in each.counted] for each in shown]
    arrays = [np.array([value for value in row if math.isfinite(value)]) for row in rows]
    spreads = [getattr(each, at)[metric] for each in shown]
    colors = _colors(found)
    own = [colors[each.trials[0].configuration] for each in shown]
    return _Data(metric, shown, arrays, spreads, own)


def _box(axes: Axes, data: _Data) -> None:
    rows = data.rows
    axes.boxplot(rows, widths=0.5, showfliers=False, medianprops={"color": "tab:red"})
    _points(axes, rows)
    _name(axes, data.shown)


def _violin(axes: Axes, data: _Data) -> None:
    rows = data.rows
    wide = [n for n, row in enumerate(rows) if np.ptp(row)]  # the others have no density
    if wide:
        axes.violinplot([rows[n] for n in wide], positions=[n + 1 for n in wide], showmedians=True)
    _points(axes, rows)
    _name(axes, data.shown)


def _bar(axes: Axes, data: _Data) -> None:
    """Draws means with their intervals. The axis starts at zero only if runs are near it."""
    rows, spreads = data.rows, data.spreads
    places = np.arange(1, len(rows) + 1)
    means = [spread.mean for spread in spreads]
    intervals = [
        (spread.mean, spread.mean) if math.isnan(spread.low) else (spread.low, spread.high)
        for spread in spreads
    ]
    lengths = abs(np.array(intervals).T - means)
    axes.bar(places, means, 0.6, yerr=lengths, capsize=4, alpha=0.6)
    _points(axes, rows)
    ends = [end for interval in intervals for end in interval]
    low, high = min([*ends, *map(np.min, rows)]), max([*ends, *map(np.max, rows)])
    room = 0.25 * (high - low) or 0.05 * abs(high) or 1.0
    if low - room > 0 or high + room < 0:
        axes.set_ylim(low - room, high + room)
    _name(axes, data.shown)


def _trajectory(axes: Axes, data: _Data) -> None:
    """Plots a metric's mean and range at the steps that all runs of a configuration share."""
    metric = data.metric
    for each, color in zip(data.shown, data.colors, strict=True):
        runs = [
            {step: metrics[metric] for step, metrics in one.evaluations if metric in metrics}
            for one in each.counted
            if one.state in FINISHED or not each.is_finished
        ]
        runs = [run for run in runs if run]
        steps = sorted(set.intersection(*map(set, runs))) if runs else []
        if not steps:
            continue
        values = np.array([[run[step] for step in steps] for run in runs])
        marker, label = "o" if len(steps) < 15 else "", each.name
        if len(runs) < len(each.counted):
            label += f" ({len(runs)} of {len(each.counted)} runs)"
        style: dict[str, Any] = {"color": color, "marker": marker, "markersize": 3}
        axes.plot(steps, values.mean(0), label=label, **style)
        axes.fill_between(steps, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
    axes.set_xlabel("step")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


def _points(axes: Axes, rows: Sequence[np.ndarray]) -> None:
    """Draws each run as a point, spread horizontally so that points do not overlap."""
    for place, row in enumerate(rows, start=1):
        aside = np.linspace(-0.08, 0.08, len(row)) if len(row) > 1 else [0.0]
        axes.plot(place + np.asarray(aside), row, "o", color="0.25", markersize=3, zorder=3)


def _name(axes: Axes, shown: Sequence[Configuration]) -> None:
    turned = 30 if max(len(each.name) for each in shown) > 8 else 0
    places = range(1, len(shown) + 1)
    side = "right" if turned else "center"
    axes.set_xticks(places, [each.name for each in shown], rotation=turned, ha=side)
    axes.set_xlim(0.4, len(shown) + 0.6)
    heads = list(shown[0].values)
    if len(heads) == 1:
        axes.set_xlabel(heads[0])


KINDS: Mapping[str, Callable[[Axes, _Data], None]] = {
    "box": _box,
    "violin": _violin,
    "bar": _bar,
    "trajectory": _trajectory,
}
