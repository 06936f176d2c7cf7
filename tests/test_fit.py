"""`runner.fit`: a Keras script becomes a run."""

import inspect
import json
import runpy
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from keras_model import SHORT, X, Y, killed, network
from wording import saying

import runner
from runner.errors import ConfigError

SCRIPT = """
import numpy as np
import tf_keras

x = np.random.default_rng(0).normal(size=(120, 4))
y = x[:, :3].argmax(1)
x_train, y_train, x_test, y_test = x[:90], y[:90], x[90:], y[90:]
model = tf_keras.Sequential([
    tf_keras.layers.Dense(16, "relu"),
    tf_keras.layers.Dropout(0.2),
    tf_keras.layers.Dense(3, "softmax"),
])
model.compile(tf_keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", ["accuracy"])
model.fit(x_train, y_train, 30, epochs=20, validation_data=(x_test, y_test))
print(model.evaluate(x_test, y_test, return_dict=True))
"""
CHANGED = {
    "import tf_keras": "import runner, tf_keras",
    "model.fit(x_train, y_train, 30, epochs=20, validation_data=(x_test, y_test))": (
        "runner.fit(model, (x_train, y_train), (x_test, y_test), model_dir='run', batch_size=30,"
        " epochs=20)"
    ),
}


def state(folder, step):
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    names = [
        name
        for name in reader.get_variable_to_shape_map()
        if not name.startswith(("save_counter", "_CHECKPOINTABLE", "logs", "inputs"))
    ]
    return {name: np.asarray(reader.get_tensor(name)).tobytes() for name in names}


def test_a_keras_script_becomes_a_run_by_changing_two_of_its_lines(capsys):
    lines = [CHANGED.get(line, line) for line in SCRIPT.strip().splitlines()]
    assert sum(a != b for a, b in zip(lines, SCRIPT.strip().splitlines(), strict=True)) == 2
    Path("script.py").write_text("\n".join(lines))
    runpy.run_path("script.py")
    printed = capsys.readouterr().out
    accuracy = json.loads(printed.splitlines()[-1].replace("'", '"'))["accuracy"]
    status = json.loads(Path("run/status.json").read_text())
    rows = [json.loads(row) for row in Path("run/history.jsonl").read_text().splitlines()]
    assert (status["state"], status["step"], len(rows)) == ("done", 60, 20)
    assert rows[-1]["metrics"]["accuracy"] == pytest.approx(accuracy)


