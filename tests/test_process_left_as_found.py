"""The functions that Python calls leave the process with the settings that the caller chose."""

import os
import random
import threading

import gin
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import exp_factory, task_factory
from official.utils.testing import mock_task  # noqa: F401, registers its experiment

import runner
from runner.core import signals
from runner.errors import ConfigError

SHORT = {"trainer": {"train_steps": 4, "checkpoint_interval": 4, "validation_interval": 4}}


@gin.configurable
def configured(value=1):
    return value


@pytest.fixture
def chosen():
    """Settings of a caller's, none of which is what a run wants; and what reads them all."""
    gin.clear_config()
    gin.bind_parameter("configured.value", 7)
    tf_keras.utils.set_random_seed(5)
    generator = tf.random.Generator.from_seed(9)
    tf.random.set_global_generator(generator)
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    step = tf.Variable(11, dtype=tf.int64)
    tf.summary.experimental.set_step(step)
    random.random(), np.random.random()
    yield settings
    gin.clear_config()
    tf.summary.experimental.set_step(None)


def settings():
    """What Python code can see of the process; drawing is what shows a random state."""
    states = random.getstate(), np.random.get_state()[1].tolist()
    generator = tf.random.get_global_generator()
    seen = {
        "python": states[0],
        "numpy": states[1],
        "generator": generator.state.numpy().tolist(),
        "policy": tf_keras.mixed_precision.global_policy().name,
        "eager": tf.config.functions_run_eagerly(),
        "step": tf.summary.experimental.get_step(),
        "generators": tf_keras.backend.experimental.is_tf_random_generator_enabled(),
        "gin": configured(),
        "gin's text": gin.config_str(),
        "TF_CONFIG": os.environ.get("TF_CONFIG"),
        "handlers": signals.signal.getsignal(signals.signal.SIGTERM),
    }
    seen["tensorflow"] = drawn(), drawn()
    seen["keras"] = tf_keras.layers.Dense(2, dtype="float32")(tf.ones((1, 3))).numpy().tolist()
    random.setstate(states[0])
    unseeded_crop()
    return seen


def drawn():
    """A random number of a new graph, which depends on the global seed alone and on its op."""
    return float(tf.function(lambda: tf.random.uniform([]))())


def unseeded_crop():
    """Raises if ops must be deterministic."""
    box = tf.zeros((1, 1, 4))
    tf.image.sample_distorted_bounding_box([8, 8, 3], box, use_image_if_no_bounding_boxes=True)


def load(tmp_path):
    runner.load("digits.gin", ["TrainerConfig.train_steps = 7"])


def load_what_is_wrong(tmp_path):
    with pytest.raises(ConfigError):
        runner.load("digits.gin", ["TrainerConfig.steps = 7"])


def run(tmp_path):
    runner.run(toy.experiment(SHORT), tmp_path / "run", "train_and_eval")


def run_in_half_precision(tmp_path):
    more = {"runtime": {"mixed_precision_dtype": "float16"}, **SHORT}
    runner.run(toy.experiment(more), tmp_path / "run", "train")


def run_eagerly(tmp_path):
    runner.run(
        toy.experiment({"runtime": {"run_eagerly": True}, **SHORT}), tmp_path / "run", "train"
    )


def run_that_fails(tmp_path):
    def broken(logs):
        raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError):
        runner.run(toy.experiment(SHORT), tmp_path / "run", "train", train_actions=[broken])


def once(number):
    """An action that sends a signal to this process; a second one would end it at once."""
    sent = []

    def send(logs):
        if not sent:
            sent.append(number)
            signals.signal.raise_signal(number)

    return send


def run_that_is_interrupted(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        runner.run(
            toy.experiment(SHORT | {"trainer": {"steps_per_loop": 1, "train_steps": 50}}),
            tmp_path / "run",
            "train",
            train_actions=[once(signals.signal.SIGINT)],
        )


def run_in_a_thread(tmp_path):
    thread = threading.Thread(target=run, args=(tmp_path,))
    thread.start()
    thread.join()


def run_within_a_run(tmp_path):
    def inner(logs):
        runner.run(toy.experiment(SHORT), tmp_path / "inner", "train")

    runner.run(toy.experiment(SHORT), tmp_path / "outer", "train", train_actions=[inner])


def fit(tmp_path):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse")
    points = np.zeros((8, 3), np.float32), np.zeros((8, 1), np.float32)
    runner.fit(model, points, model_dir=tmp_path / "run", train_steps=2)


def run_experiment(tmp_path):
    params = exp_factory.get_exp_config("mock")
    learning_rate = {"type": "constant", "constant": {"learning_rate": 0.1}}
    params.override(
        {
            "trainer": {
                **{"train_steps": 2, "steps_per_loop": 2, "checkpoint_interval": 2},
                **{"validation_steps": 1, "validation_interval": 2, "summary_interval": 2},
                "optimizer_config": {"optimizer": {"type": "sgd"}, "learning_rate": learning_rate},
            }
        }
    )
    task = task_factory.get_task(params.task)
    strategy = tf.distribute.get_strategy()
    runner.run_experiment(strategy, task, "train_and_eval", params, str(tmp_path / "run"))


@pytest.mark.parametrize(
    "call",
    [
        load,
        load_what_is_wrong,
        run,
        run_in_half_precision,
        run_eagerly,
        run_that_fails,
        run_that_is_interrupted,
        run_in_a_thread,
        run_within_a_run,
        fit,
        run_experiment,
    ],
)
def test_a_call_leaves_the_callers_settings(call, chosen, tmp_path):
    tf_keras.utils.set_random_seed(5)
    expected = chosen()
    tf_keras.utils.set_random_seed(5)
    call(tmp_path)
    assert chosen() == expected


def test_the_callers_handler_of_a_signal_is_called_once_all_is_saved(tmp_path):
    seen = []

    def handler(number, frame):
        seen.append((number, len(list((tmp_path / "run").glob("ckpt-*.index")))))

    before = signals.signal.signal(signals.signal.SIGTERM, handler)
    try:
        with pytest.raises(signals.Interrupted):
            runner.run(
                toy.experiment({"trainer": {"steps_per_loop": 3}}),
                tmp_path / "run",
                "train",
                train_actions=[once(signals.signal.SIGTERM)],
            )
        assert signals.signal.getsignal(signals.signal.SIGTERM) is handler
    finally:
        signals.signal.signal(signals.signal.SIGTERM, before)
    assert seen == [(signals.signal.SIGTERM, 1)]
