"""A table of runs, for a terminal and as a file. No TensorFlow."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import cells
from rich.text import Text

from runner.core import files, text
from runner.errors import ConfigError
from runner.history import records
from runner.inspection import resolved
from runner.inspection.columns import FACTS, Columns
from runner.inspection.rows import Row
from runner.run_directory.state import State

FORMATS = (".csv", ".json", ".jsonl", ".parquet")
"""The suffixes of the files that a table can be written to."""

_GAP = "  "
_CUT = 40  # characters of a cell
_METRICS = 3  # deciding metrics, at most
_BAD = (State.DAMAGED, State.FAILED, State.REJECTED, State.DIVERGED)
_HEADS = {"seconds": "time", "steps_per_second": "steps/s"}


def shown(columns: Columns, rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Returns the most informative columns: the ones to show first, and more if they fit."""
    deciding = dict.fromkeys(row.metric for row in rows if row.metric)
    names = list(deciding)[:_METRICS] or columns.metrics["last"][:_METRICS]
    found = ["run", "state", "step"]
    for name in names:
        found += [f"best.{name}"] if name in columns.metrics["best"] else []
        found += [f"last.{name}"] if name in columns.metrics["last"] else []
        found += [f"test.{each}" for each in columns.metrics["test"] if each == f"test/{name}"]
    if not names:
        found += [f"train.{name}" for name in columns.metrics["train"] if "loss" in name][:1]
    found += ["seconds", "steps_per_second"]
    found += ["goodput"] if any(row.goodput is not None for row in rows) else []
    last = [name for name in ("tags", "notes", "reason") if any(FACTS[name](row) for row in rows)]
    return found, [*columns.shown, *last]


def render(
    rows: Sequence[Row],
    columns: Columns,
    names: Sequence[str],
    more: Sequence[str] = (),
    *,
    width: float = math.inf,
) -> Text:
    """Formats a line for each run.

    Args:
        rows: The runs.
        columns: The meanings of their columns.
        names: The columns to show.
        more: Further columns, shown as far as they fit.
        width: The width of the terminal, in characters.
    """
    found = [_cells(rows, columns, name) for name in names]
    for name in more:
        one = _cells(rows, columns, name)
        room = width - sum(_width(each) + len(_GAP) for each in found)
        if _width(one) <= room:
            found.append(one)
    aligned = [_aligned(each) for each in found]
    head, *lines = (_GAP.join(line).rstrip() for line in zip(*aligned, strict=True))
    made = Text(head, style="bold")
    for row, line in zip(rows, lines, strict=True):
        made.append(f"\n{line}", style="not bold red" if row.state in _BAD else "not bold")
    if left := len(more) - (len(found) - len(names)):
        made.append(
            f"\n{text.counted(left, 'more column')} not shown: see --columns and --output",
            style="not bold dim",
        )
    return made


def _cells(rows: Sequence[Row], columns: Columns, name: str) -> list[str]:
    value = columns.value(name, "columns")
    form = _form(name)
    return [_head(name, columns), *(_clean(form(value(row))) for row in rows)]


def _head(name: str, columns: Columns) -> str:
    at, _, metric = name.partition(".")
    if metric in columns.metrics.get(at, ()):
        return metric if metric.startswith(f"{at}/") else f"{at} {metric}"
    return _HEADS.get(name) or columns.short.get(name, name)


def _form(name: str) -> Callable[[Any], str]:
    """Returns the function that formats values of a column."""
    if name == "seconds":
        return text.duration
    if name in ("step", "best_step", "last_step"):
        return lambda value: "-" if value is None else f"{value:,}"
    if name == "steps_per_second":
        return pace
    if name == "goodput":
        return lambda value: "-" if value is None else f"{value:.0%}"
    return _plain


def pace(rate: float | None) -> str:
    """Formats steps per second: `3,290`, `12.5`, `0.0123`."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _plain(value: Any) -> str:
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return resolved.shown(value)


def _clean(cell: str) -> str:
    """Formats a cell on one line, without terminal control characters, and not too long."""
    if not cell.isprintable():
        cell = "".join(each if each.isprintable() else "?" for each in cell)
    return cell if len(cell) <= _CUT else f"{cell[: _CUT - 3]}..."


def _width(column: Sequence[str]) -> int:
    return max(map(_length, column))


def _length(cell: str) -> int:
    """Returns the width of a cell on a terminal, which shows some characters twice as wide."""
    return len(cell) if cell.isascii() else cells.cell_len(cell)


def _aligned(column: Sequence[str]) -> list[str]:
    """Pads cells to one width, with numbers aligned to the right."""
    width = _width(column)
    numbers = all(cell[:1] in "-0123456789ni" for cell in column[1:])
    pads = [" " * (width - _length(cell)) for cell in column]
    both = zip(column, pads, strict=True)
    return [f"{pad}{cell}" if numbers else f"{cell}{pad}" for cell, pad in both]


def everything(columns: Columns) -> list[str]:
    """Returns all columns of a file: every metric, and the configuration values that differ."""
    metrics = [f"{at}.{name}" for at, names in columns.metrics.items() for name in names]
    return [*FACTS, *metrics, *(each for each in columns.special if each != "run.seed")]


def check(path: Path) -> None:
    """Raises ConfigError if a table cannot be written to a file of this name."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"--output={path}: its name must end in {', '.join(FORMATS)}")


def write(path: Path, rows: Sequence[Row], columns: Columns, names: Sequence[str]) -> None:
    """Writes a table to a file atomically, with the column names that `--columns` takes."""
    values = {name: columns.value(name, "columns") for name in names}
    if path.suffix in (".json", ".jsonl"):
        found = [{name: _json(of(row)) for name, of in values.items()} for row in rows]
        if path.suffix == ".jsonl":
            files.write_json_lines(path, found)
        else:
            files.write_json(path, found)
        return
    from runner.reporting import arrow  # imports pyarrow

    cells = {name: [_scalar(of(row)) for row in rows] for name, of in values.items()}
    arrow.write(path, arrow.table(cells, as_text=str))


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return records.plain({"": value})[""]
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _scalar(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, (list, tuple, Mapping)) else value
