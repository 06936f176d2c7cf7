"""Keras optimizers and schedules that Model Garden's configuration lacks.

Adadelta and Adamax have fields. Any other one is stored as Keras serializes it, which `runner.fit`
does for a compiled model. This `OptimizerConfig` and this `LrConfig` are Model Garden's classes
with fields for them. Gin files get them when they name Model Garden's classes, and loaded
experiments hold them. Model Garden's classes stay unchanged. Importing this module registers
Adadelta and Adamax with Model Garden.
"""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Mapping

import tf_keras
from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.hyperparams import base_config
from official.modeling.optimization import optimizer_factory
from official.modeling.optimization.configs import optimizer_config

from runner.configuration import sections


@dataclasses.dataclass
class AdadeltaConfig(optimizer_config.BaseOptimizerConfig):
    """Adadelta (Zeiler, 2012), as in Keras. The paper's learning rate is 1.

    Attributes:
        name: The optimizer's name.
        rho: The decay of both means.
        epsilon: Keeps denominators from 0.
    """

    name: str = "Adadelta"
    rho: float = 0.95
    epsilon: float = 1e-7


@dataclasses.dataclass
class AdamaxConfig(optimizer_config.BaseOptimizerConfig):
    """Adamax (Kingma and Ba, 2015), which is Adam with the infinity norm, as in Keras.

    Attributes:
        name: The optimizer's name.
        beta_1: The decay of the mean of gradients.
        beta_2: The decay of their largest magnitude.
        epsilon: Keeps denominators from 0.
    """

    name: str = "Adamax"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7


@dataclasses.dataclass
class KerasOptimizerConfig(optimizer_config.BaseOptimizerConfig):
    """Any other optimizer of tf_keras or Keras 3, such as Nadam, Lion or Muon.

    Attributes:
        serialized: The class and its arguments without the learning rate, as JSON: {"module":
            "tf_keras.optimizers", "class_name": "Nadam", "config": {}}. `runner.fit` sets it.
    """

    serialized: str = ""


@dataclasses.dataclass
class KerasLrConfig(base_config.Config):
    """Any other schedule of tf_keras or Keras 3, such as CosineDecayRestarts.

    Attributes:
        serialized: The class and its arguments, as JSON. `runner.fit` sets it.
    """

    serialized: str = ""


@dataclasses.dataclass
class OptimizerConfig(optimization.OptimizerConfig):
    """Model Garden's choice of an optimizer, with more.

    Attributes:
        adadelta: Adadelta.
        adamax: Adamax.
        keras: Any other optimizer of Keras.
    """

    adadelta: AdadeltaConfig = dataclasses.field(default_factory=AdadeltaConfig)
    adamax: AdamaxConfig = dataclasses.field(default_factory=AdamaxConfig)
    keras: KerasOptimizerConfig = dataclasses.field(default_factory=KerasOptimizerConfig)


@dataclasses.dataclass
class LrConfig(optimization.LrConfig):
    """Model Garden's choice of a learning rate schedule, with more.

    Attributes:
        keras: Any other schedule of Keras.
    """

    keras: KerasLrConfig = dataclasses.field(default_factory=KerasLrConfig)


EXTENDED: Mapping[type, type] = {
    optimization.OptimizerConfig: OptimizerConfig,
    optimization.LrConfig: LrConfig,
}
"""The classes in this module that replace those of Model Garden."""


def extend(config: base_config.Config) -> None:
    """Replaces each of Model Garden's objects by an equal one of a class in this module."""
    for _, section in list(sections.walk(config)):
        for name, value in vars(section).items():
            if kind := EXTENDED.get(type(value)):
                made = kind()
                made.__dict__.update(vars(value))
                vars(section)[name] = made


def optimization_config() -> optimization.OptimizationConfig:
    """Returns Model Garden's `OptimizationConfig` at its defaults, with these classes."""
    return trainer().optimizer_config


def trainer() -> cfg.TrainerConfig:
    """Returns Model Garden's `TrainerConfig` at its defaults, with these classes."""
    return copy.deepcopy(_trainer())


@functools.cache
def _trainer() -> cfg.TrainerConfig:
    """Returns the original of the copies. Building it takes 30 times as long as copying it."""
    config = cfg.TrainerConfig()
    extend(config)
    return config


def _register() -> None:
    """Registers the optimizers with Model Garden, unless another library did so."""
    legacy, new = tf_keras.optimizers.legacy, tf_keras.optimizers.experimental
    for key, name in (("adadelta", "Adadelta"), ("adamax", "Adamax")):
        for module, is_legacy in ((legacy, True), (new, False)):
            with contextlib.suppress(ValueError):
                optimizer_factory.register_optimizer_cls(key, getattr(module, name), is_legacy)


_register()
