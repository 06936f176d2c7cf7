"""Data and a model in memory for a mode that uses a run, in place of those of its configuration."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.configuration import task_contract
from runner.errors import ConfigError
from runner.models import examples, sources
from runner.runs.call import Given

if TYPE_CHECKING:
    from runner.config import Experiment


def placed(
    config: "Experiment | None", model_dir: str | Path | None, objects: Mapping[str, Any]
) -> "tuple[Experiment | None, Given]":
    """Makes the task of a run use objects in memory.

    Args:
        config: The configuration of the run, or None for a mode that uses several runs, which calls
            `placed` for each.
        model_dir: The directory of the run.
        objects: `train` and `validation`, as `runner.fit` takes them, and `model`, a model of the
            same layers or a function that builds one. All are optional.

    Returns:
        The configuration with the size and fingerprint of the data, and the task.

    Raises:
        ConfigError: the task does not train a Keras model, or no model can learn from the data.
    """
    from runner.config import again

    if config is None:
        return None, Given(objects=objects)
    model = objects.get("model")
    data = {name: value for name, value in objects.items() if name != "model"}
    if not hasattr(task := _task(config, model_dir), "given"):
        raise ConfigError(
            f"{next(iter(objects))}: only runs of runner.fit and of tasks.supervised take data and "
            "a model from memory; another task has its own"
        )
    if config.task.train_data.folds and "validation" in data:
        raise ConfigError(
            "validation: the run was validated on folds of its training data: pass train instead"
        )
    readers = {name: functools.partial(_read, value, name) for name, value in data.items()}
    task.given = _given(readers, model)
    found = {name: task.data(name) for name in data}
    values = [line for name, part in found.items() for line in _values(name, part)]
    config = again(config, overrides=values)
    task = _task(config, model_dir)
    task.given = _given(found, model)
    return config, Given(task=task)


def _given(data: Mapping[str, Any], model: Any) -> sources.Given:
    return sources.Given(model, data.get("train"), data.get("validation"), lasting=False)


def _read(value: Any, name: str, takes: Any) -> examples.Examples:
    return examples.read(value, f"{name} data", takes=takes)


def _values(part: str, found: examples.Examples) -> Iterator[str]:
    """Yields the values that data in memory imply, as overrides."""
    path = f"task.{part}_data"
    yield f"{path}.fingerprint={examples.fingerprint(found)!r}"
    if isinstance(found, examples.Arrays):
        yield f"{path}.num_examples={found.size}"
    else:
        yield f"{path}.num_examples=0"
        yield f"{path}.global_batch_size={examples.batch_size(found)}"


def _task(config: "Experiment", model_dir: str | Path | None) -> Any:
    return task_contract.build_task(config.task, str(model_dir or ""))
