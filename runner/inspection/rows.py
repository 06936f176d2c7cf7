"""The directories of runs as rows of a table. No TensorFlow.

    for row in rows.below(Path("runs")):
        print(row.name, row.state, row.best)

The facts are cached (see `cache`), which halves the time for ten thousand directories.
"""

import contextlib
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import layout, parallel
from runner.errors import ConfigError
from runner.history import records
from runner.inspection import cache, folders
from runner.run_directory.params import Values
from runner.run_directory.run import Run, is_run, state_of
from runner.run_directory.state import State
from runner.run_directory.status import Status
from runner.storage import display_names

_RECENT = 20  # rows from which the speed is computed
_AT_ONCE = 100  # directories that a process reads
_RATE = "steps_per_second"

_READ = (
    *(layout.PARAMS, layout.RESOLVED, layout.GIN, layout.RUN, layout.STATUS, layout.HISTORY),
    *(layout.TRAINING_ROWS, layout.TRIAL, layout.ATTEMPTS, layout.STEP),
)
"""The files that are read, in addition to those of evaluators."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: The path of its directory, relative to the searched directory.
        folder: Its directory.
        state: Its state.
        reason: Why it is in this state, in a few words.
        step: The last training step completed.
        metric: The metric that selects its best evaluation, or empty if there is none.
        best_step: The step of the best evaluation.
        best: Metrics of the best evaluation, or empty if there is none.
        last_step: The step of the last evaluation.
        last: Metrics of the last evaluation.
        test: Metrics of the final test, of the best weights if these were tested.
        train: Metrics of the last training row.
        evaluations: The number of evaluations.
        started: When it was first started, in seconds since the epoch, or None if unknown.
        starts: The number of attempts.
        seconds: How long these attempts took together.
        rate: Recent training steps per second, or None if unknown.
        goodput: The fraction of that time spent training, or None if unknown.
        host: The machine of its last attempt.
        task: The name of its task's config class.
        study: The directory of a trial's study, relative to the searched directory, or empty.
        number: The trial's number.
        seed: `RunConfig.seed`, or None if unknown.
        fold: The trial's held-out fold.
        tags: `RunConfig.tags`.
        notes: `RunConfig.notes`.
        configuration: The resolved configuration.
    """

    name: str
    folder: Path
    state: State
    reason: str = ""
    step: int = 0
    metric: str = ""
    best_step: int | None = None
    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    last_step: int | None = None
    last: Mapping[str, float] = dataclasses.field(default_factory=dict)
    test: Mapping[str, float] = dataclasses.field(default_factory=dict)
    train: Mapping[str, float] = dataclasses.field(default_factory=dict)
    evaluations: int = 0
    started: float | None = None
    starts: int = 0
    seconds: float = 0.0
    rate: float | None = None
    goodput: float | None = None
    host: str = ""
    task: str = ""
    study: str = ""
    number: int | None = None
    seed: int | None = None
    fold: int | None = None
    tags: Sequence[str] = ()
    notes: str = ""
    configuration: Values = dataclasses.field(default_factory=dict)


def below(root: Path) -> list[Row]:
    """Returns the runs at and below a directory, by name.

    Raises:
        ConfigError: there is no such directory.
    """
    if wrong := layout.no_directory(root):
        raise ConfigError(f"{{model_dir}} {wrong}", model_dir=str(root))
    found = list(folders.runs(root))
    with cache.of(root) as known:
        facts = _cached(found, root, known)
    rows = []
    for each in found:
        if each.problem or each.folder in facts:
            with contextlib.suppress(ConfigError):  # removed since
                rows.append(_row(each, root, facts.get(each.folder)))
    return sorted(rows, key=lambda row: row.name)


def of(run: Run) -> Row:
    """Returns the row of a run.

    Raises:
        ConfigError: it has no files yet.
    """
    found = next(folders.runs(run.directory), None)
    if found is None or found.folder != run.directory:
        raise ConfigError(f"{run.directory} has no files of a run yet")
    return _row(found, run.directory.parent, _facts(run), run)


