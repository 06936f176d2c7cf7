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
    """All that a run is configured with: official's `task`, `trainer` and `runtime`, and `run`."""

    # A loaded experiment also remembers by path where its values were set; that is not a field.
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
        menus: Whether typed values may be of alternatives that are not chosen, as in a study,
            which may choose others.

    Raises:
        ConfigError: everything that is invalid or has no effect, one line each with its place.
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
    """What the sources of a loaded experiment make with further values, as for a study's trial.

    Args:
        experiment: From `load`. Single values that flags set are not part of the result.
        gin_params: As for `load`, after its own.
        overrides: The same.
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
    """The flags of a command with the same configuration; [] if it was not loaded, or has changed.

    Single values that flags set are not among them.
    """
    sources = loading.sources(experiment)
    return sources.arguments() if sources else []


def load_launch(gin_files: Iterable[str], gin_params: Iterable[str]) -> LaunchConfig:
    """What `--launch` is configured with, for a mode that has no experiment.

    Raises:
        ConfigError: as for `load`; nothing but `LaunchConfig` can be set.
    """
    return loading.section(LaunchConfig, gin_files, gin_params)


def from_official(params: cfg.ExperimentConfig) -> Experiment:
    """The same experiment with our section, at its defaults.

    Raises:
        ConfigError: it is for several tasks.
    """
    return loading.adopted(Experiment, params)


def origins(experiment: Experiment) -> Mapping[str, str]:
    """Where each value was set, by path (`trainer.train_steps`); {} if made in Python."""
    return origins_of.of(experiment)


def as_yaml(experiment: Experiment, *, without: Collection[str] = ()) -> str:
    """All values as plain YAML; it loads back to an equal `as_dict()`, with lists for tuples.

    Args:
        experiment: The experiment.
        without: The names of sections to leave out.
    """
    values = printing.plain(experiment)
    return yaml_files.dump({name: values[name] for name in values if name not in without})
