"""Builds an experiment from all sources of its values, then resolves, validates and locks it."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration import (
    disabled_sets,
    epochs,
    gin_builder,
    multitask,
    optimizer_kinds,
    origins,
    overrides,
    registry,
    schedules,
    sections,
    unchosen,
    validation,
    yaml_files,
)
from runner.errors import ConfigError
from runner.internals import official as official_internals

C = TypeVar("C", bound=base_config.Config)
E = TypeVar("E", bound=cfg.ExperimentConfig)


class Sources(NamedTuple):
    """The sources of an experiment's values. Later ones override earlier ones.

    Attributes:
        experiment: The name of a registered experiment, if gin modifies one.
        gin_files: Names or paths.
        gin_params: `Name.parameter=value` strings.
        config_files: Paths of YAML or JSON files.
        overrides: As for `--params_override`.
        flags: Single values by path, each with the flag that set it.
    """

    experiment: str | None
    gin_files: list[str]
    gin_params: list[str]
    config_files: list[str]
    overrides: list[str]
    flags: Mapping[str, tuple[str, Any]]

    def arguments(self) -> list[str]:
        """Returns the flags of a command with the same configuration, without single values."""
        found = [f"--experiment={self.experiment}"] if self.experiment else []
        for flag, values in (
            ("gin_file", self.gin_files),
            ("gin_params", self.gin_params),
            ("config_file", self.config_files),
            ("params_override", self.overrides),
        ):
            found += [f"--{flag}={value}" for value in values]
        return found

    def layers(self) -> Iterator[Callable[[], yaml_files.Layer]]:
        """Yields a function that reads each layer of values applied after gin."""
        for file in self.config_files:
            yield functools.partial(yaml_files.read_file, Path(file))
        for text in self.overrides:
            yield functools.partial(yaml_files.read_override, text)
        for path, (flag, value) in self.flags.items():
            yield functools.partial(yaml_files.single, path, value, flag)


def load(
    root: type[E], sources: Sources, mode: tuple[bool, bool] | None, *, menus: bool = False
) -> E:
    """Loads an experiment and locks it with all its nested configs.

    Args:
        root: Its class.
        sources: The sources of its values.
        mode: Whether the mode trains, and whether it evaluates. None skips validation.
        menus: Whether command-line values may belong to alternatives that are not chosen.

    Raises:
        ConfigError: if a value is invalid or has no effect. The message has one line for each, with
            its location.
    """
    made, (places, problems) = _begun(root, sources)
    loading = origins.remember(made, places)
    loading.sources = sources
    for read in sources.layers():
        try:
            new = overrides.apply(made, read())
            kept = {
                path: loading.places[path]
                for path in loading.places
                if path.partition("[")[0] not in new
            }
            loading.places = kept | new  # drops the origins in a replaced list
        except ConfigError as error:
            problems.append(str(error))
    disabled_sets.remove(made, loading.places)
    early = [] if problems or mode is None else _found_early(made, evaluates=mode[1])
    try:
        loading.resolved = resolve(made, counts=not (problems or early))
    except ConfigError as error:
        problems.append(str(error))
    if early and any(epochs.given(made)):  # lengths in epochs are not yet known in steps
        problems += early
    elif mode is not None:
        loading.validated = mode
        trains, evaluates = mode
        problems += validation.problems(
            made, trains=trains, evaluates=evaluates, given_only=bool(problems)
        )
    if not menus:
        problems += unchosen.typed(made).values()
    if problems := problems or _violated(made):
        raise ConfigError("\n".join(problems))
    for _, section in sections.walk(made):
        section.lock()
    return made


def section(kind: type[C], gin_files: Iterable[str], gin_params: Iterable[str]) -> C:
    """Returns a single config, set by gin and checked by itself.

    Raises:
        ConfigError: if a value is invalid. The message has one line for each, with its location.
    """
    made = kind()
    places, problems = gin_builder.override(made, gin_files, gin_params)
    if problems := [*problems, *validation.of_section(made, places)]:
        raise ConfigError("\n".join(problems))
    return made


def adopted(root: type[E], params: cfg.ExperimentConfig) -> E:
    """Returns a Model Garden experiment as a `root`, whose further configs get their defaults."""
    if isinstance(params, root):
        return params
    made = root(task=params.task, trainer=params.trainer, runtime=params.runtime)
    known = {*vars(made), *(["eval_tasks"] if isinstance(params, multitask.MULTI_EVAL) else [])}
    more = {name: value for name, value in params.as_dict().items() if name not in known}
    made.override(more, is_strict=False)  # the user's own configs, which only the record shows
    official_internals.restrict(made, official_internals.restrictions(params))
    optimizer_kinds.extend(made)
    if isinstance(params, multitask.MULTI_EVAL):
        multitask.evaluate_only(made, params.eval_tasks)
    return made


def prepare(experiment: cfg.ExperimentConfig, *, trains: bool, evaluates: bool) -> list[str]:
    """Resolves and validates an experiment for a mode, unless loading it did so already.

    Args:
        experiment: The result of `load`, a changed copy of one, or an experiment made in Python.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.

    Returns:
        Lines that show the derived values.

    Raises:
        ConfigError: if a value is invalid. The message has one line for each, with its location if
            it was loaded.
    """
    loading = origins.loading(experiment)
    as_loaded = sources(experiment) is not None
    lines = loading.resolved if loading and as_loaded else resolve(experiment)
    if not (loading and as_loaded and loading.validated == (trains, evaluates)):
        validate(experiment, trains=trains, evaluates=evaluates)
    return lines


def sources(experiment: cfg.ExperimentConfig) -> Sources | None:
    """Returns an experiment's sources, or None if it was not loaded or has changed since."""
    loading = origins.loading(experiment)
    return loading.sources if loading and official_internals.is_locked(experiment) else None


