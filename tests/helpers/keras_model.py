"""A compiled model of either Keras, its data, and a process that trains it until it is killed."""

import multiprocessing
import os
import signal

import numpy as np
import tf_keras
import warm  # noqa: F401, has what the process needs imported before it is forked

import runner

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
SHORT = {"train_steps": 40, "batch_size": 10}


def network(keras=tf_keras, dropout=0.5, units=8, **options):
    layers = keras.layers
    made = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(units, "relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(dropout),
            layers.Dense(3, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"optimizer": keras.optimizers.Adam(0.01), "metrics": ["accuracy"], **options}
    made.compile(loss=loss, **options)
    return made


def killed(start, folder, loops):
    """The exit code of a process that trains `network` and kills itself after so many loops."""
    forks = multiprocessing.get_context("forkserver")
    process = forks.Process(target=_fit, args=(start, str(folder), loops))
    process.start()
    process.join()
    return process.exitcode


def _fit(start, folder, loops):
    model = network()
    model.set_weights(start)
    done = []

    def kill(logs):
        done.append(logs)
        if len(done) == loops:
            os.kill(os.getpid(), signal.SIGKILL)

    data = (X, Y), (X[:17], Y[:17])
    runner.fit(model, *data, model_dir=folder, train_actions=[kill], **SHORT)
