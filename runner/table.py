"""Text in columns. No TensorFlow."""

import math
from collections.abc import Iterable, Sequence

from runner import records


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
    rows: Iterable[records.Row],
    left_out: Iterable[records.LeftOut] = (),
    *,
    best: records.Row | None = None,
) -> str:
    """A line a checkpoint, by steps: its metrics, or why it has none.

    Args:
        rows: Evaluations.
        left_out: Checkpoints that could not be evaluated, or not to the end.
        best: The row to mark.
    """
    rows = list(rows)
    names = sorted({name for row in rows for name in row.metrics})
    head = ["step", *names, "seconds"]
    lines = {
        (row.step, row.checkpoint): [
            f"{row.step:,}",
            *(_value(row.metrics.get(name)) for name in names),
            f"{row.seconds:.1f}",
        ]
        for row in rows
    }
    notes = {(row.step, row.checkpoint): "  best" for row in rows if row is best}
    for each in left_out:
        key = each.step, each.checkpoint
        lines.setdefault(key, [f"{each.step:,}", *[""] * (len(names) + 1)])
        notes[key] = f"{notes.get(key, '')}  {each.reason}"
    order = sorted(lines)
    first, *others = aligned([head, *(lines[key] for key in order)], left=0)
    marked = [line + notes.get(key, "") for key, line in zip(order, others, strict=True)]
    return "\n".join([first, *marked])


def _value(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.4g}" if math.isfinite(number) else str(number)
