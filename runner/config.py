"""The experiment's configuration: dataclasses, built by gin, checked, locked."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import yaml
from official.core import config_definitions as cfg

from runner import epochs, gin_build, limits
from runner.errors import ConfigError
from runner.run_config import RunConfig as RunConfig


@dataclasses.dataclass
class Experiment(cfg.ExperimentConfig):
    """All that a run is configured with: official's `task`, `trainer` and `runtime`, and `run`."""

    # A loaded experiment remembers by path where its values were given; that is no value itself.
    RESERVED_ATTR = (*cfg.ExperimentConfig.RESERVED_ATTR, "_origins")

    run: RunConfig = dataclasses.field(default_factory=RunConfig)


def load(gin_files: Iterable[str], gin_params: Iterable[str] = ()) -> Experiment:
    """The experiment that gin files describe, locked with all its sections.

    Args:
        gin_files: Names or paths of files, applied in order. A name is looked for in the working
            folder, then among the project's experiments.
        gin_params: `Name.parameter=value` strings, applied in order after the files.

    Raises:
        ConfigError: anything in them that is wrong or has no effect, a line each with its place.
    """
    experiment, origins = gin_build.build(Experiment, gin_files, gin_params)
    experiment.__dict__["_origins"] = origins
    epochs.resolve(experiment)
    for _, section in limits.sections(experiment):
        section.lock()
    return experiment


def validate(experiment: Experiment, *, trains: bool, evaluates: bool) -> None:
    """Checks the ranges and combinations that a mode depends on.

    Args:
        experiment: From `load`, or made in Python.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.

    Raises:
        ConfigError: all that is out of range, a line each, with its place if it was loaded.
    """
    origins = vars(experiment).get("_origins", {})
    found = limits.problems(experiment, origins, trains=trains, evaluates=evaluates)
    if found:
        raise ConfigError("\n".join(found))


def as_yaml(experiment: Experiment) -> str:
    """All values as plain YAML; it loads back to an equal `as_dict()`, with lists for tuples."""
    return yaml.safe_dump(_plain(experiment.as_dict()), sort_keys=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