def _row(
    found: folders.Found, root: Path, facts: dict[str, Any] | None, run: Run | None = None
) -> Row:
    folder, name = found.folder, _name(found.folder, root)
    if facts is None:
        return Row(name, folder, State.DAMAGED, found.problem)
    run = run or Run(folder, strict=False)
    values = run.params
    status, failures, more = facts.pop("status"), facts.pop("failures"), facts.pop("problems")
    state, reason = state_of(folder, Status(**status) if status else None, failures)
    if all_problems := dict.fromkeys([*run.problems, *more]):
        state, reason = State.DAMAGED, display_names.in_text("; ".join(all_problems))
    own = values.get("run") or {}
    is_trial = facts["number"] is not None and folder.parent.name == layout.TRIALS
    return Row(
        name,
        folder,
        state,
        reason,
        **facts,
        study=_name(folder.parent.parent, root) if is_trial else "",
        tags=[str(tag) for tag in own.get("tags") or ()],
        notes=str(own.get("notes") or ""),
        configuration=values,
    )


def _cached(
    found: Sequence[folders.Found], root: Path, known: cache.Cache
) -> dict[Path, dict[str, Any]]:
    """Returns the facts of the directories that can be read, and caches those that are new."""
    facts: dict[Path, dict[str, Any]] = {}
    new = {}
    for each in found:
        if not each.problem:
            key = "" if each.folder == root else _name(each.folder, root)
            stamp = _stamp(each)
            if (before := known.get(key, stamp)) is None:
                new[each.folder] = key, stamp
            else:
                facts[each.folder] = before
    all_read = parallel.mapped(_facts_in, list(new), at_once=_AT_ONCE)
    for folder, read in zip(new, all_read, strict=True):
        if read is not None:
            known.put(*new[folder], read)
            facts[folder] = read
    return facts


def _facts_in(folder: Path) -> dict[str, Any] | None:
    """Returns the facts of the run in a directory, or None if it was removed since."""
    return _facts(Run(folder, strict=False)) if is_run(folder) else None


def _facts(run: Run) -> dict[str, Any]:
    """Returns the cacheable facts, for JSON: most fields of a row, and the inputs of its state."""
    status, trial, attempts = run.status, run.trial or {}, run.attempts
    best, last = run.best, run.last
    tested = [test for test in run.tests if test.weights == "best"] or run.tests
    newest = run.newest_rows[-1] if run.newest_rows else {}
    rates = [row[_RATE] for row in run.newest_rows if _RATE in row][-_RECENT:]
    ledger, started = run.time, attempts[0].get("started") if attempts else None
    return {
        "status": vars(status) if status else None,
        "failures": run.failures,
        "step": run.step,
        "metric": run.rule.metric if run.rule else "",
        "best_step": best.step if best else None,
        "best": best.metrics if best else {},
        "last_step": last.step if last else None,
        "last": last.metrics if last else {},
        "test": tested[-1].metrics if tested else {},
        "train": {name: x for name, x in newest.items() if name not in ("step", *records.PACE)},
        "evaluations": len(run.evaluations),
        "started": started if isinstance(started, int | float) else None,
        "starts": len(attempts),
        "seconds": float(ledger.seconds),
        "rate": statistics.median(rates) if rates else None,
        "goodput": None if math.isnan(ledger.share) else ledger.share,
        "host": str(attempts[-1].get("host", "")) if attempts else "",
        "task": run.task,
        "number": trial.get("number"),
        "seed": (run.params.get("run") or {}).get("seed", trial.get("seed")),
        "fold": trial.get("fold"),
        "problems": run.problems,
    }


def _name(folder: Path, root: Path) -> str:
    if folder == root:
        return folder.name or str(folder)
    above = len(root.parts)
    return "/".join(folder.parts[above:]) if folder.parts[:above] == root.parts else folder.name


def _stamp(found: folders.Found) -> str:
    """Returns a stamp that changes when any file that is read changes."""
    stamps = [found.files.get(name) for name in _READ]
    for name in found.folders:
        if layout.is_evaluator(name):
            path = found.folder / name / layout.HISTORY
            stamps.append((path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None)
    return str(stamps)
