"""Compares two runs bit by bit: newest checkpoints, rows and best checkpoints.

    parts = comparison.compare(Path("runs/once"), Path("runs/killed"))
    print(comparison.render(parts))

Times are not compared, nor the parts of checkpoints that `tensors` leaves out.
"""

import collections
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import layout
from runner.errors import RunnerError
from runner.history import records
from runner.run_directory.run import Run
from runner.run_directory.verification import tensors

TRAINING_ROWS, EVALUATIONS, DECISIONS = "training rows", "evaluations", "decisions"

_NOTHING = object()
_TIMES = ("time", "seconds", *records.PACE)


def compare(first: Path, second: Path) -> list[tensors.Part]:
    """Compares the runs in two directories, each with a saved last checkpoint.

    Raises:
        RunnerError: one of them has no checkpoint.
    """
    checkpoints = tensors.compare(_newest(first), _newest(second))
    runs = Run(first), Run(second)
    old, new = (by_kind(run.training_rows, run.history) for run in runs)
    return [
        *checkpoints,
        *(
            compare_rows(kind, old[kind], new[kind])
            for kind in old
            if kind == TRAINING_ROWS or old[kind] or new[kind]
        ),
        *_best(*runs),
    ]


def by_kind(
    training: Sequence[Mapping[str, Any]], history: Sequence[records.Record]
) -> dict[str, list[Mapping[str, Any]]]:
    """Groups the rows of a run by kind."""
    # The number of rate changes depends on the number of checkpoints.
    rows = [row.as_dict() for row in history if not isinstance(row, records.RateChange)]
    return {
        TRAINING_ROWS: list(training),
        EVALUATIONS: [row for row in rows if "metrics" in row],
        DECISIONS: [row for row in rows if "metrics" not in row],
    }


def compare_rows(
    kind: str, first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> tensors.Part:
    """Compares the rows of two logs, by step."""
    old, new = _by_step(first), _by_step(second)
    differences: list[tensors.Difference] = []
    for step, again in sorted(old.keys() | new.keys()):
        pair = old.get((step, again)), new.get((step, again))
        if pair[0] is not None and pair[1] is not None:
            differences.extend(_fields(step, pair[0], pair[1]))
            continue
        whose = "first" if pair[1] is None else "second"
        what = f"twice in the {whose} run" if again else f"only in the {whose} run"
        differences.append(tensors.Difference(f"step {step}", what, step, missing=True))
    if old.keys() == new.keys() and list(old) != list(new):
        differences.append(tensors.Difference("order", "the same steps in another order"))
    return tensors.Part(kind, len(old.keys() | new.keys()), tuple(differences))


def differing(parts: Iterable[tensors.Part]) -> dict[str, tensors.Part]:
    """Returns the parts that differ, by kind."""
    return {part.kind: part for part in parts if part.differences}


def render(parts: Sequence[tensors.Part]) -> str:
    """Formats a table with a line for each part, then the first difference of each part."""
    lines = [f"{'':24}{'compared':>10}{'differ':>10}{'bits':>12}"]
    for part in parts:
        lines.append(f"{part.kind:24}{part.compared:>10,}{part.differing:>10,}{part.bits:>12,}")
    for kind, part in differing(parts).items():
        lines.append(f"first of the {kind}: {part.differences[0]}")
    return "\n".join(lines)


def _newest(model_dir: Path) -> Path:
    from runner.checkpoints import checkpoint_files  # imports TensorFlow

    path = checkpoint_files.latest(model_dir)
    if path is None:
        raise RunnerError(f"{model_dir} has no checkpoint to compare")
    return path


def _best(first: Run, second: Run) -> Iterator[tensors.Part]:
    """Compares the best checkpoints, if either run has any."""
    for name in sorted({*first.best_infos, *second.best_infos}):
        old, new = (run.best_infos.get(name, {}) for run in (first, second))
        if old != new:
            changed = dict(_differing_fields(old, new))
            fields = ({field: pair[n] for field, pair in changed.items()} for n in (0, 1))
            what = "{} in the first run, {} in the second".format(*map(_shown, fields))
            yield tensors.Part(
                f"{name} checkpoint", 1, (tensors.Difference(f"{name}/{layout.INFO}", what),)
            )
            continue
        parts = tensors.compare(
            *(run.directory / name / old["checkpoint"] for run in (first, second))
        )
        differences = tuple(difference for part in parts for difference in part.differences)
        yield tensors.Part(f"{name} checkpoint", sum(part.compared for part in parts), differences)


def _by_step(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Returns the rows by step and by the number of previous rows of that step."""
    seen: collections.Counter[int] = collections.Counter()
    found = {}
    for row in rows:
        step = row["step"]
        found[step, seen[step]] = row
        seen[step] += 1
    return found


def _fields(
    step: int, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tensors.Difference]:
    for name, pair in _differing_fields(_values(old), _values(new)):
        what = "{} in the first run, {} in the second".format(*map(_shown, pair))
        yield tensors.Difference(f"step {step}, {name}", what, step)


def _differing_fields(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yields the names of the fields that differ, and their values in both runs.

    Floats are rounded to the fewest digits that distinguish them, but at least four.
    """
    for name in dict.fromkeys([*old, *new]):
        one, other = (fields.get(name, _NOTHING) for fields in (old, new))
        if repr(one) != repr(other):  # equal text means equal bits
            yield name, _rounded(one, other)


def _rounded(one: Any, other: Any) -> tuple[Any, Any]:
    if not all(isinstance(value, float) and math.isfinite(value) for value in (one, other)):
        return one, other
    pairs = ((float(f"{one:.{digits}g}"), float(f"{other:.{digits}g}")) for digits in range(4, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (one, other))  # 0.0 is not -0.0


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row's fields without its times."""
    fields = {name: value for name, value in row.items() if name not in ("metrics", *_TIMES)}
    return {**fields, **row.get("metrics", {})}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each is not _NOTHING}
    return "nothing" if value is _NOTHING else json.dumps(value)
