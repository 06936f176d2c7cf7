"""Private names of tf-models-official. tests/internals reports those that a new version lacks."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import tf_keras
from official.core import exp_factory, task_factory
from official.modeling import optimization
from official.modeling.hyperparams import base_config
from official.modeling.optimization import optimizer_factory

from runner.internals import adafactor


def averaged(ema: optimization.ExponentialMovingAverage) -> tf_keras.optimizers.Optimizer:
    """The optimizer whose weights a moving average averages."""
    return ema._optimizer


def registered_experiments() -> Mapping[str, Any]:
    """What `register_config_factory` has registered, nested at the slashes of the names."""
    return exp_factory._REGISTERED_CONFIGS


def registered_tasks() -> Mapping[Any, Any]:
    """What `register_task_cls` has registered."""
    return task_factory._REGISTERED_TASK_CLS


def restrictions(config: base_config.Config) -> list[str]:
    """The restrictions that a configuration puts on its values, such as `task.name != None`."""
    return config._restrictions


def restrict(config: base_config.Config, restrictions: list[str]) -> None:
    """Sets the restrictions that a configuration puts on its values."""
    vars(config)["_restrictions"] = restrictions


def is_locked(config: base_config.Config) -> bool:
    """Whether `Config.lock()` was called."""
    return config._locked


def unlock(config: base_config.Config) -> None:
    """Undoes `Config.lock()`, for this section alone."""
    config._locked  # noqa: B018, fails if it is gone
    config._locked = False


def evaluate_annotations_once() -> None:
    """Evaluates a class's annotations once: official does it for each value that is set."""
    evaluate = base_config.Config._get_annotations.__func__
    cached: Any = functools.cache(evaluate)
    base_config.Config._get_annotations = classmethod(cached)


def add_optimizer(name: str, config: type[base_config.Config], legacy: type, new: type) -> None:
    """Adds a field to official's `OptimizerConfig`, in place: experiments refer to that class.

    Args:
        name: The field, and the value of `type` that chooses it.
        config: The field's class.
        legacy: The optimizer of Keras's old kind, which official builds by default.
        new: That of the new kind.
    """
    kind = optimization.OptimizerConfig
    optimizer_factory.LEGACY_OPTIMIZERS_CLS[name] = legacy
    optimizer_factory.NEW_OPTIMIZERS_CLS[name] = new
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING:
            setattr(kind, field.name, dataclasses.field(default_factory=field.default_factory))
    kind.__annotations__[name] = config
    setattr(kind, name, dataclasses.field(default_factory=config))
    for made in ("__init__", "__repr__", "__eq__", "__match_args__"):
        with contextlib.suppress(AttributeError):
            delattr(kind, made)
    dataclasses.dataclass(kind)


def add_adafactor() -> None:
    """Puts an optimizer in the place of official's text "Unimplemented"."""
    for kinds in (
        optimizer_factory.LEGACY_OPTIMIZERS_CLS,
        optimizer_factory.NEW_OPTIMIZERS_CLS,
    ):
        kinds["adafactor"] = adafactor.Adafactor
