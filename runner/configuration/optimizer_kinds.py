"""Optimizers that Model Garden's configuration lacks: Adadelta and Adamax, which Keras has.

`OptimizerConfig` is Model Garden's with fields for them. Gin files get it wherever they name Model
Garden's, and loaded experiments hold it. Model Garden's class stays as it is. Importing this module
registers the optimizers with Model Garden.
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
    """Adadelta (Zeiler, 2012), as Keras has it. The paper's rate is 1.

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
    """Adamax (Kingma and Ba, 2015): Adam with the infinity norm, as Keras has it.

    Attributes:
        name: The optimizer's name.
        beta_1: The decay of the mean of gradients.
        beta_2: The decay of their largest size.
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
"""The class that stands for each of Model Garden's that this module extends."""


def extend(config: base_config.Config) -> None:
    """Puts an `OptimizerConfig` with equal values in the place of each of Model Garden's."""
    for _, section in list(sections.walk(config)):
        for name, value in vars(section).items():
            if type(value) is optimization.OptimizerConfig:
                made = OptimizerConfig()
                made.__dict__.update(vars(value))
                vars(section)[name] = made


def optimization_config() -> optimization.OptimizationConfig:
    """Model Garden's `OptimizationConfig` at its defaults, with this `OptimizerConfig`."""
    return trainer().optimizer_config


def trainer() -> cfg.TrainerConfig:
    """Model Garden's `TrainerConfig` at its defaults, with this `OptimizerConfig`."""
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
