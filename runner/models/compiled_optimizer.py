"""Expresses the optimizer of a compiled Keras model in Model Garden's configuration."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tf_keras

from runner.configuration import optimizer_kinds
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.models import compiled, keras_optimizers

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
    "loss_scale_factor",
    "ema_momentum",
    "ema_overwrite_frequency",
}


def update(
    optimizer: Any, *, averaged: bool = False, excluded: Sequence[str] = ()
) -> dict[str, Any]:
    """The optimizer's type, and its differences from Model Garden's defaults.

    One that Model Garden's configuration cannot express is stored as Keras serializes it.

    Args:
        optimizer: An optimizer of tf_keras or Keras 3.
        averaged: Choose Keras's legacy optimizers, the only ones that Model Garden's averages wrap.
        excluded: The names of variables that it excludes from weight decay.

    Returns:
        Values by their paths in Model Garden's `OptimizationConfig`.

    Raises:
        ConfigError: Model Garden's averages cannot wrap it.
    """
    given = _config(optimizer)
    optimizer = _unscaled(optimizer)
    name = type(optimizer).__name__
    old = averaged or isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)
    kind = (_LEGACY if old else {}).get(name) or _TYPES.get(name, "")
    values = {key: value for key, value in given.items() if key not in _ASIDE}
    known = kind and compiled.is_keras(type(optimizer)) and not excluded
    if known and not given.get("use_ema") and not _unknown("optimizer", kind, values):
        return {"optimizer.type": kind, **_fields("optimizer", kind, values)}
    if averaged:
        raise ConfigError(
            f"OptimizationConfig.ema cannot average the weights of the compiled {name}: set "
            f"OptimizerConfig.type to one of {', '.join(_names(optimizer_kinds.OptimizerConfig))}, "
            "and LrConfig.type"
        )
    return _stored("optimizer", keras_optimizers.serialized(optimizer, excluded))


def rate(optimizer: Any) -> dict[str, Any]:
    """The learning rate, or its schedule, in the same form."""
    schedule = keras_internals.schedule(_unscaled(optimizer))
    if not callable(schedule):
        return {
            "learning_rate.type": "constant",
            "learning_rate.constant.learning_rate": _short(_number(schedule)),
        }
    kind = _SCHEDULES.get(type(schedule).__name__)
    if kind and compiled.is_keras(type(schedule)):
        values = {key: value for key, value in schedule.get_config().items() if key != "name"}
        if not _unknown("learning_rate", kind, values):
            return {"learning_rate.type": kind, **_fields("learning_rate", kind, values)}
    return _stored("learning_rate", keras_optimizers.serialized(schedule))


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
    """The optimizer's configuration. Its learning rate may have none, and is left out."""
    optimizer = _unscaled(optimizer)
    try:
        config: dict[str, Any] = optimizer.get_config()
    except NotImplementedError:  # raised by a schedule without get_config
        return {}
    return config


def _stored(choice: str, text: str) -> dict[str, Any]:
    kind = keras_optimizers.KIND
    return {f"{choice}.type": kind, f"{choice}.{kind}.serialized": text}


def _unknown(choice: str, kind: str, values: Mapping[str, Any]) -> list[str]:
    """The arguments that are set and that the configuration does not have."""
    known = _defaults(choice, kind)
    return [key for key in values if key not in known and values[key] not in (None, False, 0)]


def _fields(choice: str, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that differ from the configuration's defaults, by their paths."""
    known = _defaults(choice, kind)
    return {
        f"{choice}.{kind}.{key}": _short(value)
        for key, value in values.items()
        if key in known and _short(value) != known[key]
    }


def _defaults(choice: str, kind: str) -> dict[str, Any]:
    section = getattr(getattr(optimizer_kinds.optimization_config(), choice), kind)
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}


def _number(rate: Any) -> float:
    """A constant learning rate: a number, or a variable of either Keras."""
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name != "type"]


def _short(value: Any) -> Any:
    """Converts a float32 to its shortest decimal, such as 0.001."""
    if isinstance(value, float | np.floating):
        return float(str(np.float32(value)))
    return list(map(_short, value)) if isinstance(value, list | tuple) else value
