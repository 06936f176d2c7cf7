"""What Model Garden's own tasks need, and leave empty: found out before anything is built."""

import glob
from collections.abc import Iterator

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration.run_validation import Invalid

_TASKS = ("official.vision.", "official.nlp.")
_MADE_UP = "dummy"  # the input_path by which tasks of official.nlp make data up


def problems(
    experiment: cfg.ExperimentConfig, *, trains: bool, evaluates: bool
) -> Iterator[Invalid]:
    """What is missing; nothing of a task of the user's, whose needs nobody knows.

    Args:
        experiment: All values.
        trains: Whether the mode reads the training data.
        evaluates: Whether the mode reads the validation data.
    """
    task = experiment.task
    if not type(task).__module__.startswith(_TASKS):
        return
    for name, used in (("train_data", trains), ("validation_data", evaluates)):
        data = getattr(task, name, None)
        if used and isinstance(data, cfg.DataConfig) and not _is_made_up(task, data):
            yield from _source(f"task.{name}", data)
    model = getattr(task, "model", None)
    if isinstance(model, base_config.Config) and getattr(model, "num_classes", None) == 0:
        yield Invalid("task.model", model, "num_classes", "must be 1 or more")


def _is_made_up(task: cfg.TaskConfig, data: cfg.DataConfig) -> bool:
    return data.input_path == _MADE_UP and type(task).__module__.startswith(_TASKS[1])


def _source(path: str, data: cfg.DataConfig) -> Iterator[Invalid]:
    """Where the data come from, as far as this machine can tell."""
    if data.tfds_name:
        if not data.tfds_split:
            yield Invalid(path, data, "tfds_split", "must be given with tfds_name")
    elif not data.input_path:
        yield Invalid(path, data, "input_path", "must be given, or tfds_name and tfds_split")
    elif isinstance(data.input_path, str):
        for pattern in data.input_path.split(","):
            if "://" not in pattern and not glob.glob(pattern):  # noqa: PTH207, may be absolute
                yield Invalid(path, data, "input_path", f"there is no file {pattern}")