@pytest.fixture(scope="module", params=["tf_keras", "keras"])
def kept(request, tmp_path_factory):
    """A whole run of a model of each Keras, with what it returned and its weights."""
    keras = pytest.importorskip(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "run"
    model = network(keras)
    start = model.get_weights()
    results = runner.fit(model, (X, Y), (X[:17], Y[:17]), model_dir=folder, **SHORT)
    return keras, folder, model, start, results


def test_the_model_then_scores_what_the_run_has_recorded(kept):
    _, folder, model, _, results = kept
    scores = model.evaluate(X[:17], Y[:17], verbose=0, return_dict=True)
    found = dict(results["metrics"])
    assert scores["accuracy"] == pytest.approx(found["accuracy"])
    assert scores["loss"] == pytest.approx(found["validation_loss"], rel=1e-5)
    names = [row["layer"] for row in json.loads((folder / "overview.json").read_text())["layers"]]
    assert [name.partition("_")[0] for name in names] == ["dense", "batch", "dense"]
    assert json.loads((folder / "overview.json").read_text())["forward_flops_per_example"] > 0


def test_the_same_call_on_a_finished_run_gives_back_its_weights(kept):
    keras, folder, model, _, results = kept
    other = network(keras)
    again = runner.fit(other, (X, Y), (X[:17], Y[:17]), model_dir=folder, **SHORT)
    assert again["metrics"] == results["metrics"]
    pairs = zip(other.get_weights(), model.get_weights(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize("what", ["units", "data", "rate"])
def test_a_changed_model_or_changed_data_are_refused(kept, what):
    keras, folder, *_ = kept
    model = network(
        keras,
        units=9 if what == "units" else 8,
        optimizer=keras.optimizers.Adam(0.02 if what == "rate" else 0.01),
    )
    x = X + 1 if what == "data" else X
    said = {
        "units": r"the model changed.*layer '\w+' \(Dense\).*units: 8 -> 9",
        "data": r"task\.train_data.*changed",
        "rate": r"learning_rate: 0\.01 -> 0\.02",
    }[what]
    with pytest.raises(ConfigError, match=said):
        runner.fit(model, (x, Y), (X[:17], Y[:17]), model_dir=folder, **SHORT)


@pytest.mark.parametrize(("library", "again"), [("tf_keras", "the same"), ("keras", "a new one")])
def test_a_model_that_the_run_has_built_is_the_same_model(library, again, tmp_path):
    keras = pytest.importorskip(library)

    def made(units=3):
        layers = [keras.layers.Dense(4, "relu"), keras.layers.Dense(units)]
        model = keras.Sequential(layers)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def fitted(model, steps):
        options = {"model_dir": tmp_path / "run", "train_steps": steps, "batch_size": 10}
        return runner.fit(model, (X, Y), **options)["step"]

    model = made()
    assert fitted(model, 2) == 2
    assert fitted(model if again == "the same" else made(), 4) == 4
    with pytest.raises(ConfigError, match="units: 3 -> 5"):
        fitted(made(units=5), 6)


def test_another_process_can_evaluate_such_a_run_on_a_file(kept, tmp_path):
    _, folder, _, _, results = kept
    np.savez(tmp_path / "more.npz", x=X[:17], y=Y[:17])
    loaded = runner.load(
        folder / "config.gin", overrides=["task.validation_data.input_path=more.npz"]
    )
    again = runner.run(loaded, folder, "eval")
    assert again["metrics"] == pytest.approx(results["metrics"])
    with pytest.raises(ConfigError, match=saying("validation bind Superv")):
        runner.run(runner.load(folder / "config.gin"), folder, "eval")


def test_another_process_can_predict_and_export_such_a_run_with_a_file():
    model = tf_keras.Sequential([tf_keras.layers.Dense(3)])  # whose input is not declared
    model.compile("adam", network().loss)
    data = (X, Y), (X[:17], Y[:17])
    runner.fit(model, *data, model_dir="run", train_steps=2, batch_size=10)
    np.savez("more.npz", x=X[:25], y=Y[:25])
    loaded = runner.load("supervised.gin", overrides=["task.validation_data.input_path=more.npz"])
    runner.run(loaded, "run", "predict", output="new/out.npz")
    found = np.load("new/out.npz")
    np.testing.assert_allclose(found["output"], model(X[:25]), atol=1e-5)
    np.testing.assert_array_equal(found["label"], Y[:25])
    (export,) = runner.run(loaded, "run", "export")["exports"]
    assert export["accepted"]
    served = tf.saved_model.load(export["path"]).signatures["model"]
    (shape,) = (each.shape for each in served.structured_input_signature[1].values())
    assert shape.as_list() == [None, 4]  # batches of any size


def test_loss_metrics_and_optimizer_can_be_given_without_compiling(tmp_path):
    def fit(**changed):
        given = {
            "loss": tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [tf_keras.metrics.SparseTopKCategoricalAccuracy(2, name="top_2")],
            "optimizer": tf_keras.optimizers.Adam(0.02),
        }
        model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
        data = (X, Y), (X[:17], Y[:17])
        return runner.fit(model, *data, model_dir="run", **SHORT, **{**given, **changed})

    results = fit()
    assert set(results["metrics"]) == {"top_2", "validation_loss"}
    assert "learning_rate = 0.02" in Path("run/config.gin").read_text()
    np.savez("more.npz", x=X[:17], y=Y[:17])
    loaded = runner.load("run/config.gin", overrides=["task.validation_data.input_path=more.npz"])
    assert runner.run(loaded, "run", "eval", dry_run=True)["status"] == "rehearsed"
    assert runner.run(loaded, "run", "eval")["metrics"] == pytest.approx(results["metrics"])
    with pytest.raises(ConfigError, match=r"from_logits.*(?s:.*)allow_config_change=True"):
        fit(loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=False))


def test_a_trial_leaves_nothing_behind(tmp_path):
    data = (X, Y), (X[:17], Y[:17])
    tried = runner.fit(network(), *data, model_dir=tmp_path / "run", dry_run=True, **SHORT)
    assert tried["status"] == "rehearsed"
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_killed_goes_on_to_the_same_bits(kept):
    keras, folder, _, start, _ = kept
    if keras is not tf_keras:
        pytest.skip("the same code")
    assert killed(start, "often", loops=4) == -signal.SIGKILL
    status = json.loads(Path("often/status.json").read_text())
    assert status["state"] == "running"
    assert list(Path("often").glob("ckpt-*.index"))
    assert not Path("often/ckpt-40.index").exists()
    model = network()
    model.set_weights(start)
    loops = ["TrainerConfig.steps_per_loop = 13"]
    again = {"model_dir": "often", "gin_params": loops, **SHORT}
    assert runner.fit(model, (X, Y), (X[:17], Y[:17]), **again)["step"] == 40
    assert state(Path("often"), 40) == state(folder, 40)


def test_a_run_of_a_function_takes_what_is_given_and_asks_for_the_function(tmp_path, monkeypatch):
    metrics = [tf_keras.metrics.SparseTopKCategoricalAccuracy(2, name="top_2")]
    data = (X, Y), (X[:17], Y[:17])
    found = runner.fit(network, *data, metrics=metrics, model_dir="run", train_steps=2)["metrics"]
    assert set(found) == {"top_2", "validation_loss"}  # not those that it is compiled with
    np.savez("more.npz", x=X[:25], y=Y[:25])
    loaded = runner.load("run/config.gin", overrides=["task.validation_data.input_path=more.npz"])
    with pytest.raises(ConfigError, match=saying("bind builds")):
        runner.run(loaded, "run", "predict")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "built.py").write_text(f"import tf_keras\n\n\n{inspect.getsource(network)}")
    named = ["task.model.name=built.network", "task.validation_data.input_path=more.npz"]
    loaded = runner.load("run/config.gin", overrides=named)
    assert runner.run(loaded, "run", "predict")["predictions"] == 25


def test_an_argument_that_keras_3_leaves_out_of_configurations_counts(tmp_path):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    metric = keras.metrics.CosineSimilarity(axis=0)
    model.compile(keras.optimizers.Adam(0.01), keras.losses.Huber(0.01), metrics=[metric])
    data = (X, X[:, :3]), (X[:17], X[:17, :3])
    found = runner.fit(model, *data, model_dir="run", train_steps=2, batch_size=17)["metrics"]
    loss, similarity = model.evaluate(*data[1], batch_size=17, verbose=0)
    assert found["validation_loss"] == pytest.approx(loss, rel=1e-5)
    assert found["cosine_similarity"] == pytest.approx(similarity, rel=1e-5)
    np.savez("wide.npz", x=np.zeros((5, 7)), y=np.zeros((5, 3)))
    wide = runner.load("run/config.gin", overrides=["task.validation_data.input_path=wide.npz"])
    with pytest.raises(
        ConfigError,
        match=saying("wide.npz x float32[None, 7] 4"),
    ):
        runner.run(wide, "run", "eval")


KINDS = {
    "on two replicas": (
        "RuntimeConfig.distribution_strategy = 'mirrored'",
        "RunConfig.logical_cpus = 2",
    ),
    "averages, in parts, in bfloat16": (
        "RunConfig.gradient_accumulation = 2",
        "OptimizationConfig.ema = @EMAConfig()",
        "EMAConfig.average_decay = 0.9",
        "EMAConfig.trainable_weights_only = False",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_of_a_keras_3_model_is_exact(kind, tmp_path):
    keras = pytest.importorskip("keras")

    def built():
        keras.mixed_precision.set_global_policy(
            "mixed_bfloat16" if "bfloat16" in kind else "float32"
        )
        try:
            return network(keras)
        finally:
            keras.mixed_precision.set_global_policy("float32")

    start = built().get_weights()

    def fit(folder, **more):
        model = built()
        model.set_weights(start)
        data = (X, Y), (X[:16], Y[:16])
        kinds = ("checkpoint", "validation", "summary")
        grid = [f"TrainerConfig.{each}_interval = 4" for each in kinds]
        more |= {"train_steps": 8, "batch_size": 12, "gin_params": [*KINDS[kind], *grid]}
        return runner.fit(model, *data, model_dir=tmp_path / folder, **more)

    whole = fit("once")
    assert fit("often", train_actions=[lambda logs: "enough"])["step"] == 4
    assert fit("often")["metrics"] == whole["metrics"]
    assert state(tmp_path / "once", 8) == state(tmp_path / "often", 8)
    if "averages" in kind:
        np.savez("more.npz", x=X[:16], y=Y[:16])
        more = ["task.validation_data.input_path=more.npz"]
        loaded = runner.load(tmp_path / "once/config.gin", overrides=more)
        assert runner.run(loaded, tmp_path / "once", "eval")["metrics"] == whole["metrics"]


def test_a_model_built_in_mixed_precision_is_trained_in_it(tmp_path):
    policy = tf_keras.mixed_precision
    policy.set_global_policy("mixed_float16")
    try:
        model = network()
    finally:
        policy.set_global_policy("float32")
    results = runner.fit(model, (X, Y), (X, Y), model_dir=tmp_path / "run", **SHORT)
    assert results["metrics"]["accuracy"] > 0.4
    assert "mixed_precision_dtype = 'float16'" in (tmp_path / "run/config.gin").read_text()


def test_a_precision_that_comes_too_late_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("effect built")):
        runner.fit(
            network(),
            (X, Y),
            model_dir=tmp_path / "run",
            gin_params=["RuntimeConfig.mixed_precision_dtype = 'bfloat16'"],
            **SHORT,
        )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"epochs": 2}, "train_steps epochs"),
        ({"model": tf_keras.Sequential([tf_keras.layers.Dense(3)])}, "model optimizer"),
        ({"model": "network"}, "expected Keras str"),
        ({"train": (X, Y[:5])}, "runner.fit train examples"),
        (
            {"validation": tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).repeat()},
            "validation endless",
        ),
        (
            {
                "model": lambda: tf_keras.Sequential([tf_keras.layers.Dense(3)]),
                "train": tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(5),
                "optimizer": "adam",
                "loss": "mse",
            },
            "tf.data.Dataset empty",
        ),
        ({"gin_params": ["TrainerConfig.train_step = 3"]}, "mean train_steps"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_is_written(changed, said, tmp_path):
    given = {"model": network(), "train": (X, Y), **SHORT, **changed}
    with pytest.raises(ConfigError, match=saying(said)):
        runner.fit(model_dir=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tf_keras", "keras"])
def test_what_a_normalization_layer_has_adapted_to_counts_here_and_in_another_process(
    name, tmp_path
):
    keras = pytest.importorskip(name)
    x = 50 + 7 * X
    scale = keras.layers.Normalization()
    scale.adapt(x)
    inner = keras.Sequential([keras.Input((4,)), scale])
    model = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    results = runner.fit(model, (x, Y), (x, Y), model_dir=tmp_path / "run", **SHORT)
    assert results["metrics"]["validation_loss"] < 2
    own = model.evaluate(x, Y, 60, return_dict=True, verbose=0)
    own["validation_loss"] = own.pop("loss")
    assert results["metrics"] == pytest.approx(own, rel=1e-4)
    np.savez("data.npz", x=x, y=Y)
    loaded = runner.load(
        tmp_path / "run/config.gin", overrides=["task.validation_data.input_path=data.npz"]
    )
    again = runner.run(loaded, tmp_path / "run", "eval", checkpoint="latest")
    assert again["metrics"] == pytest.approx(results["metrics"], rel=1e-5)


def test_a_layer_of_buckets_that_has_adapted_is_trained_behind():
    buckets = tf_keras.layers.Discretization(num_bins=3)
    buckets.adapt(X)
    layers = tf_keras.layers
    one_hot = layers.CategoryEncoding(num_tokens=3, output_mode="multi_hot")
    model = tf_keras.Sequential([tf_keras.Input((4,)), buckets, one_hot, layers.Dense(1)])
    model.compile("sgd", "mse")
    assert runner.fit(model, (X, Y), model_dir="run", **SHORT)["status"] == "done"
