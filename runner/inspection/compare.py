"""The mode `compare`: shows whether and how runs differ. No TensorFlow."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import cells

from runner.core import console, files
from runner.errors import DifferError
from runner.history import records
from runner.inspection import differences, parting, rows
from runner.inspection.differences import Section
from runner.reporting import table
from runner.run_directory.run import Run
from runner.storage import display_names

Curves = dict[str, list[tuple[int, float]]]
"""The steps and values of each metric's evaluations."""

_CUT = 48  # characters of a value
_LONGEST = 60  # characters of a name
_SHOWN = 30  # differences of a section
_CURVES = 4
_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 40  # points of a curve


def compare(folders: Sequence[Path], output: Path | None = None) -> dict[str, Any]:
    """Shows how runs differ.

    Args:
        folders: Two or more.
        output: A .json file for all results.

    Returns:
        `equal` and all differences, if they are equal.

    Raises:
        ConfigError: one is not the directory of a run.
        DifferError: they differ. The error contains the same results.
    """
    runs = [Run(folder, strict=False) for folder in folders]
    found = [rows.of(run) for run in runs]
    sections = differences.sections(found, runs)
    pairs = [parting.of(runs[0], other) for other in runs[1:]]
    out = console.answers()
    curves = [_evaluations(run) for run in runs]
    deciding = {row.metric for row in found}
    for line in _lines(folders, sections, _curves(folders, curves, deciding), pairs):
        out.say(line)
    results = _results(folders, sections, pairs)
    if output:
        files.write_json(output, {**results, "curves": _series(curves)})
    if results["equal"]:
        return results
    said = ", ".join(results["differ_in"])
    raise DifferError(f"the runs differ: {said}", results)


def _results(
    folders: Sequence[Path], sections: Sequence[Section], pairs: Sequence[parting.Parted]
) -> dict[str, Any]:
    differ_in = [each.name for each in sections if each.counts and each.differences]
    if not all(pair.is_same for pair in pairs):
        differ_in.append("training")
    return {
        "equal": not differ_in,
        "runs": [str(folder) for folder in folders],
        "differ_in": differ_in,
        "parts_at": [pair.step for pair in pairs],
        "same_until": [pair.same_until for pair in pairs],
        "training": [[*pair.lines, *pair.before] for pair in pairs],
        "differences": {
            each.name: [dataclasses.asdict(one) for one in each.differences]
            for each in sections
            if each.differences
        },
    }


def _lines(
    folders: Sequence[Path],
    sections: Sequence[Section],
    curves: Iterator[str],
    pairs: Sequence[parting.Parted],
) -> Iterator[str]:
    names = [_name(folder) for folder in folders]
    for section in sections:
        if section.differences:
            yield "\n".join([*_table(section, names), ""])
    if same := [each.name for each in sections if not each.differences]:
        yield f"the same: {', '.join(same)}\n"
    yield from curves
    for name, pair in zip(names[1:], pairs, strict=True):
        yield f"{names[0]} and {name}: {pair.sentence}"
        yield from (f"  {line}" for line in pair.lines)
        if pair.before:
            when = "" if pair.step is None else f" before step {pair.step:,}"
            yield f"  different{when}: {'; '.join(pair.before)}"


def _table(section: Section, names: Sequence[str]) -> list[str]:
    """Formats a line for each difference: its name, the value of each run, and the distance."""
    shown = section.differences[:_SHOWN]
    lines = [[section.name, *names, ""]]
    lines += [[_path(each.name), *map(_cut, each.values), each.note] for each in shown]
    made = table.aligned(lines, left=len(lines[0]))
    if more := len(section.differences) - len(shown):
        made.append(f"and {more:,} more: --output=differences.json has them all")
    return made


def _name(folder: Path) -> str:
    """Returns a run's name. For a copy of a URL, it is the URL."""
    return _clean(display_names.of(folder))


def _path(name: str) -> str:
    """Shortens a name at its start, as its end is the most specific."""
    name = _clean(name)
    return name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"


def _cut(cell: str) -> str:
    cell = _clean(cell)
    return cell if len(cell) <= _CUT else f"{cell[: _CUT - 3]}..."


def _clean(text: str) -> str:
    """Replaces characters that would control the terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _common(curves: Sequence[Curves]) -> list[str]:
    """Returns the metrics that all runs have."""
    return [name for name in curves[0] if all(name in each for each in curves)]


def _series(curves: Sequence[Curves]) -> dict[str, Any]:
    """Returns each run's steps and values of the metrics that all runs have, for JSON."""
    return {
        name: [
            [[step, *records.plain({"": x}).values()] for step, x in one[name]] for one in curves
        ]
        for name in _common(curves)
    }


def _evaluations(run: Run) -> Curves:
    found: Curves = {}
    for each in run.evaluations:
        for name, value in each.metrics.items():
            found.setdefault(name, []).append((each.step, value))
    return found


def _curves(
    folders: Sequence[Path], curves: Sequence[Curves], deciding: Collection[str]
) -> Iterator[str]:
    """Yields small plots of the evaluations that differ, with one scale for all runs."""
    names = [_name(folder) for folder in folders]
    width = max(map(cells.cell_len, names))
    differing = [name for name in _common(curves) if len({str(one[name]) for one in curves}) > 1]
    for name in sorted(differing, key=lambda name: name not in deciding)[:_CURVES]:
        values = [x for one in curves for _, x in one[name] if math.isfinite(x)]
        steps = [step for one in curves for step, _ in one[name]]
        if not values or len(set(steps)) < 2:
            continue
        extent, low, high = (min(steps), max(steps)), min(values), max(values)
        yield f"{name}, from {low:.4g} to {high:.4g}, step {extent[0]:,} to {extent[1]:,}"
        for run, one in zip(names, curves, strict=True):
            yield f"  {run:{width}}  {_bars(one[name], extent, (low, high))}"
        yield ""


def _bars(
    points: Sequence[tuple[int, float]], steps: tuple[int, int], values: tuple[float, float]
) -> str:
    line = [" "] * _POINTS
    for step, value in points:
        at = round((step - steps[0]) / (steps[1] - steps[0]) * (_POINTS - 1))
        share = (value - values[0]) / ((values[1] - values[0]) or 1)
        line[at] = _BARS[round(share * (len(_BARS) - 1))] if math.isfinite(value) else "×"  # noqa: RUF001
    return "".join(line).rstrip()
