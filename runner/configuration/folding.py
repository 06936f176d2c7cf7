"""`folds` and `fold` of the training and the validation data, which must agree."""

from collections.abc import Iterator
from typing import Any

from official.core import config_definitions as cfg

from runner.configuration.origins import Invalid
from runner.errors import ConfigError

_SIDES = ("task.train_data", "task.validation_data")
_SHARED = ("folds", "fold", "fold_seed", "fold_group")


def parameters(experiment: cfg.ExperimentConfig, folds: int, fold: int) -> dict[str, int]:
    """The values by their paths (as in `--params_override`) that make `fold` of `folds` validate.

    Raises:
        ConfigError: the task's data cannot be divided.
    """
    for path, data in _data(experiment.task):
        if not hasattr(data, "folds"):
            raise ConfigError(
                f"{path} of {type(experiment.task).__name__} has no field 'folds': derive "
                f"{type(data).__name__} from runner.inputs.FoldedData (docs/folds.md)"
            )
    values = {"folds": folds, "fold": fold}
    return {f"{path}.{name}": value for path in _SIDES for name, value in values.items()}


def problems(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Folds that do not exist, or that would validate on training data."""
    (_, train), (path, validation) = _data(experiment.task)
    for side, data in ((_SIDES[0], train), (path, validation)):
        folds = getattr(data, "folds", 0)
        if 0 < folds <= getattr(data, "fold", 0):
            yield Invalid(side, data, "fold", f"must be below folds = {folds}: they count from 0")
            return
    if not getattr(train, "folds", 0) and not getattr(validation, "folds", 0):
        return
    for name in _SHARED:
        wanted = getattr(train, name, None)
        if validation is not None and getattr(validation, name, None) != wanted:
            needs = f"must be {wanted!r}, as of {_SIDES[0]}, or training data would validate"
            yield Invalid(path, validation, name, needs)
            return


def _data(task: cfg.TaskConfig) -> list[tuple[str, Any]]:
    return [(path, getattr(task, path.partition(".")[2], None)) for path in _SIDES]
