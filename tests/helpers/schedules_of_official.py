"""Each optimizer and schedule of official's, and the rates that it promises."""

import tensorflow as tf
from official.modeling import optimization
from official.modeling.optimization import optimizer_factory

from runner.configuration import optimizer_kinds

OPTIMIZERS = [
    name
    for name, made in optimizer_factory.LEGACY_OPTIMIZERS_CLS.items()
    if not isinstance(made, str) and hasattr(optimization.OptimizerConfig(), name)
]


SCHEDULES = {
    "constant": {"learning_rate": 0.1},
    "stepwise": {"boundaries": [1, 3], "values": [0.1, 0.05, 0.01]},
    "exponential": {"initial_learning_rate": 0.1, "decay_steps": 2, "decay_rate": 0.5},
    "polynomial": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "cosine": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "power": {"initial_learning_rate": 0.1},
    "power_linear": {"initial_learning_rate": 0.1, "total_decay_steps": 10},
    "power_with_offset": {"initial_learning_rate": 0.1, "offset": 1, "pre_offset_learning_rate": 1},
    "step_cosine_with_offset": {"boundaries": [0, 5], "values": [0.1, 0.05]},
}


WARMUPS = {
    None: {},
    "linear": {"warmup_steps": 6, "warmup_learning_rate": 0.01},
    "polynomial": {"warmup_steps": 6, "power": 2.0},
}


SCALE, FLOOR, STEPS = 0.25, 0.02, 4


def config(kind, rate="constant", warmup=None, **fields):
    chosen = {
        "optimizer": {"type": kind},
        "learning_rate": {"type": rate, rate: SCHEDULES[rate]},
        "warmup": {"type": warmup, **({warmup: WARMUPS[warmup]} if warmup else {})},
        **fields,
    }
    made = optimizer_kinds.optimization_config()
    made.override(chosen)
    return made


def scheduled(chosen, step):
    """The rate that official's own schedule gives."""
    rate = optimizer_factory.OptimizerFactory(chosen).build_learning_rate()
    return float(rate(tf.constant(step))) if callable(rate) else rate


def in_force(rate):
    """What the documentation promises."""
    return max(SCALE * rate, min(rate, FLOOR))
