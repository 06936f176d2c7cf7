"""What a run that has begun keeps of the version that it began with. No TensorFlow."""

from pathlib import Path
from typing import Any

from runner.core import layout


def has_checkpoints(model_dir: Path) -> bool:
    """Whether a run has committed anything; it may have kept only its best."""
    found = (any(model_dir.glob(where)) for where in ("ckpt-*.index", "*/ckpt-*.index"))
    return any(found)


def bindings(model_dir: str | Path) -> list[str]:
    """What gin is to be told first, so that the run in a folder, if any, goes on as it began.

    Versions before `EpochsConfig.rounding` rounded all lengths up.
    """
    if not model_dir or not has_checkpoints(Path(model_dir)):
        return []
    import yaml

    try:
        params = yaml.safe_load((Path(model_dir) / layout.PARAMS).read_text(encoding="utf-8"))
        run = params["run"]
        rounding = run["epochs"].pop("rounding", "up")
        in_epochs = [*run["epochs"].values(), *map(_interval, run["evaluation_sets"] or ())]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return []  # whoever compares the configuration will say so
    return ["EpochsConfig.rounding = 'up'"] if rounding == "up" and any(in_epochs) else []


def _interval(one: Any) -> Any:
    return one["interval_epochs"]
