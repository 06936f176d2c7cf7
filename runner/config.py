"""The experiment's configuration: dataclasses, built by gin, validated and locked."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from official.core import config_definitions as cfg
from official.modeling.multitask import configs

from runner.configuration import loading, optimizer_kinds, printing, yaml_files
from runner.configuration import origins as origins_of
from runner.configuration.loading import prepare as prepare
from runner.configuration.loading import resolve as resolve
from runner.configuration.loading import validate as validate
from runner.configuration.unchosen import check as check_chosen  # noqa: F401
from runner.errors import ConfigError
from runner.run_config import LaunchConfig
from runner.run_config import RunConfig as RunConfig


@dataclasses.dataclass
class Experiment(cfg.ExperimentConfig):
    """The configuration of a run: Model Garden's `task`, `trainer` and `runtime`, and `run`."""

    # A loaded experiment also records by path where its values were set. That is not a field.
    RESERVED_ATTR = (*cfg.ExperimentConfig.RESERVED_ATTR, origins_of.ATTRIBUTE)

    task: cfg.TaskConfig | configs.MultiTaskConfig = dataclasses.field(
        default_factory=cfg.TaskConfig
    )
    trainer: cfg.TrainerConfig = dataclasses.field(default_factory=optimizer_kinds.trainer)
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
    menus: bool = False,
) -> Experiment:
    """Loads an experiment and locks it with all its config classes.

    Later values override earlier ones, in the order of the arguments.

    Args:
        gin_files: Names or paths of files, applied in order. A name is looked for in the working
            directory, then among the project's experiments.
        gin_params: `Name.parameter=value` strings, applied in order after the files.
        experiment: The name of a registered experiment, which gin then modifies.
        config_files: YAML or JSON files, applied in order.
        overrides: As for `--params_override`, applied in order.
        flags: Single values by path, each with the flag that set it.
        trains: Whether the mode trains, for validation. None skips validation.
        evaluates: Whether the mode evaluates.
        menus: Whether command-line values may belong to alternatives that are not chosen. A study
            needs this because it may choose others.

    Raises:
        ConfigError: if a value is invalid or has no effect. The message has one line for each, with
            its location.
    """
    sources = loading.Sources(
        experiment,
        list(gin_files),
        list(gin_params),
        list(config_files),
        list(overrides),
        flags or {},
    )
    mode = None if trains is None or evaluates is None else (trains, evaluates)
    return loading.load(Experiment, sources, mode, menus=menus)


def again(
    experiment: Experiment,
    gin_params: Iterable[str] = (),
    overrides: Iterable[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Experiment:
    """Builds the experiment again from its sources and further values, as for a study's trial.

    Args:
        experiment: From `load`. The result does not include single values that flags set.
        gin_params: As for `load`, applied after the experiment's own.
        overrides: As for `load`, applied after the experiment's own.
        flags: As for `load`.

    Raises:
        ConfigError: as for `load`.
    """
    sources = loading.sources(experiment)
    if sources is None:
        raise ConfigError("the configuration was changed since it was loaded: use runner.load")
    return load(
        sources.gin_files,
        [*sources.gin_params, *gin_params],
        experiment=sources.experiment,
        config_files=sources.config_files,
        overrides=[*sources.overrides, *overrides],
        flags=flags,
        trains=True,
        evaluates=True,
        menus=True,
    )


def arguments(experiment: Experiment) -> list[str]:
    """Returns the flags of a command with the same configuration.

    The list is empty if the configuration was not loaded or has changed since. It does not include
    single values that flags set.
    """
    sources = loading.sources(experiment)
    return sources.arguments() if sources else []


def load_launch(gin_files: Iterable[str], gin_params: Iterable[str]) -> LaunchConfig:
    """Loads the configuration of `--launch`, for a mode that has no experiment.

    Raises:
        ConfigError: as for `load`, or if anything other than `LaunchConfig` is set.
    """
    return loading.section(LaunchConfig, gin_files, gin_params)


def from_official(params: cfg.ExperimentConfig) -> Experiment:
    """Returns the same experiment with this runner's config class at its defaults.

    Raises:
        ConfigError: if the experiment is for several tasks.
    """
    return loading.adopted(Experiment, params)


def origins(experiment: Experiment) -> Mapping[str, str]:
    """Returns where each value was set, by path (`trainer.train_steps`).

    The mapping is empty if the experiment was made in Python.
    """
    return origins_of.of(experiment)


def as_yaml(experiment: Experiment, *, without: Collection[str] = ()) -> str:
    """Returns all values as plain YAML.

    It loads back to an equal `as_dict()`, with lists in place of tuples.

    Args:
        experiment: The experiment.
        without: The names of config classes to leave out.
    """
    values = printing.plain(experiment)
    return yaml_files.dump({name: values[name] for name in values if name not in without})
