"""The kinds of data that `runner.fit` takes, besides arrays."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf
import tf_keras
from wording import saying

import runner
from runner.errors import ConfigError

keras = pytest.importorskip("keras")

X = np.random.default_rng(0).normal(size=(44, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)


def network(library=tf_keras, width=4, outputs=3, **inputs):
    layers = library.layers
    model = library.Sequential([library.Input((width,), **inputs), layers.Dense(outputs)])
    model.compile("sgd", "mse" if outputs == 1 else of_logits(library), metrics=["mae"])
    return model


def of_logits(library):
    return library.losses.SparseCategoricalCrossentropy(from_logits=True)


def by_name(library=tf_keras):
    parts = [library.Input((1,), name=name) for name in ("age", "pay")]
    outputs = library.layers.Dense(1)(library.layers.concatenate(parts))
    model = library.Model(parts, outputs)
    model.compile("sgd", "mse")
    return model


def autoencoder(library):
    """A model whose steps take x alone."""

    class Autoencoder(library.Model):
        def __init__(self):
            super().__init__()
            self.tracker = library.metrics.Mean(name="loss")
            self.dense = library.layers.Dense(4, kernel_initializer="ones")
            self.dense.build((None, 4))

        @property
        def metrics(self):
            return [self.tracker]

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.dense(data) - data) ** 2)
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return self.tracked(loss)

        def test_step(self, data):
            return self.tracked(tf.reduce_mean((self.dense(data) - data) ** 2))

        def tracked(self, loss):
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    model = Autoencoder()
    model.compile(library.optimizers.Adam(0.1))
    return model


class Noisy:
    """Batches with random numbers, in an order that changes with each epoch."""

    def __init__(self):
        super().__init__()
        self.order = np.arange(44)

    def __len__(self):
        return 5

    def __getitem__(self, number):
        rows = self.order[number * 10 :][:10]
        return X[rows] + np.random.normal(size=(len(rows), 1)), Y[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class TfKerasSequence(Noisy, tf_keras.utils.Sequence):
    pass


class Keras3PyDataset(Noisy, keras.utils.PyDataset):
    pass


def batches():
    for start in range(0, 40, 10):
        yield X[start : start + 10], Y[start : start + 10]


def stop(logs):
    del logs
    return "enough"


def resumes_exactly(library, data, *same, **length):
    """Trains once, and again with a stop after the first loop, also on other forms of the data."""
    model = network(library)
    start = model.get_weights()
    grid = ["TrainerConfig.checkpoint_interval = 3", "TrainerConfig.validation_interval = 3"]
    length["gin_params"] = grid
    whole = runner.fit(model, data(), (X, Y), model_dir="once", **length)
    for number, form in enumerate((data, *same)):
        often, folder = network(library), f"often{number}"
        often.set_weights(start)
        once = runner.fit(often, form(), (X, Y), model_dir=folder, train_actions=[stop], **length)
        assert once["step"] < whole["step"]
        often.set_weights(start)
        again = runner.fit(often, form(), (X, Y), model_dir=folder, **length)
        assert again["step"] == whole["step"]
        for ours, theirs in zip(often.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_sequence_of_batches_resumes_to_the_same_bits():
    resumes_exactly(keras, Keras3PyDataset, epochs=3)


@pytest.mark.parametrize("library", [tf_keras, keras], ids=["tf_keras", "keras"])
@pytest.mark.parametrize("form", ["arrays", "dataset"])
def test_data_without_labels_train_a_model_whose_steps_take_none(form, library):
    ours, theirs = autoencoder(library), autoencoder(library)
    options = {"epochs": 3, "verbose": 0, "shuffle": False}
    if form == "arrays":
        options |= {"x": X, "batch_size": 11, "validation_data": (X[:22], None)}
    else:
        options |= {"x": tf.data.Dataset.from_tensor_slices(X).batch(11)}
        options["validation_data"] = options["x"].take(2)
    results = runner.fit(ours, model_dir="run", **options)
    found = theirs.fit(**options).history
    both = ours.dense.get_weights(), theirs.dense.get_weights()
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert results.history["val_loss"] == pytest.approx(found["val_loss"], rel=1e-4)


@pytest.mark.parametrize("library", [tf_keras, keras], ids=["tf_keras", "keras"])
def test_a_model_without_call_and_test_step_trains_without_validation(library):
    kind = type(autoencoder(library))
    model = type("Untested", (kind,), {"test_step": library.Model.test_step})()
    model.compile("sgd")
    before = model.dense.get_weights()[0]
    results = runner.fit(model, X, epochs=2, model_dir="run")
    assert len(results.history["loss"]) == 2
    assert not np.allclose(before, model.dense.get_weights()[0])


def test_labels_that_a_loss_needs_are_missed():
    with pytest.raises(ConfigError, match=saying("train no y loss train_step add_loss")):
        runner.fit(network(), X, model_dir="run")


def test_a_sequence_sees_each_batch_once_in_an_epoch_and_evaluations_all_of_them():
    class Counted(tf_keras.utils.Sequence):
        def __init__(self):
            self.seen = []

        def __len__(self):
            return 5

        def __getitem__(self, number):
            self.seen.append(number)
            return X[number * 10 :][:10], Y[number * 10 :][:10]

    train, model = Counted(), network()
    found = runner.fit(model, train, Counted(), model_dir="run", epochs=2)["metrics"]
    loss, _ = model.evaluate(X, Y, verbose=0)
    assert found["validation_loss"] == pytest.approx(loss, rel=1e-5)
    first, second = train.seen[2:7], train.seen[7:12]  # after two that show the shapes
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second


def test_batches_of_a_sequence_are_shared_by_replicas():
    devices = ["RuntimeConfig.distribution_strategy = 'mirrored'", "RunConfig.logical_cpus = 2"]
    alone, shared = network(), network()
    shared.set_weights(alone.get_weights())

    class Plain(TfKerasSequence):
        def __getitem__(self, number):
            return X[number * 10 :][:10], Y[number * 10 :][:10]

        def __len__(self):
            return 4

    runner.fit(alone, Plain(), model_dir="one", epochs=1)
    runner.fit(shared, Plain(), model_dir="two", epochs=1, gin_params=devices)
    for ours, theirs in zip(shared.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_generators_resume_by_replay():
    resumes_exactly(tf_keras, lambda: batches, lambda: iter([*batches()] * 3), train_steps=7)


class Failing(TfKerasSequence):
    def __getitem__(self, number):
        return {}[number] if number == 3 else super().__getitem__(number)


@pytest.mark.parametrize(
    ("train", "validation", "options", "said"),
    [
        (batches(), None, {"train_steps": 9}, "train generator ended function"),
        (batches, batches(), {"train_steps": 9}, "validation generator function"),
        (batches, None, {"epochs": 2}, "train_steps epochs"),
        (lambda: (x for x, _ in batches()), None, {"train_steps": 9}, "batch (x, y)"),
        (TfKerasSequence(), None, {"epochs": 1, "batch_size": 3}, "batch size 10 3"),
        (Failing(), None, {"epochs": 1}, "batch 3 KeyError"),
    ],
)
def test_batches_that_cannot_be_used_are_named(train, validation, options, said):
    with pytest.raises(ConfigError, match=saying(said)):
        runner.fit(network(), train, validation, model_dir="run", **options)


def table():
    count = np.arange(20)
    kinds = pd.Categorical(count % 3)
    columns = {"age": count / 20, "pay": count % 3, "fit": count % 2 == 0, "kind": kinds}
    return pd.DataFrame({**columns, "y": count / 7.0})


def of_matrix(library):
    return network(library, 4, 1)


@pytest.mark.parametrize(
    ("kind", "model", "library"),
    [
        ("frame", by_name, tf_keras),
        ("frame", of_matrix, keras),
        ("csv", by_name, keras),
        ("parquet", of_matrix, tf_keras),
    ],
)
def test_a_table_takes_the_form_that_the_model_takes(kind, model, library):
    whole, model = table(), model(library)
    x, y = whole.drop(columns="y"), whole["y"]
    whole.to_csv("data.csv", index=False)
    whole.to_parquet("data.parquet")
    data = {"frame": (x, y)}.get(kind, (f"data.{kind}", "y"))
    length = {"epochs": 1, "batch_size": 10, "dry_run": kind != "frame"}
    found = runner.fit(model, data, data, model_dir="run", **length)
    if kind == "frame":
        plain = x.astype("float32")
        inputs = dict(plain[["age", "pay"]]) if len(model.inputs) > 1 else plain.to_numpy()
        loss = model.evaluate(inputs, y, verbose=0, return_dict=True)["loss"]
        assert found["metrics"]["validation_loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": list("abcd") * 5}, "column 'kind' strings"),
        ({"age": [1.0, None] * 10}, "column 'age' missing 10 20 index 1"),
        ({"pay": pd.array([1, None] * 10, "Int64")}, "column 'pay' missing"),
        ({"pay": pd.to_datetime(["2020-01-01"] * 20)}, "column 'pay' timestamp"),
    ],
)
def test_a_column_that_a_model_cannot_take_is_named(changed, said):
    changed = table().assign(**changed)
    data = changed.drop(columns="y"), changed["y"]
    with pytest.raises(ConfigError, match=saying(said)):
        runner.fit(network(outputs=1), data, model_dir="run", train_steps=1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("data.csv", "label data.csv"),
        (("data.csv", "z"), "data.csv 'z'"),
        (("none.csv", "y"), "none.csv no file"),
        (("empty.csv", "y"), "column 'age' missing"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(data, said):
    table().to_csv("data.csv", index=False)
    table().assign(age=None).to_csv("empty.csv", index=False)
    with pytest.raises(ConfigError, match=saying(said)):
        runner.fit(network(outputs=1), data, model_dir="run", train_steps=1)


@pytest.mark.parametrize(
    ("library", "form"),
    [(tf_keras, scipy.sparse.csr_matrix), (keras, tf.sparse.from_dense)],
    ids=["tf_keras", "keras"],
)
def test_sparse_data_train_like_dense_ones(library, form):
    drawn = scipy.sparse.random(20, 9, 0.3, random_state=0, dtype=np.float32)
    dense, y = drawn.toarray(), np.arange(20.0)
    found, start = [], None
    for x in (dense, form(dense)):
        model = network(library, 9, 1, sparse=x is not dense)
        start = start or model.get_weights()
        model.set_weights(start)
        folder = f"run{len(found)}"
        found.append(runner.fit(model, (x, y), (x, y), model_dir=folder, epochs=1, batch_size=6))
    of_dense, of_sparse = found
    assert of_sparse["metrics"] == pytest.approx(of_dense["metrics"], rel=1e-5)


SUBCLASSED = {
    "ragged": tf.ragged.constant([[1.0, 2.0], [3.0]] * 8, ragged_rank=1),
    "sparse": tf.sparse.from_dense(np.eye(16, 4, dtype=np.float32)),
}


@pytest.mark.parametrize("kind", SUBCLASSED)
def test_a_subclass_that_is_not_built_trains_on_ragged_and_sparse_data(kind):
    class Network(tf_keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf_keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, x):
            if kind == "sparse":
                return self.dense(tf.sparse.to_dense(x))
            return self.dense(tf.reduce_mean(x, 1, keepdims=True))

    given = {"x": SUBCLASSED[kind], "y": np.zeros((16, 1)), "batch_size": 8, "shuffle": False}
    models = Network(), Network()
    for model in models:
        model.compile("sgd", "mse")
    expected = models[0].fit(**given, epochs=2, verbose=0).history["loss"]
    found = runner.fit(models[1], **given, epochs=2, model_dir="run").history["loss"]
    assert found == pytest.approx(expected, rel=1e-5)


def test_ragged_data_keep_their_rows():
    ragged = tf.ragged.constant([[1.0] * (1 + n % 4) for n in range(20)])
    inputs = tf_keras.Input((None,), ragged=True)
    total = tf_keras.layers.Lambda(lambda row: tf.reduce_sum(row, 1, keepdims=True))(inputs)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(1)(total))
    model.compile("sgd", "mse")
    data = ragged, np.arange(20.0)
    found = runner.fit(model, data, data, model_dir="run", epochs=1, batch_size=6)["metrics"]
    loss = model.evaluate(*data, verbose=0)
    assert found["validation_loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("library", "size"), [(tf_keras, None), (keras, 4)], ids=["single examples", "batches"]
)
def test_a_folder_of_images_resumes_to_the_same_bits(library, size, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (18, 8, 8, 3)).astype(np.uint8)
    for number, picture in enumerate(pixels):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(picture).numpy())

    def data():
        return library.utils.image_dataset_from_directory(
            tmp_path / "images", image_size=(8, 8), batch_size=size, seed=1
        )

    def images():
        layers = library.layers
        found = library.Sequential([library.Input((8, 8, 3)), layers.Flatten(), layers.Dense(2)])
        found.compile(library.optimizers.SGD(1e-6), of_logits(library))
        return found

    model, often = images(), images()
    start = model.get_weights()
    length = {"train_steps": 8, "batch_size": 4}
    runner.fit(model, data(), model_dir="once", **length)
    for actions in ([stop], []):
        often.set_weights(start)
        runner.fit(often, data(), model_dir="often", train_actions=actions, **length)
    for ours, theirs in zip(often.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs, with the metrics of one of them."""
    folder = tmp_path_factory.mktemp("runs")
    data = (X, Y), (X[:17], Y[:17])
    for name in ("a", "b"):
        found = runner.fit(network(), *data, model_dir=folder / name, train_steps=4)
    return folder, found["metrics"]


