"""`runner.fit` trains and scores as Keras's `fit` does when it gets the same arguments."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import runner

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
ONE_HOT = np.eye(3, dtype=np.float32)[Y]
WEIGHT = np.linspace(0.1, 2, 60, dtype=np.float32)
CLASSES = {0: 1.0, 1: 3.0, 2: 0.5}
HELD_OUT = (X[45:], Y[45:])


def network(keras=tf_keras, loss="sparse_categorical_crossentropy"):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.set_weights([np.linspace(-1, 1, 12).reshape(4, 3), np.zeros(3)])
    model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy"])
    return model


def same(ours, theirs):
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


ORDERED = {"batch_size": 15, "epochs": 2, "shuffle": False, "verbose": 0}


@pytest.mark.parametrize(
    ("arrays", "arguments"),
    [
        ((X, Y), {"sample_weight": WEIGHT, "validation_data": HELD_OUT, "validation_freq": 2}),
        ((X, Y), {"class_weight": CLASSES, "validation_split": 0.25, "validation_steps": 1}),
        ((X, ONE_HOT), {"class_weight": CLASSES, "steps_per_epoch": 4}),
        ((X, Y), {"class_weight": CLASSES, "sample_weight": WEIGHT, "validation_split": 0.25}),
    ],
)
def test_arguments_mean_what_they_mean_in_keras(arrays, arguments):
    loss = "sparse_categorical_crossentropy" if arrays[1] is Y else "categorical_crossentropy"
    ours, theirs = network(loss=loss), network(loss=loss)
    results = runner.fit(ours, *arrays, model_dir="run", **ORDERED, **arguments)
    found = theirs.fit(*arrays, **ORDERED, **arguments).history
    same(ours, theirs)
    if "val_loss" in found:
        assert results["metrics"]["validation_loss"] == pytest.approx(found["val_loss"][-1])
        assert results["metrics"]["accuracy"] == pytest.approx(found["val_accuracy"][-1])


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((tf.constant(X), tf.constant(Y)), {"batch_size": 15, "epochs": 2}),
        ((X,), {"y": list(Y), "batch_size": 15, "epochs": 2}),
        ((), {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(15), "epochs": 2}),
    ],
)
def test_data_are_taken_in_every_form(positional, named):
    ours, theirs = network(), network()
    runner.fit(ours, *positional, model_dir="run", shuffle=False, **named)
    theirs.fit(X, Y, **ORDERED)
    same(ours, theirs)


def test_tables_are_taken():
    pandas = pytest.importorskip("pandas")
    ours, theirs = network(), network()
    x, y = pandas.DataFrame(X), pandas.Series(Y, name="label")
    runner.fit(ours, x, y, model_dir="run", **ORDERED)
    theirs.fit(X, Y, **ORDERED)
    same(ours, theirs)


@pytest.mark.parametrize("weight", [(), (WEIGHT,)])
def test_classes_of_a_dataset_are_weighted(weight):
    ours, theirs = network(), network()
    data = tf.data.Dataset.from_tensor_slices((X, Y, *weight)).batch(15)
    runner.fit(ours, data, epochs=2, model_dir="run", class_weight=CLASSES)
    shared = {**ORDERED, "class_weight": CLASSES}  # tf_keras fails with a dataset of weights
    theirs.fit(X, Y, **shared, sample_weight=weight[0] if weight else None)
    same(ours, theirs)


def test_several_inputs_and_outputs_are_taken_as_lists():
    def built():
        inputs = [tf_keras.Input((4,), name=name) for name in ("a", "b")]
        both = tf_keras.layers.Add()(inputs)
        outputs = [
            tf_keras.layers.Dense(1, kernel_initializer="ones", name=name)(both)
            for name in ("c", "d")
        ]
        model = tf_keras.Model(inputs, outputs)
        model.compile(tf_keras.optimizers.SGD(0.01), "mse")
        return model

    ours, theirs = built(), built()
    data = [X, X[::-1]], [X[:, :1], X[:, 1:2]]
    runner.fit(ours, *data, model_dir="run", **ORDERED)
    theirs.fit(*data, **ORDERED)
    same(ours, theirs)


@pytest.mark.parametrize("library", ["tf_keras", "keras"])
def test_weights_that_fit_creates_follow_the_seed_of_the_script(library):
    keras = pytest.importorskip(library)

    def built(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    for seed in (1, 2):
        theirs = built(seed)
        theirs.fit(X, Y, **ORDERED)
        ours = built(seed)
        runner.fit(ours, X, Y, model_dir=f"run{seed}", **ORDERED)
        same(ours, theirs)


def test_without_a_length_it_is_one_epoch(capfd):
    assert runner.fit(network(), X, Y, 15, model_dir="run", verbose=0)["step"] == 4
    assert "ETA" not in capfd.readouterr().err
