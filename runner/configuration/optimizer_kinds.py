"""Two Keras optimizers that Model Garden's configuration lacks, Adadelta and Adamax.

This `OptimizerConfig` is Model Garden's class with fields for them. Gin files get it when they name
Model Garden's class, and loaded experiments hold it. Model Garden's class stays unchanged.
Importing this module registers the optimizers with Model Garden.
"""

import contextlib
import dataclasses
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
class OptimizerConfig(optimization.OptimizerConfig):
    """Model Garden's choice of an optimizer, with two more.

    Attributes:
        adadelta: Adadelta.
        adamax: Adamax.
    """

    adadelta: AdadeltaConfig = dataclasses.field(default_factory=AdadeltaConfig)
    adamax: AdamaxConfig = dataclasses.field(default_factory=AdamaxConfig)


EXTENDED: Mapping[type, type] = {optimization.OptimizerConfig: OptimizerConfig}
"""The classes in this module that replace those of Model Garden."""


def extend(config: base_config.Config) -> None:
    """Replaces each of Model Garden's `OptimizerConfig` objects by an equal one of this class."""
    for _, section in list(sections.walk(config)):
        for name, value in vars(section).items():
            if type(value) is optimization.OptimizerConfig:
                made = OptimizerConfig()
                made.__dict__.update(vars(value))
                vars(section)[name] = made


def optimization_config() -> optimization.OptimizationConfig:
    """Returns Model Garden's `OptimizationConfig` at its defaults, with this `OptimizerConfig`."""
    return trainer().optimizer_config


def trainer() -> cfg.TrainerConfig:
    """Returns Model Garden's `TrainerConfig` at its defaults, with this `OptimizerConfig`."""
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
