"""Restores the process settings that a run changes, for the program that called it."""

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from runner.internals import gin as gin_internals
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals

_VARIABLES = (
    "TF_CONFIG",
    "TF_GPU_THREAD_COUNT",
    "TF_GPU_THREAD_MODE",
    "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT",
)


def _environment() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in _VARIABLES}


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (_environment, _set_environment),
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (tf_internals.random_state, tf_internals.set_random_state),
    (keras_internals.layer_seeds, keras_internals.set_layer_seeds),
    (keras_internals.draws_from_generators, keras_internals.set_draws_from_generators),
    (tf_internals.is_deterministic, tf_internals.set_deterministic),
    (tf_keras.mixed_precision.global_policy, tf_keras.mixed_precision.set_global_policy),
    (tf.config.functions_run_eagerly, tf.config.run_functions_eagerly),
    (tf_internals.cross_entropy, tf_internals.replace_cross_entropy),
    (tf.summary.experimental.get_step, tf.summary.experimental.set_step),
    (gin_internals.bindings, gin_internals.set_bindings),
)
"""The functions that read and set each setting."""


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restores the settings of the process at the end of the block.

    These are determinism, precision, eager mode, the random states of Python, NumPy, TensorFlow and
    Keras, Keras's random generators, the cross-entropy op, TensorFlow's summary step, gin's
    bindings, and the environment variables that a run sets. Blocks may be nested. TensorFlow cannot
    undo threads, logical devices and connected workers.
    """
    with contextlib.ExitStack() as stack:
        for read, write in _SETTINGS:
            stack.callback(write, read())
        yield
