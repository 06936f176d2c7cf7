"""Writes complete CSV tables such as `loggers/train.csv`, with the standard library."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.core import files, layout
from runner.run_directory.loggers.rows import SYSTEM, TRAINING, Row

NAME = "csv"
EVALUATIONS = "evaluations"


def write(folder: Path, rows: Iterable[Row]) -> None:
    """Writes a table each for the training rows, for evaluations and tests, and for system metrics.

    Args:
        folder: The run's.
        rows: All of its rows, by step.
    """
    tables: dict[str, list[Row]] = {}
    for row in rows:
        kind = row.source if row.source in (TRAINING, SYSTEM) else EVALUATIONS
        tables.setdefault(kind, []).append(row)
    for kind, found in tables.items():
        files.write_text(folder / layout.LOGGERS / f"{kind}.csv", _table(kind, found))


def _table(kind: str, rows: Sequence[Row]) -> str:
    """Returns a header and a line for each row. A missing metric leaves its cell empty."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    first = ["source", "step", "time"] if kind == EVALUATIONS else ["step", "time"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*first, *names])
    for row in rows:
        head = [row.source] if kind == EVALUATIONS else []
        head += [str(row.step), f"{row.time:.3f}"]
        table.writerow([*head, *(row.values.get(name, "") for name in names)])
    return text.getvalue()
