"""What the files of one run's folder say, as far as that does not change by itself. No TensorFlow.

Each file is read on its own: where one is damaged, the others still count.
"""

import contextlib
import math
import re
import statistics
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import best_evaluation, history, policies, records
from runner.inspection import goodput, resolved
from runner.inspection.folders import Found
from runner.run_folder import status
from runner.studies import trial

_DAMAGE = (RunnerError, OSError, ValueError, TypeError, KeyError, AttributeError, LookupError)
_TASK = re.compile(r"(?m)^ +task = @(?:\w+/)?([\w.]+)\(")
_SECTIONS = ("trainer", "run")
_TAIL = 1 << 16  # bytes of train.jsonl
_RECENT = 20  # rows whose pace counts

READ = (
    *(layout.PARAMS, layout.RESOLVED, layout.GIN, layout.RUN, layout.STATUS, layout.HISTORY),
    *(layout.TRAINING_ROWS, layout.TRIAL, layout.ATTEMPTS),
)
"""The files that are read, besides those of evaluators."""


def configuration(folder: Path, problems: list[str]) -> resolved.Values:
    """The resolved configuration; empty where there is none."""
    with _noting(problems):
        path = layout.params(folder)
        try:
            values = resolved.parse(path.read_text(encoding="utf-8"))
            if not all(isinstance(values.get(name, {}), Mapping) for name in _SECTIONS):
                raise ValueError(f"{' or '.join(_SECTIONS)} is no section")
            return values
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise RunnerError(f"{path.name} is damaged ({error})") from error
    return {}


def read(found: Found, values: resolved.Values) -> dict[str, Any]:
    """The facts about a run, for JSON.

    Args:
        found: Its folder.
        values: Its configuration.
    """
    problems: list[str] = []
    folder = found.folder
    facts: dict[str, Any] = {
        "status": None,
        "attempts": [],
        "trial": None,
        "starts": [],
        "seconds": 0.0,
    }
    with _noting(problems):
        seen = status.read(folder)
        facts["status"] = seen and [seen.state, int(seen.step), seen.reason, seen.heartbeat]
    with _noting(problems):
        facts["trial"] = _trial(folder)
        facts["attempts"] = trial.attempts(folder)
    with _noting(problems):
        facts["starts"] = _starts(files.read_json(folder / layout.RUN) or {"starts": []})
    rows: list[records.Record] = []
    with _noting(problems):
        rows = _history(found)
    with _noting(problems):
        facts["objective"] = None
        facts.update(_metrics(rows, _rule(values)))
    with _noting(problems):
        facts.update(_training(folder / layout.TRAINING_ROWS))
    with contextlib.suppress(OSError):
        gin = (folder / layout.GIN).read_text(encoding="utf-8", errors="replace")
        facts["task"] = match[1] if (match := _TASK.search(gin)) else ""
    with contextlib.suppress(*_DAMAGE):  # which is noted above
        ledger = goodput.of(folder)
        share = None if math.isnan(ledger.share) else ledger.share
        facts.update(seconds=ledger.seconds, goodput=share)
    return {**facts, "problems": problems}


@contextlib.contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Notes what cannot be read, instead of raising."""
    try:
        yield
    except _DAMAGE as error:
        problems.append(str(error).partition("\n")[0] or type(error).__name__)


def _trial(folder: Path) -> dict[str, Any] | None:
    found = files.read_json(folder / layout.TRIAL)
    if found is None:
        return None
    return {"number": found["number"], "seed": found["seed"], "fold": found.get("fold")}


def _starts(record: Mapping[str, Any]) -> list[list[Any]]:
    """When each start began and ended (None: unknown), and where."""
    return [
        [float(each["started"]), each.get("ended"), str(each.get("host", ""))]
        for each in record["starts"]
    ]


def _history(found: Found) -> list[records.Record]:
    """The rows of the run; if it has no evaluations, also those of its evaluators, by step."""
    rows = history.read(found.folder / layout.HISTORY)
    if any(isinstance(row, records.Evaluation) and row.is_own for row in rows):
        return rows
    for name in found.folders:
        if layout.is_evaluator(name):
            rows += history.read(found.folder / name / layout.HISTORY)
    return sorted(rows, key=lambda row: row.step)


def _rule(values: resolved.Values) -> best_evaluation.BestRule | None:
    """Which evaluation is the best, if the configuration says so."""
    trainer, run = values.get("trainer", {}), values.get("run", {})
    if not trainer.get("best_checkpoint_eval_metric"):
        return None
    lists = {"or_higher": (), "or_lower": (), "from_step": 0, **run.get("retention", {})}
    retention = types.SimpleNamespace(**lists)
    config: Any = types.SimpleNamespace(
        trainer=types.SimpleNamespace(**trainer), run=types.SimpleNamespace(retention=retention)
    )
    return policies.best(config)


def _metrics(
    rows: Sequence[records.Record], rule: best_evaluation.BestRule | None
) -> dict[str, Any]:
    own = [row for row in rows if isinstance(row, records.Evaluation) and row.is_own]
    tests = [row for row in rows if isinstance(row, records.Test)]
    tested = [row for row in tests if row.weights == "best"] or tests
    best = rule.best(own) if rule else None
    last = {name: value for row in own[-1:] for name, value in row.metrics.items()}
    return {
        "objective": [rule.metric, rule.higher] if rule else None,
        "best": [best.step, dict(best.metrics)] if best else None,
        "last": [own[-1].step, last] if own else None,
        "test": dict(tested[-1].metrics) if tested else {},
        "evaluations": len(own),
    }


def _training(path: Path) -> dict[str, Any]:
    """The newest training row, and the pace of the last ones."""
    rows = tail(path)
    paces = [float(row["steps_per_second"]) for row in rows if "steps_per_second" in row]
    newest = rows[-1] if rows else {}
    return {
        "train": {
            name: float(value)
            for name, value in newest.items()
            if name not in ("step", *records.PACE)
        },
        "trained": int(newest.get("step", 0)),
        "rate": statistics.median(paces[-_RECENT:]) if paces else None,
    }


def tail(path: Path, size: int = _TAIL) -> list[dict[str, Any]]:
    """The last rows of a file of JSON lines, without one that is cut off; at least one if any."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(end - size, 0))
            text = file.read()
    except FileNotFoundError:
        return []
    lines = text.split(b"\n")[(1 if len(text) < end else 0) : -1]
    if not lines and len(text) < end:
        return tail(path, 8 * size)
    return [files.loads(line) for line in lines]
