"""The mode `runs`: a table of all runs below a directory. No TensorFlow."""

import collections
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import console, text
from runner.inspection import rows, runs_table
from runner.inspection.columns import Columns, Value
from runner.inspection.expression import Expression
from runner.inspection.rows import Row

_SHOWN = 200  # on a terminal


class Wanted(NamedTuple):
    """The selection of runs and columns to show.

    Attributes:
        sort: Columns to sort by, in order of priority. A leading `-` sorts the highest first.
        where: An expression that selects the runs to show, or empty for all.
        columns: Names of columns, and patterns. If empty, the most informative columns.
        output: The file to write instead of showing a table.
    """

    sort: Sequence[str] = ()
    where: str = ""
    columns: Sequence[str] = ()
    output: Path | None = None


def runs(root: Path, wanted: Wanted) -> dict[str, Any]:
    """Shows or writes the table of the runs below `root`, and returns a short summary.

    Raises:
        ConfigError: there is no such directory, or a name is no column.
    """
    if wanted.output:
        runs_table.check(wanted.output)
    condition = Expression(wanted.where) if wanted.where else None
    found = rows.below(root)
    kept = list(found)
    if found:
        columns = Columns(found)
        names = columns.expanded(wanted.columns)
        if condition:
            kept = _filtered(found, condition, columns)
        kept = _sorted(kept, wanted.sort, columns)
        _give(kept, columns if names else Columns(kept), names, wanted.output)
    else:
        _say(f"no runs in {root}")
    states = collections.Counter(row.state for row in kept)
    return {
        "runs": len(kept),
        "of": len(found),
        "states": dict(sorted(states.items())),
        "model_dir": str(root),
        **({"output": str(wanted.output)} if wanted.output else {}),
    }


def _filtered(found: Sequence[Row], condition: Expression, columns: Columns) -> list[Row]:
    values = {name: columns.value(name, "where") for name in condition.names}
    return [row for row in found if condition.holds(lambda name, row=row: values[name](row))]  # type: ignore[misc]


def _sorted(found: list[Row], names: Sequence[str], columns: Columns) -> list[Row]:
    """Sorts by each column in turn, with runs without a value at the end."""
    for name in reversed(names):
        value = columns.value(name.removeprefix("-"), "sort")
        there = [row for row in found if _sortable(value(row))]
        absent = [row for row in found if not _sortable(value(row))]
        there.sort(key=lambda row, value=value: _order(value, row), reverse=name.startswith("-"))  # type: ignore[misc]
        found = there + absent
    return found


def _sortable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _order(value: Value, row: Row) -> tuple[bool, Any]:
    """Returns a sort key that puts numbers before text."""
    found = value(row)
    is_number = isinstance(found, int | float)
    return not is_number, found if is_number else str(found)


def _give(kept: Sequence[Row], columns: Columns, names: Sequence[str], output: Path | None) -> None:
    if output:
        runs_table.write(output, kept, columns, names or runs_table.everything(columns))
        console.say(f"{text.counted(len(kept), 'run')} written to {output}")
        return
    if not kept:
        _say("no run for which the condition holds")
        return
    out = console.answers()
    first, more = (names, []) if names else runs_table.shown(columns, kept)
    most = _SHOWN if out.is_live else len(kept)
    out.say(runs_table.render(kept[:most], columns, first, more, width=out.width))
    if rest := len(kept) - most:
        out.say(f"and {rest:,} more: --where and --sort choose, --output=runs.csv has them all")


def _say(line: str) -> None:
    console.answers().say(line)