def _found_early(made: cfg.ExperimentConfig, *, evaluates: bool) -> list[str]:
    """Returns the mistakes found before counting examples, for which files may be fetched."""
    rows = validation.problems(made, trains=False, evaluates=evaluates, given_only=True)
    return [*rows, *validation.of_data(made, trains=True, evaluates=evaluates)]


def resolve(experiment: cfg.ExperimentConfig, *, counts: bool = True) -> list[str]:
    """Sets the values derived from lengths in epochs, the run's length and tasks. Idempotent.

    Args:
        experiment: All values.
        counts: Whether examples are counted. If not, lengths in epochs stay as they are.

    Returns:
        Lines that show the derived values.

    Raises:
        ConfigError: as `epochs.resolve` does.
    """
    disabled_sets.remove(experiment)
    multitask.follow(experiment)
    lines = epochs.resolve(experiment, counts=counts)
    schedules.follow(experiment)
    return lines


def validate(experiment: cfg.ExperimentConfig, *, trains: bool, evaluates: bool) -> None:
    """Checks the ranges and combinations that a mode depends on.

    Args:
        experiment: The result of `load`, or an experiment made in Python.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.

    Raises:
        ConfigError: if a value is out of range. The message has one line for each, with its
            location if it was loaded.
    """
    if problems := validation.problems(experiment, trains=trains, evaluates=evaluates):
        raise ConfigError("\n".join(problems))


def _begun(root: type[E], sources: Sources) -> tuple[E, gin_builder.Made]:
    """Returns the experiment that gin builds, or the registered one that gin modifies."""
    if sources.experiment is None:
        made, result = gin_builder.build(root, sources.gin_files, sources.gin_params)
        optimizer_kinds.extend(made)
        return made, result
    gin_builder.import_modules(sources.gin_files, sources.gin_params)
    made = adopted(root, registry.experiment(sources.experiment))
    return made, gin_builder.override(made, sources.gin_files, sources.gin_params)


def _violated(made: cfg.ExperimentConfig) -> list[str]:
    """Returns the violated restriction, such as `task.train_data.is_training != None`."""
    try:
        if official_internals.restrictions(made):
            made.validate()
        return []
    except KeyError as error:  # raised by Model Garden
        return [str(error.args[0])]
