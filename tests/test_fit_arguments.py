"""The arguments of Keras's `fit` and `compile` that `runner.fit` takes, or names the place of."""

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import runner
from runner.command import fit_arguments
from runner.errors import ConfigError

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = X.sum(axis=1)
SHORT = {"train_steps": 3, "batch_size": 40}


def network(keras=tf_keras, optimizer="sgd"):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.set_weights([np.full((3, 1), 0.5), np.zeros(1)])
    model.compile(optimizer, "mse")
    return model


def told(**arguments):
    with pytest.raises(ConfigError) as caught:
        runner.fit(network(), model_dir="run", **SHORT, **arguments)
    (line,) = str(caught.value).splitlines()
    return line


def of_keras():
    for kind in (tf_keras.Model, pytest.importorskip("keras").Model):
        yield from inspect.signature(kind.fit).parameters
        yield from inspect.signature(kind.compile).parameters


OURS = {"self", "kwargs", *inspect.signature(runner.fit).parameters}
ODD = {"auto_scale_loss", "pss_evaluation_shards"}  # of compile; nothing here is like them


def test_the_first_arguments_are_in_the_order_of_keras():
    _, *ours = inspect.signature(runner.fit).parameters
    assert ours[2:4] == list(inspect.signature(tf_keras.Model.fit).parameters)[3:5]


def test_every_other_argument_of_keras_is_named_with_its_replacement():
    for name in {*of_keras()} - OURS - ODD:
        line = told(**{name: [1]})
        assert name in line
        assert "did you mean" not in line
        assert ":" in line


def test_an_unknown_argument_gets_the_name_that_was_meant():
    assert "'overwrite'" in told(overwite="run")
    assert "'callbacks'" in told(callback=[])
    assert "nonsense" in told(nonsense=3)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"initial_epoch": 3}, "resumes"),
        ({"shuffle": "batch"}, "shuffle"),
        ({"verbose": 7}, "verbose"),
        ({"validation_freq": [1, 10]}, "interval"),
        ({"validation_steps": 0}, "above 0"),
        ({"validation_split": 1.5}, "fraction"),
        ({"validation_split": 0.99}, "none"),
        ({"y": Y, "train": None}, "without x"),
        ({"x": X}, "twice"),
        ({"class_weight": [1, 2]}, "dict"),
        ({"class_weight": {"a": 1}}, "numbers"),
        ({"steps_per_epoch": 2}, "epochs"),
        ({"callbacks": [tf_keras.callbacks.History]}, "History()"),
        ({"callbacks": print}, "train_actions"),
        ({"validation": (X, Y), "validation_data": (X, Y)}, "either"),
    ],
)
def test_a_value_without_a_meaning_here_is_explained(arguments, word):
    assert word in told(**{"train": (X, Y), **arguments})


def settings():
    """What the messages tell to set in gin_params."""
    texts = fit_arguments._INSTEAD.values()
    quoted = [each for text in texts for each in re.findall(r"'([\w/.]+ = [^']+)'", text)]
    return [each.replace("...", "2") for each in quoted]


def test_the_settings_that_messages_name_are_taken():
    eager = "RuntimeConfig.run_eagerly = True"
    rest = [each for each in settings() if each != eager]
    assert len(rest) == 3
    for params in (rest, [eager]):
        options = {"epochs": 2, "batch_size": 40, "dry_run": True, "gin_params": params}
        fitted = runner.fit(network(), (X, Y), (X, Y), model_dir="run", **options)
        assert fitted["status"] == "rehearsed"


@pytest.mark.parametrize(
    ("kind", "name", "every"),
    [
        ("arrays", "TrainerConfig", 2),
        ("arrays", "EpochsConfig", 8),
        ("dataset", "TrainerConfig", 2),
    ],
)
def test_an_interval_of_the_user_replaces_that_of_the_epoch(kind, name, every):
    data = (X, Y) if kind == "arrays" else tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    params = [f"{name}.{each}_interval = 2" for each in ("checkpoint", "summary", "validation")]
    options = {"epochs": 4, "gin_params": params, "verbose": 0}
    options |= {"batch_size": 10} if kind == "arrays" else {}
    runner.fit(network(), data, (X, Y), model_dir="run", **options)
    found = runner.Run("run")
    assert found.training["step"][0] == found.evaluations[0].step == every


def test_a_large_loss_is_trained_as_in_keras():
    model = network()
    results = runner.fit(model, X, 1e6 + Y, epochs=1, model_dir="run", verbose=0)
    assert results["status"] == "done"
    assert results.history["loss"][0] > 1e6


def test_a_model_of_keras_3_that_is_not_compiled_is_named():
    keras = pytest.importorskip("keras")
    with pytest.raises(ConfigError) as caught:
        runner.fit(keras.Sequential([keras.layers.Dense(1)]), X, Y, model_dir="run")
    assert "optimizer" in str(caught.value)


CONFIGURED = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax"]
OPTIMIZERS = [  # each one once in each library: once by its name, and once as an object
    *(("tf_keras", name, None) for name in CONFIGURED[::2]),
    *(("keras", name, None) for name in CONFIGURED[1::2]),
    *(("keras", name, {}) for name in CONFIGURED[::2]),
    *(("tf_keras", name, {}) for name in CONFIGURED[1::2]),
    ("tf_keras", "AdamW", {"weight_decay": 0.1, "clipnorm": 0.5}),
    ("keras", "AdamW", {"weight_decay": 0.1, "clipvalue": 0.5}),
    ("tf_keras", "AdamW", {"weight_decay": 0.1, "global_clipnorm": 0.5}),
    ("keras", "SGD", {"momentum": 0.9, "nesterov": True, "global_clipnorm": 0.5}),
    ("keras", "SGD", {"loss_scale_factor": 64.0}),
    ("keras", "SGD", {"momentum": 0.5, "use_ema": True}),
    ("keras", "Adam", {"use_ema": True, "ema_overwrite_frequency": 2}),
    ("keras", "Nadam", {}),
    ("keras", "Ftrl", {}),
    ("keras", "Lion", {}),
    ("keras", "Adafactor", {}),
    ("keras", "Lamb", {}),
    ("keras", "RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("keras", "Adagrad", {"weight_decay": 0.1, "gradient_accumulation_steps": 2}),
    ("tf_keras", "SGD", {"momentum": 0.5, "use_ema": True}),
    ("tf_keras", "Ftrl", {}),
    ("tf_keras", "Lion", {}),
]


@pytest.mark.parametrize(("library", "name", "arguments"), OPTIMIZERS)
def test_an_optimizer_trains_as_in_keras(library, name, arguments, tmp_path):
    keras = pytest.importorskip(library)

    def optimizer():
        if arguments is None:
            return name.lower()
        return getattr(keras.optimizers, name)(learning_rate=0.01, **arguments)

    plain, model = network(keras, optimizer()), network(keras, optimizer())
    for _ in range(3):
        plain.train_on_batch(X, Y)
    if (arguments or {}).get("use_ema"):
        plain.optimizer.finalize_variable_values(plain.trainable_variables)
    runner.fit(model, (X, Y), model_dir=tmp_path / "run", **SHORT)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
