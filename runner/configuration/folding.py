"""`folds` and `fold` of the training and the validation data, which must agree."""

from collections.abc import Iterator
from typing import Any

from official.core import config_definitions as cfg

from runner.configuration import printing
from runner.configuration.origins import Invalid
from runner.errors import ConfigError

_SIDES = ("task.train_data", "task.validation_data")
_SHARED = ("folds", "fold", "fold_seed", "fold_group")


def parameters(experiment: cfg.ExperimentConfig, folds: int, fold: int) -> dict[str, Any]:
    """Returns the values that make `fold` of `folds` validate, by path as in `--params_override`.

    The training data are divided. If the validation data have their own source, it is replaced by
    the source of the training data.

    Raises:
        ConfigError: if the task's data cannot be divided.
    """
    task = experiment.task
    for path, data in _data(task):
        if data is None:
            raise ConfigError(f"{type(task).__name__} has no {path}, so a fold cannot validate")
        if not hasattr(data, "folds"):
            raise ConfigError(
                f"{path} of {type(task).__name__} has no field 'folds': derive "
                f"{type(data).__name__} from runner.inputs.FoldedData (docs/guides/folds.md)"
            )
    values = {"folds": folds, "fold": fold}
    divided = {f"{path}.{name}": value for path in _SIDES for name, value in values.items()}
    source = {
        f"{_SIDES[1]}.{name}": printing.plain(getattr(task.train_data, name))
        for name in _of_its_own(task)
    }
    return {**source, **divided}


def left_out(experiment: cfg.ExperimentConfig) -> str:
    """Describes the data that a cross-validation does not use, or returns "" if it uses all."""
    data = experiment.task.validation_data
    names = [name for name in _of_its_own(experiment.task) if name != "num_examples"]
    own = [f"{name} = {getattr(data, name)!r}" for name in names]
    return f"{_SIDES[1]} ({', '.join(own)})" if own else ""


def _of_its_own(task: cfg.TaskConfig) -> list[str]:
    """Returns the fields in which the source of the validation data differs."""
    train, validation = task.train_data, task.validation_data
    return [
        name
        for name in getattr(train, "SOURCE_FIELDS", ())
        if getattr(validation, name, None) != getattr(train, name)
    ]


def problems(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields folds that do not exist or would validate on training data."""
    (_, train), (path, validation) = _data(experiment.task)
    for side, data in ((_SIDES[0], train), (path, validation)):
        folds = getattr(data, "folds", 0)
        if 0 < folds <= getattr(data, "fold", 0):
            yield Invalid(
                side,
                data,
                "fold",
                f"must be below folds = {folds}, because folds are numbered from 0",
            )
            return
    if not getattr(train, "folds", 0) and not getattr(validation, "folds", 0):
        return
    for name in _SHARED:
        wanted = getattr(train, name, None)
        if validation is not None and getattr(validation, name, None) != wanted:
            needs = f"must be {wanted!r}, as of {_SIDES[0]}, or training data would validate"
            yield Invalid(path, validation, name, needs)
            return
    for side, data, own in ((_SIDES[0], train, "train"), (path, validation, "validation")):
        for name in ("fold_part", "part"):
            if getattr(data, name, "") not in ("", own):
                needs = f"must be empty with folds, as it is for {own} data"
                yield Invalid(side, data, name, needs)


def _data(task: cfg.TaskConfig) -> list[tuple[str, Any]]:
    return [(path, getattr(task, path.partition(".")[2], None)) for path in _SIDES]
