"""Checks for checkpoints and reads stored configurations, also of older versions. No TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core import layout
from runner.errors import RunnerError


def has_checkpoints(model_dir: Path) -> bool:
    """Returns whether the run has saved any checkpoint, even if only its best one."""
    found = (any(model_dir.glob(where)) for where in ("ckpt-*.index", "*/ckpt-*.index"))
    return any(found)


def configuration(model_dir: str | Path | None) -> list[str]:
    """Returns the run's config.gin as a list, or an empty list if there is none."""
    path = Path(model_dir or "") / layout.GIN
    return [str(path)] if model_dir and path.is_file() else []


def bindings(model_dir: str | Path) -> list[str]:
    """Returns the gin bindings that make a run resume with the rules of the version that wrote it.

    They must be applied before all other bindings.
    """
    if not model_dir or not has_checkpoints(Path(model_dir)):
        return []
    from runner.run_directory import params  # imports a YAML reader

    try:
        values = params.read(Path(model_dir))
        rounding = completed(values)["run"]["epochs"].get("rounding")
        in_epochs = _has_epochs(values["run"])
    except (OSError, RunnerError, TypeError, KeyError, AttributeError):
        return []  # the comparison of the configurations reports it
    return ["EpochsConfig.rounding = 'up'"] if rounding == "up" and in_epochs else []


def completed(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a stored configuration with the implicit values of the version that wrote it.

    Versions before `EpochsConfig.rounding` rounded all lengths up.
    """
    run = params.get("run") or {}
    epochs = run.get("epochs") or {}
    if "rounding" in epochs or not _has_epochs(run):
        return params
    return {**params, "run": {**run, "epochs": {**epochs, "rounding": "up"}}}


def _has_epochs(run: Mapping[str, Any]) -> bool:
    """Returns whether any length is in epochs."""
    lengths = [each for name, each in (run.get("epochs") or {}).items() if name != "rounding"]
    sets = [each.get("interval_epochs") for each in run.get("evaluation_sets") or ()]
    return any([*lengths, *sets])
