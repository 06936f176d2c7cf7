"""Models, losses and optimizers that only the script knows, in `runner.fit` and back again.

Each model has several things that a configuration cannot express. It is trained without a stop, and
with a stop and a resume by a model that is built anew, as in a script that runs again.
"""

import importlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import runner
from runner import errors

X = np.random.default_rng(0).normal(size=(48, 6)).astype(np.float32)
Y = X[:, :3].argmax(1)
DATA = {"x": X, "y": Y, "validation_data": (X[:20], Y[:20]), "batch_size": 12, "epochs": 2}


def crossentropy(factor):
    def loss(labels, logits):
        labels = tf.cast(labels, tf.int32)
        return factor * tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(labels, [-1]), logits
        )

    return loss


def own_metric(keras):
    class Largest(keras.metrics.Metric):
        def __init__(self, name="largest", **more):
            super().__init__(name=name, **more)
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, labels, logits, sample_weight=None):
            self.value.assign(tf.maximum(self.value, tf.reduce_max(logits)))

        def result(self):
            return self.value + 0.0

    return Largest()


def from_a_cell(keras):
    """A class without a configuration, with a closure, a lambda, its own metric, an added loss."""

    class Network(keras.Model):
        def __init__(self, parts):
            super().__init__()
            self.parts = parts

        def call(self, x):
            for part in self.parts:
                x = part(x)
            self.add_loss(0.01 * tf.reduce_mean(x**2))
            return x

    class Warmup(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.01 * tf.minimum(1.0, (tf.cast(step, tf.float32) + 1) / 5)

    layers = keras.layers
    model = Network([layers.Dense(8, "relu"), layers.Dropout(0.3), layers.Dense(3)])
    metrics = [own_metric(keras), "accuracy", lambda labels, logits: tf.reduce_mean(logits, -1)]
    optimizer = keras.optimizers.Nadam(Warmup())
    model.compile(optimizer, loss=crossentropy(2.0), metrics=metrics)
    return model


def own_steps(keras):
    """Its own train_step, with a loss tracker, and in Keras 3 an optimizer that tf_keras lacks."""

    class Network(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.penalty = keras.metrics.Mean("penalty")

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                outputs = self(x, training=True)
                penalty = tf.reduce_mean(outputs**2)
                loss = self.compute_loss(x=x, y=y, y_pred=outputs) + 0.01 * penalty
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            self.penalty.update_state(penalty)
            return {**self.compute_metrics(x, y, outputs, None), "loss": loss}

    inputs = keras.Input((6,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(8, "relu")(inputs))
    model = Network(inputs, keras.layers.Dense(3, "softmax")(hidden))
    kinds = keras.optimizers
    optimizer = kinds.Muon(0.01) if hasattr(kinds, "Muon") else kinds.Lion(0.01)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


KINDS = {"from a cell": from_a_cell, "own steps": own_steps}


@pytest.fixture(
    scope="module", params=[(kind, name) for name in ("tf_keras", "keras") for kind in KINDS]
)
def made(request, tmp_path_factory):
    """A run that was stopped and resumed, its model, and that of a run that was not stopped."""
    kind, name = request.param
    keras = importlib.import_module(name)

    def fit(folder, **more):
        keras.utils.set_random_seed(1)
        model = KINDS[kind](keras)
        results = runner.fit(model, **DATA, model_dir=folder, verbose=0, **more)
        return model, results

    folder = tmp_path_factory.mktemp("runs")
    whole, expected = fit(folder / "whole")
    _, stopped = fit(folder / "stopped", train_actions=[lambda _: "enough"])
    assert stopped["status"] == "stopped"
    model, results = fit(folder / "stopped")
    assert results["metrics"] == expected["metrics"]
    return keras, kind, model, whole, results


def test_a_resume_is_bit_exact(made):
    _, _, model, whole, _ = made
    for one, other in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_values_of_own_steps_are_those_of_keras_whatever_their_weights_and_names(name, tmp_path):
    keras = importlib.import_module(name)

    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones")
            self.plain = keras.metrics.Mean("tracker")  # logged by another name
            self.masked = keras.metrics.Mean("masked")
            self.each = keras.metrics.Mean("each")
            self.root = keras.metrics.Mean("root")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            return self.test_step(data)

        def test_step(self, data):
            x, _ = data
            value = tf.abs(self(x))
            self.plain.update_state(tf.reduce_mean(value))
            self.masked.update_state(value, sample_weight=tf.cast(x >= 3, tf.float32))
            self.each.update_state(value)
            self.root.update_state(value)
            return {
                "loss": self.masked.result(),
                "value": self.plain.result(),
                "each": self.each.result(),
                "root": tf.sqrt(self.root.result()),
            }

    x = np.arange(12, dtype=np.float32)[:, None]
    given = {"x": x, "y": x, "batch_size": 4, "shuffle": False, "validation_data": (x, x)}
    given |= {"validation_batch_size": 8, "verbose": 0}
    models = [Network() for _ in range(2)]
    for model in models:
        model(x[:1])
        model.compile("sgd")
    expected = models[0].fit(**given).history
    found = runner.fit(models[1], **given, model_dir=tmp_path).history
    names = (
        "value",
        "each",
        "root",
        *(f"val_{each}" for each in ("loss", "value", "each", "root")),
    )
    assert {each: found[each] for each in names} == {
        each: pytest.approx(expected[each]) for each in names
    }
    assert found["val_loss"] == pytest.approx([7.0])


def test_the_model_stays_compiled_and_scores_what_the_history_says(made):
    _, _, model, _, results = made
    scores = model.evaluate(*DATA["validation_data"], verbose=0, return_dict=True)
    assert scores["accuracy"] == pytest.approx(results.history["val_accuracy"][-1])
    assert scores["loss"] == pytest.approx(results.history["val_loss"][-1], rel=1e-5)
    assert len(results.history["loss"]) == len(results.epoch) == 2


def test_its_own_metrics_are_logged_in_training_and_validation(made):
    _, kind, _, _, results = made
    names = {"from a cell": ["largest", "<lambda>"], "own steps": ["penalty"]}[kind]
    for name in names:
        assert len(results.history[name]) == 2
    if kind == "from a cell":
        assert results.history["val_largest"][-1] > 0


def test_it_is_loaded_back_with_the_help_of_a_model(made):
    keras, kind, model, _, results = made
    with pytest.raises(errors.ConfigError):  # its class is in a function
        runner.load_model(results.model_dir)
    loaded = runner.load_model(results.model_dir, "latest", model=KINDS[kind](keras))
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    scores = loaded.evaluate(X, Y, verbose=0, return_dict=True)
    assert scores["accuracy"] == model.evaluate(X, Y, verbose=0, return_dict=True)["accuracy"]


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_a_vocabulary_is_loaded_back_without_help_and_exported(name):
    keras = importlib.import_module(name)
    texts = np.array(["good film", "bad film", "great", "awful"] * 6)
    layer = keras.layers.TextVectorization(20, output_sequence_length=4)
    layer.adapt(texts)
    inputs = keras.Input((1,) if keras is tf_keras else (), dtype="string")
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 4)(layer(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("adam", loss="binary_crossentropy")
    labels = np.array([1, 0, 1, 0] * 6)
    runner.fit(model, texts, labels, model_dir="run", epochs=1, batch_size=8, verbose=0)
    loaded = runner.load_model("run")
    given = tf.constant(texts[:4])
    np.testing.assert_array_equal(loaded(given), model(given))
    assert loaded.optimizer.get_config()["name"].lower().startswith("adam")
    assert runner.run(None, "run", "export", validation=(texts, labels))["exports"][0]["accepted"]


def test_metrics_of_keras_3_get_the_labels_and_the_names_that_they_have_there():
    keras = importlib.import_module("keras")
    shapes = set()

    class Own(keras.metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            shapes.add((len(y_true.shape), sample_weight is not None and len(sample_weight.shape)))
            super().update_state(keras.ops.abs(y_true - y_pred[:, 0]), sample_weight)

    def own(y_true, y_pred):
        return keras.ops.abs(y_true - y_pred[:, 0])

    def build():
        layers = [keras.Input((X.shape[1],)), keras.layers.Dense(1, "sigmoid", name="p")]
        made = keras.Sequential(layers)
        made.set_weights([np.full((X.shape[1], 1), 0.5), np.zeros(1)])
        metrics = ["AUC", "MeanAbsoluteError", "mae", "Accuracy", own, Own(name="mine")]
        made.compile("sgd", "mse", metrics=metrics, weighted_metrics=[Own(name="weighted")])
        return made

    labels, weight = (X[:, 0] > 0).astype("float32"), np.linspace(1, 2, len(X))
    options = {"sample_weight": weight, "batch_size": len(X), "shuffle": False, "verbose": 0}
    theirs = build().fit(X, labels, epochs=2, **options).history
    assert shapes == {(1, False), (1, 1)}
    ours = runner.fit(build(), X, labels, epochs=2, model_dir="run", **options).history
    assert shapes == {(1, False), (1, 1)}
    assert set(theirs) <= set(ours)
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_layers_of_a_module_are_loaded_back_and_weights_start_another_run(
    name, tmp_path, monkeypatch
):
    keras = importlib.import_module(name)
    (tmp_path / f"of_{name}.py").write_text(
        f"import {name} as keras\n\n\n"
        "class Scale(keras.layers.Layer):\n"
        "    def build(self, shape):\n"
        "        self.scale = self.add_weight(name='scale', shape=(shape[-1],))\n\n"
        "    def call(self, x):\n"
        "        return x * self.scale\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scale = importlib.import_module(f"of_{name}").Scale

    def fitted(folder, **options):
        layers = [keras.Input((X.shape[1],)), scale(), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        runner.fit(model, X, X[:, :1], model_dir=folder, epochs=1, verbose=0, **options)
        return model

    model = fitted("first")
    loaded = runner.load_model("first")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    start = "SupervisedConfig.init_checkpoint = 'first'"
    still = "OptimizerConfig.type = 'sgd'", "LrConfig.type = 'constant'"
    rate = "ConstantLrConfig.learning_rate = 0.0"
    second = fitted("second", gin_params=[start, *still, rate])
    np.testing.assert_array_equal(second.predict(X, verbose=0), model.predict(X, verbose=0))


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_an_export_takes_the_inputs_that_the_model_declares(name):
    keras = importlib.import_module(name)
    x = np.random.default_rng(0).integers(1, 20, size=(32, 12))
    tokens = keras.Input((None,), name="tokens")
    hidden = keras.layers.LSTM(4)(keras.layers.Embedding(20, 3)(tokens))
    model = keras.Model(tokens, keras.layers.Dense(1, name="score")(hidden))
    model.compile("adam", "mse")
    runner.fit(model, x, x[:, :1], model_dir="run", epochs=1, verbose=0)
    (made,) = runner.run(None, "run", "export", validation=(x, x[:, :1]))["exports"]
    served = tf.saved_model.load(made["path"]).signatures["serving_default"]
    assert served.structured_input_signature[1]["tokens"].shape.as_list() == [None, None]
    longer = np.concatenate([x, x[:, ::-1]], axis=1)
    found = served(tokens=tf.constant(longer, tf.float32))["score"]
    np.testing.assert_allclose(found, model.predict(longer, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_logits_of_one_output_are_averaged_as_probabilities(name):
    keras = importlib.import_module(name)
    labels = (X[:, :1] > 0).astype("float32")
    shares = []
    for number in range(2):
        keras.utils.set_random_seed(number)
        model = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=[keras.metrics.BinaryAccuracy(name="a", threshold=0)])
        data = {"validation_data": (X, labels), "verbose": 0}
        runner.fit(model, X, labels, model_dir=f"{number}", epochs=1, **data)
        shares.append(1 / (1 + np.exp(-model.predict(X, verbose=0).astype(float))))
    mean = np.mean(shares, 0)
    expected = -np.mean(np.log(np.where(labels > 0, mean, 1 - mean)))
    found = runner.run(None, "mean", "ensemble", runs=["0", "1"], validation=(X, labels))
    assert found["mean"]["metrics"]["validation_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_metrics_for_one_hot_labels_take_class_numbers_and_keras_3s_names(name):
    keras = importlib.import_module(name)
    model = keras.Sequential([keras.layers.Dense(3, "softmax")])
    metrics = [keras.metrics.F1Score(average="macro")]
    model.compile("sgd", loss="sparse_categorical_crossentropy", metrics=metrics)
    results = runner.fit(model, **DATA, model_dir="classes", verbose=0)
    assert 0 < results.history["val_f1_score"][-1] <= 1
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", metrics=["r2_score"])
    results = runner.fit(model, X, X[:, :1], model_dir="numbers", verbose=0)
    assert len(results.history["r2_score"]) == 1


@pytest.mark.parametrize(
    ("name", "activation"), [("tf_keras", None), ("keras", None), ("keras", "softmax")]
)
def test_logits_for_a_loss_of_probabilities_are_noted(name, activation, capsys):
    keras = importlib.import_module(name)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation)])
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    runner.fit(model, X, Y, model_dir="run", epochs=1, dry_run=True)
    assert ("from_logits" in capsys.readouterr().err) == (activation is None)


def test_a_mode_takes_the_model_whose_classes_cannot_be_found(made):
    keras, kind, _, _, results = made
    given = {"validation": DATA["validation_data"], "checkpoint": "latest"}
    found = runner.run(None, results.model_dir, "eval", model=KINDS[kind](keras), **given)
    assert found["metrics"] == pytest.approx(results["metrics"], rel=1e-5)


def test_a_model_with_its_own_steps_and_added_losses_is_exported(made):
    keras, kind, _, _, results = made
    given = {"validation": DATA["validation_data"], "model": KINDS[kind](keras)}
    (export,) = runner.run(None, results.model_dir, "export", checkpoint="latest", **given)[
        "exports"
    ]
    assert export["accepted"]
