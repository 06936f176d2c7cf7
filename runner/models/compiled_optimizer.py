"""Expresses a compiled Keras model's optimizer in Model Garden's configuration."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tf_keras
from official.modeling import optimization

from runner.configuration import optimizer_kinds
from runner.core import user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals

_TYPES = {
    "SGD": "sgd_experimental",
    "Adam": "adam_experimental",
    "AdamW": "adamw_experimental",
    "RMSprop": "rmsprop",
    "Adagrad": "adagrad",
    "Adadelta": "adadelta",
    "Adamax": "adamax",
}
_LEGACY = {"SGD": "sgd", "Adam": "adam"}
_SCHEDULES = {
    "CosineDecay": "cosine",
    "ExponentialDecay": "exponential",
    "PolynomialDecay": "polynomial",
    "PiecewiseConstantDecay": "stepwise",
}
# Fields that do not affect the update, or that belong to other parts of the result.
_ASIDE = {
    "name",
    "learning_rate",
    "is_legacy_optimizer",
    "jit_compile",
    "ema_momentum",
    "ema_overwrite_frequency",
}


def update(optimizer: Any, *, averaged: bool = False) -> dict[str, Any]:
    """The optimizer's type, and its differences from Model Garden's defaults.

    Args:
        optimizer: An optimizer of tf_keras or Keras 3.
        averaged: Choose Keras's legacy optimizers, the only ones that Model Garden's averages wrap.

    Returns:
        Values by their paths in Model Garden's `OptimizationConfig`.

    Raises:
        ConfigError: Model Garden's configuration cannot express it.
    """
    given = _config(optimizer)
    optimizer = _unscaled(optimizer)
    name = type(optimizer).__name__
    old = averaged or isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)
    kind = (_LEGACY if old else {}).get(name) or _TYPES.get(name)
    if kind is None:
        raise ConfigError(
            f"the model is compiled with {name}, which the configuration does not have: set "
            f"OptimizerConfig.type to one of {', '.join(_names(optimizer_kinds.OptimizerConfig))}, "
            "and LrConfig.type"
        )
    values = {key: value for key, value in given.items() if key not in _ASIDE}
    return {"optimizer.type": kind, **_fields("optimizer", kind, values, name)}


def rate(optimizer: Any) -> dict[str, Any]:
    """The learning rate, or its schedule, in the same form."""
    given = _config(optimizer)["learning_rate"]
    if not isinstance(given, Mapping):
        return {
            "learning_rate.type": "constant",
            "learning_rate.constant.learning_rate": _short(given),
        }
    name = given["class_name"]
    if name not in _SCHEDULES:
        raise ConfigError(
            f"the model's learning rate is a {name}, which the configuration does not have: set "
            f"LrConfig.type to one of {', '.join(_names(optimization.LrConfig))}"
        )
    kind = _SCHEDULES[name]
    values = {key: value for key, value in given["config"].items() if key != "name"}
    return {"learning_rate.type": kind, **_fields("learning_rate", kind, values, name)}


def as_gin(values: Mapping[str, Any]) -> Iterator[str]:
    """Bindings of such values: `AdamConfig.beta_1 = 0.8`."""
    for path, value in values.items():
        *above, field = path.split(".")
        section = functools.reduce(getattr, above, optimizer_kinds.optimization_config())
        yield f"{type(section).__name__}.{field} = {value!r}"


def _unscaled(optimizer: Any) -> Any:
    """The optimizer inside the loss scale that Keras, like Model Garden, adds for float16."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _config(optimizer: Any) -> dict[str, Any]:
    optimizer = _unscaled(optimizer)
    try:
        config: dict[str, Any] = optimizer.get_config()
    except NotImplementedError as error:  # raised by a schedule
        schedule = type(keras_internals.schedule(optimizer))
        raise ConfigError(
            f"{user_code.place(schedule)}: the model's learning rate is a {schedule.__name__}, "
            "which has no get_config(): compile the model with one of Keras's schedules, or with a "
            f"constant, and set LrConfig.type to one of {', '.join(_names(optimization.LrConfig))}"
        ) from error
    return config


def _fields(choice: str, kind: str, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = getattr(getattr(optimizer_kinds.optimization_config(), choice), kind)
    known = {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    for key, value in values.items():
        if key not in known and value not in (None, False, 0):
            raise ConfigError(
                f"{name}({key}={value}) of the compiled model is not in the configuration: compile "
                "without it, or set OptimizerConfig.type and LrConfig.type"
            )
    return {
        f"{choice}.{kind}.{key}": _short(value)
        for key, value in values.items()
        if key in known and _short(value) != known[key]
    }


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name != "type"]


def _short(value: Any) -> Any:
    """Converts a float32 to its shortest decimal, such as 0.001."""
    if isinstance(value, float | np.floating):
        return float(str(np.float32(value)))
    return list(map(_short, value)) if isinstance(value, list | tuple) else value
