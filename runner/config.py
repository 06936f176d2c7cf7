"""The experiment's configuration: dataclasses, built by gin, validated and locked."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from official.core import config_definitions as cfg

from runner.configuration import (
    epochs,
    gin_builder,
    printing,
    registry,
    schedules,
    sections,
    validation,
    yaml_files,
)
from runner.configuration import origins as origins_of
from runner.configuration.overrides import apply
from runner.errors import ConfigError
from runner.internals import official as official_internals
from runner.run_config import RunConfig as RunConfig

_MULTITASK = "official.modeling.multitask.configs"


@dataclasses.dataclass
class Experiment(cfg.ExperimentConfig):
    """All that a run is configured with: official's `task`, `trainer` and `runtime`, and `run`."""

    # A loaded experiment also remembers by path where its values were set; that is not a field.
    RESERVED_ATTR = (*cfg.ExperimentConfig.RESERVED_ATTR, origins_of.ATTRIBUTE)

    run: RunConfig = dataclasses.field(default_factory=RunConfig)


def load(
    gin_files: Iterable[str] = (),
    gin_params: Iterable[str] = (),
    *,
    experiment: str | None = None,
    config_files: Iterable[str] = (),
    overrides: Iterable[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    trains: bool | None = None,
    evaluates: bool | None = None,
) -> Experiment:
    """Loads an experiment, locked with all its sections.

    Later values override earlier ones, in the order of the arguments.

    Args:
        gin_files: Names or paths of files, applied in order. A name is looked for in the working
            folder, then among the project's experiments.
        gin_params: `Name.parameter=value` strings, applied in order after the files.
        experiment: The name of a registered experiment, which gin then modifies.
        config_files: YAML or JSON files, applied in order.
        overrides: As for `--params_override`, applied in order.
        flags: Single values by path, each with the flag that set it.
        trains: Whether the mode trains, for validation; None: no validation.
        evaluates: Whether the mode evaluates.

    Raises:
        ConfigError: everything that is invalid or has no effect, one line each with its place.
    """
    gin_files, gin_params = list(gin_files), list(gin_params)
    made, (places, problems) = _begun(experiment, gin_files, gin_params)
    loading = origins_of.remember(made, places)
    for read in _layers(config_files, overrides, flags or {}):
        try:
            loading.places |= apply(made, read())
        except ConfigError as error:
            problems.append(str(error))
    try:
        loading.resolved = resolve(made)
    except ConfigError as error:
        problems.append(str(error))
    if trains is not None and evaluates is not None:
        loading.validated = (trains, evaluates)
        problems += validation.problems(
            made, trains=trains, evaluates=evaluates, given_only=bool(problems)
        )
    if not problems:
        problems += _restricted(made)
    if problems:
        raise ConfigError("\n".join(problems))
    for _, section in sections.walk(made):
        section.lock()
    return made


def prepare(experiment: Experiment, *, trains: bool, evaluates: bool) -> list[str]:
    """Resolves and validates an experiment for a mode, unless loading it did so already.

    Args:
        experiment: From `load`, a changed copy of one, or made in Python.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.

    Returns:
        Lines that show the derived values.

    Raises:
        ConfigError: everything that is invalid, one line each, with its place if it was loaded.
    """
    loading = origins_of.loading(experiment)
    as_loaded = loading is not None and official_internals.is_locked(
        experiment
    )  # and so it has not changed
    lines = loading.resolved if loading and as_loaded else resolve(experiment)
    if not (loading and as_loaded and loading.validated == (trains, evaluates)):
        validate(experiment, trains=trains, evaluates=evaluates)
    return lines


def resolve(experiment: Experiment) -> list[str]:
    """Sets the values derived from lengths in epochs and from the run's length. Idempotent.

    Returns:
        Lines that show the derived values.

    Raises:
        ConfigError: as `epochs.resolve` does.
    """
    lines = epochs.resolve(experiment)
    schedules.follow(experiment)
    return lines


def _begun(
    name: str | None, gin_files: list[str], gin_params: list[str]
) -> tuple[Experiment, gin_builder.Made]:
    """The registered experiment, or the one that gin builds."""
    if name is None:
        return gin_builder.build(Experiment, gin_files, gin_params)
    gin_builder.import_modules(gin_files, gin_params)
    made = from_official(registry.experiment(name))
    return made, gin_builder.override(made, gin_files, gin_params)


def from_official(params: cfg.ExperimentConfig) -> Experiment:
    """The same experiment with our section, at its defaults.

    Raises:
        ConfigError: it is for several tasks, or has sections that this runner does not read.
    """
    if isinstance(params, Experiment):
        return params
    if any(kind.__module__ == _MULTITASK for kind in type(params).__mro__):
        raise ConfigError(
            f"{type(params).__name__}: multitask experiments are not supported: a run trains and "
            "evaluates one task (RunConfig.evaluation_sets evaluates further data of it); "
            "official.modeling.multitask.train_lib runs them"
        )
    names = [name for name in vars(params) if name not in params.RESERVED_ATTR]
    if more := set(names) - {"task", "trainer", "runtime"}:
        raise ConfigError(
            f"{type(params).__name__} has sections that this runner does not know: "
            f"{', '.join(sorted(more))}"
        )
    made = Experiment(task=params.task, trainer=params.trainer, runtime=params.runtime)
    official_internals.restrict(made, official_internals.restrictions(params))
    return made


def _restricted(made: Experiment) -> Iterator[str]:
    """The violated restrictions of an experiment, such as `task.train_data.is_training != None`."""
    if not official_internals.restrictions(made):
        return
    try:
        made.validate()
    except KeyError as error:  # what official raises
        yield str(error.args[0])


def _layers(
    config_files: Iterable[str], overrides: Iterable[str], flags: Mapping[str, tuple[str, Any]]
) -> Iterator[Callable[[], yaml_files.Layer]]:
    for file in config_files:
        yield functools.partial(yaml_files.read_file, Path(file))
    for text in overrides:
        yield functools.partial(yaml_files.read_override, text)
    for path, (flag, value) in flags.items():
        yield functools.partial(yaml_files.single, path, value, flag)


def validate(experiment: Experiment, *, trains: bool, evaluates: bool) -> None:
    """Checks the ranges and combinations that a mode depends on.

    Args:
        experiment: From `load`, or made in Python.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.

    Raises:
        ConfigError: everything out of range, one line each, with its place if it was loaded.
    """
    if problems := validation.problems(experiment, trains=trains, evaluates=evaluates):
        raise ConfigError("\n".join(problems))


def origins(experiment: Experiment) -> Mapping[str, str]:
    """Where each value was set, by path (`trainer.train_steps`); {} if made in Python."""
    return origins_of.of(experiment)


def as_yaml(experiment: Experiment) -> str:
    """All values as plain YAML; it loads back to an equal `as_dict()`, with lists for tuples."""
    return yaml_files.dump(printing.plain(experiment))
