"""What a run that has begun keeps of its configuration and of its version. No TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core import layout
from runner.errors import RunnerError


def has_checkpoints(model_dir: Path) -> bool:
    """Whether a run has committed anything; it may have kept only its best."""
    found = (any(model_dir.glob(where)) for where in ("ckpt-*.index", "*/ckpt-*.index"))
    return any(found)


def configuration(model_dir: str | Path | None) -> list[str]:
    """The gin file that describes the run in a folder, if there is one."""
    path = Path(model_dir or "") / layout.GIN
    return [str(path)] if model_dir and path.is_file() else []


def bindings(model_dir: str | Path) -> list[str]:
    """What gin is to be told first, so that the run in a folder, if any, goes on as it began."""
    if not model_dir or not has_checkpoints(Path(model_dir)):
        return []
    from runner.run_folder import params  # which loads a reader of YAML

    try:
        values = params.read(Path(model_dir))
        rounding = completed(values)["run"]["epochs"].get("rounding")
        in_epochs = _has_epochs(values["run"])
    except (OSError, RunnerError, TypeError, KeyError, AttributeError):
        return []  # whoever compares the configuration will say so
    return ["EpochsConfig.rounding = 'up'"] if rounding == "up" and in_epochs else []


def completed(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored configuration with the values that its version had, but did not write.

    Versions before `EpochsConfig.rounding` rounded all lengths up.
    """
    run = params.get("run") or {}
    epochs = run.get("epochs") or {}
    if "rounding" in epochs or not _has_epochs(run):
        return params
    return {**params, "run": {**run, "epochs": {**epochs, "rounding": "up"}}}


def _has_epochs(run: Mapping[str, Any]) -> bool:
    """Whether any length is in epochs."""
    lengths = [each for name, each in (run.get("epochs") or {}).items() if name != "rounding"]
    sets = [each.get("interval_epochs") for each in run.get("evaluation_sets") or ()]
    return any([*lengths, *sets])
