"""Imports the best evaluation that Model Garden noted in a directory that this runner continues.

Without it, the first evaluation here would become the best and replace a better one.
"""

from pathlib import Path

from runner.checkpoints import checkpoint_files
from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import records
from runner.reporting import scalars

_STEP = "best_ckpt_global_step"


def adopt(model_dir: Path, folder: Path, *, averaged: bool) -> records.Evaluation | None:
    """The best evaluation so far, for the history, or None if Model Garden noted none.

    Its checkpoint also gets this runner's name for it, in addition to its own.

    Args:
        model_dir: The run's directory.
        folder: The directory of the best checkpoint.
        averaged: Whether the optimizer averages weights. Model Garden then exports averages instead
            of the weights, so the best checkpoint is that of the same step in `model_dir`.
    """
    path = folder / layout.INFO
    try:
        info = files.read_json(path)
    except RunnerError:
        return None
    if not isinstance(info, dict) or "checkpoint" in info or _STEP not in info:
        return None
    step = int(info.pop(_STEP))
    name = checkpoint_files.name_of(step)
    source = model_dir / name if averaged else checkpoint_files.latest(folder)
    target = folder / checkpoint_files.TRAINING / name if averaged else folder / name
    if source and checkpoint_files.exists(source):
        files.make_folder(target.parent)
        checkpoint_files.link(source, target)
    return records.Evaluation(step, scalars.scalars(info), 0.0, path.stat().st_mtime, name)