def test_a_run_is_evaluated_on_data_in_memory(runs):
    folder, metrics = runs
    found = runner.run(None, folder / "b", "eval", validation=(X[:17], Y[:17]))
    assert found["metrics"] == pytest.approx(metrics)
    other = runner.run(None, folder / "b", "eval", validation=TfKerasSequence())
    assert other["metrics"] != found["metrics"]
    with pytest.raises(ConfigError, match=saying("validation runner.run")):
        runner.run(None, folder / "b", "eval")


def test_a_run_predicts_and_exports_data_in_memory(runs):
    folder, _ = runs
    found = runner.run(None, folder / "b", "predict", validation=(X, Y), output="new.npz")
    assert found["predictions"] == 44
    with pytest.raises(ConfigError, match="output"):  # it has predictions of other data
        runner.run(None, folder / "b", "predict", validation=(X + 1, Y), output="new.npz")
    more = runner.run(None, folder / "b", "predict", train=batches, data="train", output="old.npz")
    assert more["predictions"] == 40
    assert runner.run(None, folder / "b", "export", validation=(X, Y))["exports"][0]["accepted"]


def test_runs_become_an_ensemble_on_data_in_memory(runs):
    folder, _ = runs
    members = {"runs": [folder / "a", folder / "b"]}
    found = runner.run(None, "mean", "ensemble", validation=(X, Y), **members)
    assert len(found["members"]) == 2
    fewer = runner.run(None, "mean", "ensemble", validation=(X[:9], Y[:9]), **members)
    assert fewer["members"][0]["metrics"] != found["members"][0]["metrics"]


@pytest.mark.parametrize("mode", ["train", "status"])
def test_a_mode_that_takes_no_data_says_so(runs, mode):
    folder, _ = runs
    with pytest.raises(ConfigError, match=f"{mode}.*validation"):
        runner.run(None, folder / "a", mode, validation=(X, Y))
