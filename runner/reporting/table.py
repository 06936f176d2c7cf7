"""Text in columns. No TensorFlow."""

import math
from collections.abc import Iterable, Sequence

from rich import console, table
from rich.text import Text

from runner.history import records

_BEST = "  best"
_WIDEST = 10_000


def aligned(lines: Sequence[Sequence[str]], *, left: int, width: float = math.inf) -> list[str]:
    """Aligns cells in columns. The first `left` columns are left-aligned.

    Left-aligned cells are cut so that the lines fit into a terminal of `width` characters.
    """
    grid = table.Table.grid(padding=(0, 2, 0, 0))
    for index in range(len(lines[0])):
        right = index >= left
        grid.add_column(justify="right" if right else "left", no_wrap=right)
    for line in lines:
        grid.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in line))
    columns = int(width) if math.isfinite(width) else _WIDEST
    screen = console.Console(width=columns, color_system=None, force_jupyter=False)
    with screen.capture() as capture:
        screen.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]


def evaluations(
    rows: Iterable[records.Evaluation],
    left_out: Iterable[records.LeftOut] = (),
    *,
    best: records.Evaluation | None = None,
    first: Sequence[str] = (),
    width: float = math.inf,
) -> Text:
    """Formats a line for each checkpoint, by step: its metrics, or why it has none.

    Args:
        rows: The evaluations.
        left_out: Checkpoints that could not be evaluated, or not completely.
        best: The row to mark.
        first: Metrics that come first, and are always shown.
        width: The width of the terminal, in characters. Metrics that do not fit are left out.
    """
    rows = list(rows)
    known = {name for row in rows for name in row.metrics}
    names = [name for name in first if name in known]
    names += sorted(known - set(names))
    cells = _cells(rows, names)
    while len(names) > max(len(first), 1) and len(aligned(cells, left=0)[0]) > width - len(_BEST):
        names.pop()
        cells = _cells(rows, names, "...")
    head, *lines = cells
    by_key = {(row.step, row.checkpoint): line for row, line in zip(rows, lines, strict=True)}
    notes = {(row.step, row.checkpoint): _BEST for row in rows if row is best}
    for each in left_out:
        key = each.step, each.checkpoint
        by_key.setdefault(key, [f"{each.step:,}", *[""] * (len(head) - 1)])
        notes[key] = f"{notes.get(key, '')}  {each.reason}"
    order = sorted(by_key)
    top, *others = aligned([head, *(by_key[key] for key in order)], left=0)
    text = Text(top, style="bold")
    for key, line in zip(order, others, strict=True):
        note = notes.get(key, "")
        text.append(f"\n{line}{note}", style="not bold green" if note == _BEST else "not bold")
    return text


def _cells(rows: Iterable[records.Evaluation], names: Sequence[str], *more: str) -> list[list[str]]:
    """Returns the head and a line for each row. `more` are columns without values."""
    lines = [["step", *names, *more, "seconds"]]
    for row in rows:
        values = [_value(row.metrics.get(name)) for name in names]
        lines.append([f"{row.step:,}", *values, *[""] * len(more), f"{row.seconds:.1f}"])
    return lines


def _value(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.4g}" if math.isfinite(number) else str(number)
