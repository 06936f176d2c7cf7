"""Creates a trial's directory, either new or as a copy of another trial that has paused."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.run_directory import session
from runner.runs.call import Call
from runner.studies import checks, trial, worker

_OWN = shutil.ignore_patterns(
    *(layout.TRIAL, layout.CLAIM, layout.ATTEMPTS, layout.TRACEBACK, "*output.txt", ".*"),
    *(layout.DAMAGED, layout.EXPORT, layout.PREDICTIONS, layout.evaluator(Path(), "*").name),
)
"""Files that belong to the trial itself rather than to its training state."""


def create(call: Call, facts: Mapping[str, Any], gin: str | None = None) -> Path:
    """Creates the directory of a trial atomically.

    Args:
        call: The study's call.
        facts: For trial.json. A trial with a lineage continues from its parent's newest
            checkpoint with other values, and takes over the parent's history.
        gin: The text of its own config.gin, or None if it uses the study's configuration.

    Returns:
        The directory.
    """
    lineage = trial.Lineage(*facts["lineage"]) if facts.get("lineage") else None
    what = trial.described(facts["parameters"], facts["seed"], facts["fold"])
    what += f",from={lineage.parent}" if lineage else ""
    trials = call.model_dir / layout.TRIALS
    folder = trials / f"{facts['number']:04}-{what}"
    if lineage:
        experiment = checks.load(call, worker.arguments(facts))
        (parent,) = trials.glob(f"{lineage.parent:04}-*")
        _copy(parent, folder, facts, session.Configuration.of(experiment))
    else:
        if gin is not None:
            files.write_text(folder / layout.GIN, gin)
        trial.write(folder, facts)
    return folder


def _copy(
    parent: Path, folder: Path, facts: Mapping[str, Any], configuration: session.Configuration
) -> None:
    """Copies a run's directory with a new configuration, then renames it into place."""
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(parent, part, ignore=_OWN, copy_function=_place)
    configuration.write(part)
    trial.write(part, facts)
    files.flush_all(part)
    part.replace(folder)
    files.flush_file(folder.parent)


def _place(source: str, target: str) -> str:
    """Links a checkpoint file, which never changes, and copies any other file."""
    is_checkpoint = Path(source).name.startswith("ckpt-")
    (files.link if is_checkpoint else files.copy)(Path(source), Path(target))
    return target
