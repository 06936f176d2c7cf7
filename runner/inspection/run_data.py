"""What a run's folder says, for a page about it: as much as can be read. No TensorFlow.

A run may be writing, and files may be damaged: what cannot be read is left out and named.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from runner.core import files, layout, plain_yaml
from runner.core.spelling import metric_name
from runner.errors import RunnerError
from runner.history import best_evaluation, records
from runner.inspection import goodput
from runner.run_folder import claim_file, status

Read = TypeVar("Read")
Points = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class RunData:
    """A run, as its folder has it.

    Attributes:
        folder: Where it is.
        state: As in status.json; `silent` if it says `running` and its process is gone, `unknown`
            if there is no such file.
        step: The last training step.
        reason: Why it ended that way.
        starts: The rows of run.json.
        history: The rows of history.jsonl, oldest first.
        evaluators: Those of the evaluators, by name.
        training: Each column of train.jsonl: the steps that have it, and its values, [rows].
        system: Likewise, of the machine's samples.
        params: params.yaml.
        overview: overview.json.
        ledger: Where its time went; None if that cannot be told.
        problems: What could not be read.
        title: What it is called; empty: by its folder's name.
    """

    folder: Path
    state: str
    step: int
    reason: str
    starts: Sequence[Mapping[str, Any]]
    history: Sequence[records.Record]
    evaluators: Mapping[str, Sequence[records.Record]]
    training: Mapping[str, Points]
    system: Mapping[str, Points]
    params: Mapping[str, Any]
    overview: Mapping[str, Any]
    ledger: goodput.Ledger | None
    problems: Sequence[str]
    title: str = ""

    def called(self, title: str) -> "RunData":
        """The same run under another name."""
        return dataclasses.replace(self, title=title)

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        return self.title or self.folder.name or str(self.folder)

    @property
    def evaluations(self) -> list[records.Evaluation]:
        """Its own evaluations, oldest first."""
        own = (row for row in self.history if isinstance(row, records.Evaluation))
        return [row for row in own if row.is_own]

    @property
    def tests(self) -> list[records.Test]:
        """The tests of its weights."""
        return [row for row in self.history if isinstance(row, records.Test)]

    @property
    def rule(self) -> best_evaluation.BestRule | None:
        """Which of its evaluations is the best; None if nothing decides."""
        metric = self.param("trainer.best_checkpoint_eval_metric")
        if not metric or not isinstance(metric, str):
            return None
        higher = self.param("trainer.best_checkpoint_metric_comp") == "higher"
        retention = _mapping(self.param("run.retention"))
        more = {
            name: tuple(metric_name(str(each)) for each in _list(retention.get(name)))
            for name in ("or_higher", "or_lower")
        }
        start = retention.get("from_step")
        return best_evaluation.BestRule(
            metric_name(metric),
            higher=higher,
            from_step=start if isinstance(start, int) else 0,
            **more,
        )

    @property
    def best(self) -> records.Evaluation | None:
        """The best of its evaluations."""
        return self.rule.best(self.evaluations) if self.rule else None

    @property
    def sets(self) -> list[str]:
        """The names of its further evaluation sets."""
        found = _list(self.param("run.evaluation_sets"))
        return [str(each.get("name")) for each in found if isinstance(each, Mapping)]

    @property
    def last_step(self) -> int | None:
        """The step at which it is to end."""
        steps = self.param("trainer.train_steps")
        return steps if isinstance(steps, int) else None

    def param(self, path: str) -> Any:
        """The value at a path of params.yaml, such as `trainer.train_steps`, or None."""
        value: Any = self.params
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


def is_run(folder: Path) -> bool:
    """Whether a run has begun in this folder."""
    return any((folder / name).exists() for name in (layout.RUN, layout.STATUS, layout.HISTORY))


def read(folder: Path, *, rows: bool = True) -> RunData:
    """What the folder of a run says; without `rows`, not what train.jsonl does."""
    problems: list[str] = []

    def safely(path: Path, reader: Callable[[], Read], otherwise: Read) -> Read:
        try:
            return reader()
        except (RunnerError, OSError, ValueError, yaml.YAMLError) as error:
            said = " ".join(str(error).split())
            problems.append(said if str(path) in said else f"{path}: {said}")
            return otherwise

    seen = safely(folder / layout.STATUS, lambda: status.read(folder), None)
    record = safely(folder / layout.RUN, lambda: files.read_json(folder / layout.RUN), None)
    starts = record.get("starts") if isinstance(record, dict) else None
    state: str = seen.state if seen else "unknown"
    if state == "running" and claim_file.abandoned(folder / layout.CLAIM):
        state = "silent"
    return RunData(
        folder=folder,
        state=state,
        step=seen.step if seen else 0,
        reason=seen.reason if seen else "",
        starts=[row for row in starts or () if isinstance(row, dict)],
        history=_history(folder / layout.HISTORY, problems),
        evaluators={
            layout.evaluator_name(each): _history(each / layout.HISTORY, problems)
            for each in layout.evaluators(folder)
        },
        training=_columns(_rows(folder / layout.TRAINING_ROWS, problems) if rows else ()),
        system=_columns(_rows(folder / layout.SYSTEM_ROWS, problems) if rows else ()),
        params=_mapping(safely(layout.params(folder), lambda: _yaml(layout.params(folder)), {})),
        overview=_mapping(
            safely(
                folder / layout.OVERVIEW, lambda: files.read_json(folder / layout.OVERVIEW), None
            )
        ),
        ledger=safely(folder / layout.RUN, lambda: goodput.of(folder), None),
        problems=problems,
    )


def _yaml(path: Path) -> Any:
    if not path.exists():
        return {}
    return plain_yaml.load(path.read_text(encoding="utf-8"))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _history(path: Path, problems: list[str]) -> list[records.Record]:
    found, strange = [], 0
    for row in _rows(path, problems):
        try:
            found.append(records.parse(row))
        except (AttributeError, KeyError, TypeError, ValueError):
            strange += 1
    if strange:
        problems.append(f"{path}: {strange:,} rows of unknown kind are left out")
    return found


def _rows(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; those that are damaged are left out and counted."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(str(error))
        return []
    try:  # a file with its usual last line, whole: in one go
        rows = files.loads(b"[" + b",".join(line for line in lines if line.strip()) + b"]")
    except ValueError:
        rows = [row for row in map(_parsed, lines[:-1]) if row is not None]
        if damaged := len([line for line in lines[:-1] if line.strip()]) - len(rows):
            problems.append(f"{path}: {damaged:,} damaged lines are left out")
        last = _parsed(lines[-1]) if lines else None  # which a process may be writing
        rows += [last] if last is not None else []
    good = [row for row in rows if isinstance(row, dict)]
    if len(good) < len(rows):
        problems.append(f"{path}: {len(rows) - len(good):,} damaged lines are left out")
    return good


def _parsed(line: bytes) -> Any | None:
    try:
        return files.loads(line)
    except ValueError:
        return None


def _columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Each column of the training rows as numbers."""
    rows = [row for row in rows if isinstance(row.get("step"), int)]
    steps = np.array([row["step"] for row in rows], float)
    found = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        cells = [row.get(name) for row in rows]
        there = np.array([cell is not None for cell in cells])
        found[name] = steps[there], np.array([_number(cell) for cell in cells if cell is not None])
    found.pop("step", None)
    return found


def _number(value: Any) -> float:
    """NaN for anything but a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
