"""Completes a configuration with the optimizer of a task's compiled model."""

from typing import Any

from runner.config import Experiment
from runner.configuration import origins, task_contract, unchosen
from runner.devices import strategy
from runner.errors import ConfigError
from runner.models import compiled_optimizer
from runner.runs import build
from runner.runs.call import Given

_PLACE = "compile() of the model"


def bring_optimizer(experiment: Experiment) -> None:
    """Sets the optimizer and the learning rate if the configuration names none.

    A task's config class sets `brings_optimizer` to declare that its task has a method
    `compiled_optimizer`. The model is built only to call it.

    Raises:
        ConfigError: the model has no optimizer, or one that Model Garden's configuration cannot
            express, or a value was set for another optimizer. It is also raised for several
            workers, which must be connected before a model is built.
    """
    chosen = experiment.trainer.optimizer_config
    if not getattr(experiment.task, "brings_optimizer", False):
        return
    if chosen.optimizer.type and chosen.learning_rate.type:
        return
    if several := strategy.workers(experiment.runtime):
        raise ConfigError(
            f"{several.size} workers cannot take the optimizer from {_PLACE}: set "
            "OptimizerConfig.type, LrConfig.type and the learning rate"
        )
    build.build_devices(experiment, Given())
    task: Any = task_contract.build_task(experiment.task, "")
    optimizer = task.compiled_optimizer()
    found: dict[str, Any] = {}
    if not chosen.learning_rate.type:
        found |= compiled_optimizer.rate(optimizer)
    if not chosen.optimizer.type:
        found |= compiled_optimizer.update(optimizer, averaged=chosen.ema is not None)
    for path, value in found.items():
        field = origins.field(experiment, f"trainer.optimizer_config.{path}")
        if not field.place:  # bypasses the lock, like a schedule that follows the run's length
            vars(field.section)[field.name] = value
            origins.of(experiment)[field.origin] = _PLACE
    unchosen.check(experiment, within=unchosen.BROUGHT)
