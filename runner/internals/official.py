"""Private names of tf-models-official. tests/internals reports names that a new version lacks."""

from collections.abc import Mapping
from typing import Any

import tf_keras
from official.core import exp_factory, task_factory
from official.modeling import optimization
from official.modeling.hyperparams import base_config


def averaged(ema: optimization.ExponentialMovingAverage) -> tf_keras.optimizers.Optimizer:
    """Returns the optimizer whose weights a moving average averages."""
    return ema._optimizer


def registered_experiments() -> Mapping[str, Any]:
    """Returns what `register_config_factory` has registered, nested at the slashes of the names."""
    return exp_factory._REGISTERED_CONFIGS


def registered_tasks() -> Mapping[Any, Any]:
    """Returns what `register_task_cls` has registered."""
    return task_factory._REGISTERED_TASK_CLS


def restrictions(config: base_config.Config) -> list[str]:
    """Returns a configuration's restrictions on its values, such as `task.name != None`."""
    return config._restrictions


def restrict(config: base_config.Config, restrictions: list[str]) -> None:
    """Sets a configuration's restrictions on its values."""
    vars(config)["_restrictions"] = restrictions


def is_locked(config: base_config.Config) -> bool:
    """Returns whether `Config.lock()` was called."""
    return config._locked


def unlock(config: base_config.Config) -> None:
    """Undoes `Config.lock()` for this config only."""
    config._locked  # noqa: B018, fails if it is gone
    config._locked = False
