"""Experiments registered by name, in the way that Model Garden registers its own."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from official.core import config_definitions as cfg
from official.core import exp_factory, registry

from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.internals import official as official_internals

OFFICIAL = "official.common.registry_imports"
"""The modules whose import registers Model Garden's own experiments and tasks."""


def experiment(name: str) -> cfg.ExperimentConfig:
    """Returns a new configuration of the experiment registered as `name`.

    Model Garden's vision and language experiments are imported only if the name is not registered
    yet, for example by an import in a gin file.

    Raises:
        ConfigError: if there is no such experiment. The message suggests similar names.
    """
    try:
        return exp_factory.get_exp_config(name)
    except LookupError:
        _import_official()
    try:
        return exp_factory.get_exp_config(name)
    except LookupError:
        known = sorted(names())
        raise ConfigError(
            f"--experiment={name}: no such experiment{did_you_mean(name, known)}\n"
            f"registered are {', '.join(known)}\nFor your own experiment, import its module: "
            "--gin_file=mine.gin, with the line: import my_module"
        ) from None


def names() -> Iterator[str]:
    """Yields the names of all experiments registered so far: `bert/pretraining`."""
    yield from _names(official_internals.registered_experiments(), "")


def task_module(task: cfg.TaskConfig) -> str | None:
    """Returns the module whose import registers the task of a configuration, or None."""
    try:
        return str(
            registry.lookup(official_internals.registered_tasks(), task.__class__).__module__
        )
    except LookupError:
        return None


def _names(collection: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, entry in collection.items():
        if isinstance(entry, Mapping):
            yield from _names(entry, f"{above}{name}/")
        else:
            yield f"{above}{name}"


def _import_official() -> None:
    try:
        importlib.import_module(OFFICIAL)
    except ImportError as error:
        raise ConfigError(
            f"Model Garden's experiments cannot be imported: {error}; is one of the packages "
            "that tf-models-official needs missing?"
        ) from error
