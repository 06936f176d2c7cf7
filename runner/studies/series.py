"""A series of decisions with one error budget, in `decisions.json`. No TensorFlow.

Decision k may be wrong with a probability of `level / (k (k + 1))`. These sum to `level`. So with
this probability at most, any decision of a series is wrong, however many it has (Foster and Stine,
Alpha-investing, 2008, call this alpha spending).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files, layout
from runner.errors import ConfigError
from runner.studies import worker

_LOCK = "decisions.lock"
_WAIT_SECONDS = 0.05


class Question(NamedTuple):
    """What a decision is about.

    Attributes:
        baseline: The name of the configuration to improve.
        candidate: The name of the new one.
        seeds: The maximum number of seeds.
        margin: As for `race.Race`.
    """

    baseline: str
    candidate: str
    seeds: int
    margin: float


def share(number: int, level: float) -> float:
    """Returns the share of a decision, from 1, in the error budget of its series."""
    return level / (number * (number + 1))


def begin(folder: Path, question: Question, level: float) -> dict[str, Any]:
    """Returns the row of a decision, and adds it unless it exists.

    Args:
        folder: The directory of the series.
        question: What to decide.
        level: The error budget of the series.

    Returns:
        `number`, from 1, `series_level`, `level`, the question, and the `results` if it has ended.

    Raises:
        ConfigError: the series has another error budget.
    """
    with _rows(folder) as rows:
        if rows and rows[0]["series_level"] != level:
            raise ConfigError(
                f"{{level}}: the decisions in {folder} share an error budget of "
                f"{rows[0]['series_level']:g}. Pass that, or start another directory",
                level=f"{level:g}",
            )
        for row in rows:
            if question._asdict().items() <= row.items():
                return row
        number = len(rows) + 1
        row = {
            "number": number,
            "series_level": level,
            "level": share(number, level),
            **question._asdict(),
            "results": None,
        }
        rows.append(row)
        return row


def end(folder: Path, number: int, results: dict[str, Any]) -> None:
    """Records the results of a decision, unless another process already has."""
    with _rows(folder) as rows:
        rows[number - 1]["results"] = rows[number - 1]["results"] or results


@contextmanager
def _rows(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Provides the rows, and writes them if they have changed."""
    path = folder / layout.DECISIONS
    while True:
        with worker.alone(folder / _LOCK) as is_first:
            if is_first:
                before = files.read_json(path) or []
                rows = [dict(each) for each in before]
                yield rows
                if rows != before:
                    files.write_json(path, rows)
                return
        time.sleep(_WAIT_SECONDS)
