"""Optimizers that official's configuration lacks: Adadelta and Adamax, which Keras has.

Importing this adds them to official's `OptimizerConfig`, for every experiment, and gives the
Adafactor that it names an implementation.
"""

import dataclasses

import tf_keras
from official.modeling.optimization.configs import optimizer_config

from runner.internals import official as official_internals


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


_legacy, _new = tf_keras.optimizers.legacy, tf_keras.optimizers.experimental
official_internals.add_optimizer("adadelta", AdadeltaConfig, _legacy.Adadelta, _new.Adadelta)
official_internals.add_optimizer("adamax", AdamaxConfig, _legacy.Adamax, _new.Adamax)
official_internals.add_adafactor()
