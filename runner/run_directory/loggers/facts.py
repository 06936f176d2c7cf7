"""The facts about a run or a study that loggers get in addition to its rows, without secrets."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import layout, secrets
from runner.errors import RunnerError
from runner.run_directory import claim_file
from runner.run_directory.run import Run, run_in
from runner.run_directory.state import State
from runner.storage import display_names

Value = bool | int | float | str

_CONFIGURATION = (layout.PARAMS, layout.RESOLVED, layout.GIN)


class Facts(NamedTuple):
    """The facts about a run or a study.

    Attributes:
        folder: Its directory, whose name is its name.
        study: The directory of the study that it is a trial of, or None if it is not a trial.
        is_study: Whether it is a study.
        parameters: The configuration as paths (`trainer.train_steps`) and values, without empty
            values. For a trial, it also has the varying values as `trial.<name>`.
        tags: Short facts: the directory, the host, the code and the packages.
        labels: `RunConfig.tags`.
        notes: `RunConfig.notes`.
        state: How its last attempt ended, or `running`, which may also mean that it was killed.
        reason: The reason for its state.
        files: Small files to store with it, and a study's directory of plots.
        best: The directory of the best checkpoint, or None if there is none, or more may follow.
    """

    folder: Path
    study: Path | None
    is_study: bool
    parameters: Mapping[str, Value]
    tags: Mapping[str, str]
    labels: Sequence[str]
    notes: str
    state: State
    reason: str
    files: Sequence[Path]
    best: Path | None

    @property
    def group(self) -> str:
        """The name of its parent directory, which names the logger's experiment or project."""
        return (self.study or self.folder).resolve().parent.name or "runs"

    @property
    def entry(self) -> tuple[str, str, int]:
        """The entry for the record of sent rows: a digest of all facts sent to a logger."""
        told = [*self.parameters.items(), *self.tags.items(), *self.labels, self.notes]
        return "facts", "", zlib.crc32(repr(told).encode())

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.resolve().name


def of(folder: Path, *, whole: bool) -> Facts:
    """Returns the facts of the run or study in a directory.

    Args:
        folder: Its directory.
        whole: Whether to include the best checkpoint even if training continues or will continue.

    Raises:
        RunnerError: there is no run or study, or its files are damaged.
    """
    if layout.is_study(folder):
        return _of_study(folder)
    if not (folder / layout.PARAMS).exists():
        raise RunnerError(f"{folder} holds neither a run nor a study")
    run = Run(folder)
    values = secrets.masked_all(run.params, list(secrets.held(run.params)))
    seen, trial, best = run.status, run.trial or {}, folder / layout.BEST
    state, reason = (seen.outcome, seen.reason) if seen else (State.RUNNING, "")
    ended = whole or (seen is not None and seen.is_final and state != State.PAUSED)
    own = values.get("run") or {}
    return Facts(
        folder=folder,
        study=folder.resolve().parents[1] if trial else None,
        is_study=False,
        parameters={**dict(_flat(values)), **_of_trial(trial)},
        tags=_tags(folder, run.attempts[-1] if run.attempts else {}, state, reason),
        labels=list(own.get("tags") or ()),
        notes=str(own.get("notes") or ""),
        state=state,
        reason=reason,
        files=[] if _holds_secrets(values) else _there(folder, *_CONFIGURATION),
        best=best if ended and (best / layout.INFO).exists() else None,
    )


def _of_study(folder: Path) -> Facts:
    trials = layout.trials(folder)
    running = any((trial / layout.CLAIM).exists() for trial in trials)
    state = State.RUNNING if running else State.DONE
    plots = folder / layout.PLOTS
    tables = _there(folder, layout.STUDY, layout.TRIALS_TABLE, layout.TRIALS_PARQUET)
    return Facts(
        folder=folder,
        study=None,
        is_study=True,
        parameters={},
        tags={
            "runner.folder": display_names.of(folder.resolve()),
            "runner.state": str(state),
            "runner.trials": str(len(trials)),
        },
        labels=(),
        notes="",
        state=state,
        reason="",
        files=[*tables, *([plots] if plots.is_dir() else [])],
        best=None,
    )


def has_ended(folder: Path, holder: claim_file.Holder | None) -> bool:
    """Returns whether the attempt that held the directory when `holder` was read has ended."""
    if layout.is_study(folder):
        return True
    run, claim = run_in(folder), folder / layout.CLAIM
    seen = run.status if run else None
    if seen is None or seen.ended or (found := claim_file.look(claim)) is None:
        return True
    return found.holder != holder or claim_file.abandoned(claim)


def holder(folder: Path) -> claim_file.Holder | None:
    """Returns the process that has locked a directory."""
    found = claim_file.look(folder / layout.CLAIM)
    return found.holder if found else None


def _there(folder: Path, *names: str) -> list[Path]:
    return [path for name in names if (path := folder / name).is_file()]


def _holds_secrets(masked: Mapping[str, Any]) -> bool:
    return secrets.MASK in json.dumps(masked, default=str)


def _flat(values: Any, path: str = "") -> Iterator[tuple[str, Value]]:
    """Yields paths and values. A list becomes its JSON."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _flat(value, f"{path}.{key}".removeprefix("."))
    elif isinstance(values, list):
        if values:
            yield path, json.dumps(values, default=str)
    elif isinstance(values, bool | int | float):
        yield path, values
    elif values not in (None, ""):
        yield path, str(values)


def _of_trial(trial: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the varying values of a trial: its parameters, seed and fold."""
    own = {name: trial[name] for name in ("number", "seed", "fold") if name in trial}
    own |= dict(trial.get("parameters") or {})
    return {f"trial.{name}": value for name, value in _flat(own)}


def _tags(folder: Path, start: Mapping[str, Any], state: str, reason: str) -> dict[str, str]:
    """Returns the tags of the newest attempt. run.json has no secrets."""
    code = start.get("code") or {}
    found = {
        "runner.folder": display_names.of(folder.resolve()),
        "runner.state": state,
        "runner.reason": reason,
        "runner.mode": start.get("mode"),
        "runner.host": start.get("host"),
        "runner.command": " ".join(map(str, start.get("command") or ())),
        "runner.python": start.get("python"),
        "runner.commit": code.get("commit"),
        "runner.dirty": code.get("commit") and ("yes" if code.get("diff") else "no"),
        "runner.devices": ", ".join(start.get("devices") or ()),
        "runner.changed": "; ".join(start.get("changed") or ()),
    }
    for package, version in (start.get("versions") or {}).items():
        found[f"runner.version.{package}"] = version
    return {name: str(value) for name, value in found.items() if value}
