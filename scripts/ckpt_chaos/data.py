"""The examples and the model that all contenders but `task` train."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, STEPS_PER_EPOCH, BATCH = 3, 20, 16


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Returns points [320, 8] float32 and their sums [320, 1]."""
    x = np.random.default_rng(0).normal(size=(STEPS_PER_EPOCH * BATCH, 8))
    return x.astype(np.float32), x.sum(1, keepdims=True).astype(np.float32)


def folder() -> Path:
    """Returns the directory that the command names."""
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    return made


def keras_model() -> Any:
    """Returns a compiled model of Keras 2 with dropout."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    layers = [tf_keras.layers.Dense(16, "tanh"), tf_keras.layers.Dropout(0.1)]
    model = tf_keras.Sequential([tf_keras.Input((8,)), *layers, tf_keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model
