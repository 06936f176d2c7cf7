"""Text in columns. No TensorFlow."""

import math
from collections.abc import Iterable, Sequence

from runner.history import records

_BEST = "  best"


def aligned(lines: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Lines whose cells stand below each other; the first `left` columns begin in line."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def evaluations(
    rows: Iterable[records.Evaluation],
    left_out: Iterable[records.LeftOut] = (),
    *,
    best: records.Evaluation | None = None,
    first: Sequence[str] = (),
    width: float = math.inf,
) -> str:
    """A line a checkpoint, by steps: its metrics, or why it has none.

    Args:
        rows: Evaluations.
        left_out: Checkpoints that could not be evaluated, or not to the end.
        best: The row to mark.
        first: Metrics that come first, and are shown in any case.
        width: What the columns are to fit into; metrics that do not are left out.
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
    marked = [line + notes.get(key, "") for key, line in zip(order, others, strict=True)]
    return "\n".join([top, *marked])


def _cells(rows: Iterable[records.Evaluation], names: Sequence[str], *more: str) -> list[list[str]]:
    """The head and a line for each row; `more` are columns without values."""
    lines = [["step", *names, *more, "seconds"]]
    for row in rows:
        values = [_value(row.metrics.get(name)) for name in names]
        lines.append([f"{row.step:,}", *values, *[""] * len(more), f"{row.seconds:.1f}"])
    return lines


def _value(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.4g}" if math.isfinite(number) else str(number)
