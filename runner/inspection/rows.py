"""The folders of runs as rows: what each is, how far it came and what it scored. No TensorFlow.

    for row in rows.below(Path("runs")):
        print(row.name, row.state, row.best)

What was read is remembered (see `cache`), so that ten thousand folders take seconds only once.
"""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import layout, text
from runner.errors import ConfigError
from runner.inspection import cache, facts, folders, resolved
from runner.run_folder import status, submitted
from runner.storage import display_names
from runner.studies import trial

_SILENT_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: Its folder, seen from the one that was looked through.
        folder: Its folder.
        state: As for a trial, or `damaged`: some of its files cannot be read.
        reason: Why, in a few words.
        step: The last training step done.
        objective: What its best evaluation is chosen by.
        best_step: The step of the best evaluation.
        best: Metrics there; empty where there is none.
        last_step: The step of the last evaluation.
        last: Metrics there.
        test: Metrics of the test at the end: of the best weights, if they were tested.
        train: Metrics of the last training row.
        evaluations: How many there are.
        started: When it was first started, in seconds since the epoch; None if that is unknown.
        starts: How often it was started.
        seconds: How long these starts took together.
        rate: Training steps a second, of late; None if that is unknown.
        goodput: The share of that time that was training; None if that is unknown.
        host: The machine of its last start.
        task: The name of its task's configuration.
        study: The folder of the study whose trial it is, seen from the same one; or empty.
        number: Which trial.
        seed: `RunConfig.seed`; None if that is unknown.
        fold: Which fold is held out, of a trial.
        tags: `RunConfig.tags`.
        notes: `RunConfig.notes`.
        configuration: The resolved configuration.
    """

    name: str
    folder: Path
    state: str
    reason: str = ""
    step: int = 0
    objective: trial.Objective = trial.Objective()  # noqa: RUF009, immutable
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
    configuration: resolved.Values = dataclasses.field(default_factory=dict)


def below(root: Path) -> list[Row]:
    """The runs at and below a folder, by name.

    Raises:
        ConfigError: there is no such folder.
    """
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise ConfigError(f"--model_dir={root} {what}")
    with cache.of(root) as known:
        found = [_row(each, root, known) for each in folders.runs(root)]
    return sorted(found, key=lambda row: row.name)


def of(folder: Path) -> Row:
    """The run in a folder.

    Raises:
        ConfigError: there is none.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} {'is a file' if folder.exists() else 'does not exist'}")
    first = next(folders.runs(folder), None)
    if first is None or first.folder != folder:
        raise ConfigError(f"{folder} is not the folder of a run")
    return _row(first, folder.parent, cache.Cache({}))


def _row(found: folders.Found, root: Path, known: cache.Cache) -> Row:
    name = _name(found.folder, root)
    if found.problem:
        return Row(name, found.folder, "damaged", found.problem)
    problems: list[str] = []
    values = facts.configuration(found.folder, problems)
    stamp, key = _stamp(found), os.path.realpath(found.folder)
    known_facts = known.get(key, stamp)
    if known_facts is None:
        known_facts = facts.read(found, values)
        known.put(key, stamp, known_facts)
    return _of_facts(found, name, root, values, known_facts, problems)


def _of_facts(
    found: folders.Found,
    name: str,
    root: Path,
    values: resolved.Values,
    known: Mapping[str, Any],
    problems: Sequence[str],
) -> Row:
    state, reason = _state(found, known)
    if all_problems := [*problems, *known["problems"]]:
        state, reason = "damaged", display_names.in_text("; ".join(all_problems))
    numbers, starts = known["trial"] or {}, known["starts"]
    best_step, best = known.get("best") or (None, {})
    last_step, last = known.get("last") or (None, {})
    run = values.get("run") or {}
    is_trial = bool(numbers) and found.folder.parent.name == layout.TRIALS
    return Row(
        name=name,
        folder=found.folder,
        state=state,
        reason=reason,
        step=known["status"][1] if known["status"] else known.get("trained", 0),
        objective=trial.Objective(*known.get("objective") or ()),
        best_step=best_step,
        best=best,
        last_step=last_step,
        last=last,
        test=known.get("test", {}),
        train=known.get("train", {}),
        evaluations=known.get("evaluations", 0),
        started=starts[0][0] if starts else None,
        starts=len(starts),
        seconds=known["seconds"],
        rate=known.get("rate"),
        goodput=known.get("goodput"),
        host=starts[-1][2] if starts else "",
        task=known.get("task", ""),
        study=_name(found.folder.parent.parent, root) if is_trial else "",
        number=numbers.get("number"),
        seed=run.get("seed", numbers.get("seed")),
        fold=numbers.get("fold"),
        tags=[str(tag) for tag in run.get("tags") or ()],
        notes=str(run.get("notes") or ""),
        configuration=values,
    )


def _name(folder: Path, root: Path) -> str:
    if folder == root:
        return folder.name or str(folder)
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name


def _stamp(found: folders.Found) -> str:
    """Says whether anything that is read has changed."""
    stamps = [found.files.get(name) for name in facts.READ]
    for name in found.folders:
        if layout.is_evaluator(name):
            path = found.folder / name / layout.HISTORY
            stamps.append((path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None)
    return str(stamps)


def _state(found: folders.Found, known: Mapping[str, Any]) -> tuple[str, str]:
    """The state now: whether a process is at work there is not written in any file."""
    seen = None
    if known["status"]:
        said, step, reason, heartbeat = known["status"]
        seen = status.Status(said, step, reason, heartbeat, host="", pid=0)
    state, reason = trial.state_of(found.folder, seen, known["attempts"])
    if state == "running" and layout.CLAIM in found.files:
        quiet = time.time() - found.files[layout.CLAIM][1] / 1e9
        if quiet > _SILENT_SECONDS:
            reason = f"no sign of life for {text.duration(quiet)}"
    job = submitted.newest(found.folder) if layout.LAUNCH in found.folders else None
    if job and state != "running" and not (known["status"] and job.has_begun):
        reason = str(job)
    return state, reason
