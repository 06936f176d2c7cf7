"""A model and data of the user's, bound by gin to functions."""

import json
from pathlib import Path

import image_files
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tf_keras
from wording import saying, says

import runner
from runner.errors import ConfigError, RejectedError
from runner.models import examples, scoring

MODULE = """
import numpy as np
import tensorflow as tf
import tf_keras


def arrays(n=60):
    x = np.random.default_rng(0).normal(size=(n, 4))
    return x, x[:, :3].argmax(1)


def validation():
    return arrays(17)


def dataset():
    return tf.data.Dataset.from_tensor_slices(arrays()).shuffle(60, seed=1).batch(7)


def plain(width=8):
    layers = tf_keras.layers
    return tf_keras.Sequential([layers.Dense(width, "relu"), layers.Dropout(0.5), layers.Dense(3)])


def compiled():
    model = plain()
    model.add(tf_keras.layers.Softmax())
    rate = tf_keras.optimizers.schedules.CosineDecay(0.02, 40)
    model.compile(
        tf_keras.optimizers.Adam(rate, beta_1=0.8),
        "sparse_categorical_crossentropy",
        metrics=["accuracy", tf_keras.metrics.SparseTopKCategoricalAccuracy(2, name="top_2")],
    )
    return model


def from_logits(labels, logits):
    return tf_keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def two_outputs():
    x = tf_keras.Input((4,), name="points")
    outputs = {
        "kind": tf_keras.layers.Dense(3, "softmax", name="kind")(x),
        "size": tf_keras.layers.Dense(1, name="size")(x),
    }
    return tf_keras.Model({"points": x}, outputs)
"""

GIN = """
from __gin__ import dynamic_registration
import mine
from tasks import supervised
include 'supervised.gin'
SupervisedConfig.model = @mine.{model}
SupervisedConfig.train = @mine.{train}
SupervisedConfig.validation = @mine.{validation}
train/SupervisedData.global_batch_size = 10
TrainerConfig.train_steps = 40
TrainerConfig.validation_interval = 20
TrainerConfig.checkpoint_interval = 20
TrainerConfig.summary_interval = 20
"""
PLAIN = (
    "SupervisedConfig.loss = 'mine.from_logits'",
    "SupervisedConfig.metrics = ('accuracy',)",
    "OptimizerConfig.type = 'adam'",
    "LrConfig.type = 'constant'",
    "ConstantLrConfig.learning_rate = 0.01",
)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Loads an experiment over the functions above, and more that a test writes."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(*params, model="plain", train="arrays", validation="validation", more=""):
        (tmp_path / "mine.py").write_text(MODULE + more)
        named = {"model": model, "train": train, "validation": validation}
        (tmp_path / "mine.gin").write_text(GIN.format(**named))
        return runner.load("mine.gin", params)

    return load


def state(folder, step):
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith(("model", "optimizer"))]
    return {name: reader.get_tensor(name).tobytes() for name in names}


def test_functions_of_the_users_become_a_run_that_resumes_and_is_evaluated(mine, tmp_path):
    more = """
def of_keras_3():
    import keras
    layers = keras.layers
    return keras.Sequential([layers.Dense(8, "relu"), layers.Dropout(0.5), layers.Dense(3)])
"""

    def load(*params):
        return mine(*PLAIN, *params, model="of_keras_3", more=more)

    results = runner.run(load(), tmp_path / "run", "train_and_eval")
    assert set(results["metrics"]) == {"accuracy", "validation_loss"}
    runner.run(load("TrainerConfig.train_steps = 13"), tmp_path / "often", "train")
    runner.run(load(), tmp_path / "often", "train_and_eval")
    assert state(tmp_path / "run", 40) == state(tmp_path / "often", 40)
    again = runner.run(load(), tmp_path / "run", "eval")
    assert again["metrics"] == results["metrics"]


def test_a_compiled_model_brings_loss_metrics_and_optimizer_which_the_configuration_shows(
    mine, tmp_path
):
    tf_keras.layers.Dense(1)  # which uses up the name of the first
    results = runner.run(mine(model="compiled"), tmp_path / "run", "train_and_eval")
    layers = json.loads((tmp_path / "run/overview.json").read_text())["layers"]
    assert [row["layer"] for row in layers] == ["dense", "dense_1"]  # as in a new process
    assert set(results["metrics"]) == {"accuracy", "top_2", "validation_loss"}
    shown = (tmp_path / "run/config.gin").read_text()
    for line in ("type = 'adam_experimental'", "beta_1 = 0.8", "type = 'cosine'"):
        assert line in shown
    assert "initial_learning_rate = 0.02" in shown
    again = runner.run(runner.load(tmp_path / "run/config.gin"), tmp_path / "run", "eval")
    assert again["metrics"] == results["metrics"]


def test_workers_name_the_optimizer_that_a_compiled_model_would_bring(mine, tmp_path):
    strategy = "RuntimeConfig.distribution_strategy = 'multi_worker_mirrored'"
    several = ("RuntimeConfig.worker_hosts = 'a:1,b:1'", "RuntimeConfig.task_index = 0")
    with pytest.raises(ConfigError, match=saying("2 optimizer compile")):
        runner.run(mine(strategy, *several, model="compiled"), tmp_path / "run", "train")


def test_a_rate_and_a_batch_are_found_with_the_optimizer_of_a_compiled_model(mine):
    sizes = ["FindBatchConfig.first = 10", "FindBatchConfig.largest = 10"]
    quick = ["FindRateConfig.steps = 20", "FindBatchConfig.seconds = 0.01"]
    loaded = mine(*sizes, *quick, model="compiled")
    assert runner.run(loaded, None, "find_rate")["status"] == "done"
    assert runner.run(loaded, None, "find_batch")["largest"] == 10


def test_a_dataset_of_the_users_resumes_by_the_state_of_its_iterator(mine, tmp_path):
    params = [*PLAIN, "train/SupervisedData.global_batch_size = 7"]
    runner.run(mine(*params, train="dataset"), tmp_path / "once", "train")
    half = mine(*params, "TrainerConfig.train_steps = 13", train="dataset")
    runner.run(half, tmp_path / "often", "train")
    runner.run(mine(*params, train="dataset"), tmp_path / "often", "train")
    assert state(tmp_path / "once", 40) == state(tmp_path / "often", 40)
    row = json.loads((tmp_path / "once/train.jsonl").read_text().splitlines()[-1])
    assert row["step"] == 40


def test_a_dataset_is_evaluated_whole_and_batched_anew_for_two_replicas(mine, tmp_path):
    params = [
        *PLAIN,
        "RuntimeConfig.distribution_strategy = 'mirrored'",
        "RunConfig.logical_cpus = 2",
        "TrainerConfig.train_steps = 3",
        "validation/SupervisedData.global_batch_size = 8",
    ]
    more = "def tail():\n    return dataset().take(3)\n"
    loaded = mine(*params, train="dataset", validation="tail", more=more)
    both = runner.run(loaded, tmp_path / "two", "train_and_eval")["metrics"]
    params = [each for each in params if "logical" not in each and "mirrored" not in each]
    one = runner.run(
        mine(*params, train="dataset", validation="tail", more=more), tmp_path / "two", "eval"
    )["metrics"]
    assert one == pytest.approx(both, rel=1e-5)


def test_a_label_that_a_loss_lacks_is_named():
    loss = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    outputs = {name: tf.TensorSpec([None, 3]) for name in loss}
    with pytest.raises(ConfigError, match=saying("mine size compiled")):
        scoring.check(loss, {"kind": Y}, outputs, "mine")


def test_penalties_count_once_and_weights_as_in_keras(mine, tmp_path):
    more = """
def weighted():
    x, y = arrays()
    return x, y, np.arange(60) / 60


def penalized():
    model = tf_keras.Sequential([
        tf_keras.layers.Dense(3, "softmax", kernel_regularizer="l2"),
        tf_keras.layers.ActivityRegularization(0.1),
    ])
    model.compile(
        "sgd", "sparse_categorical_crossentropy", metrics=["accuracy"],
        weighted_metrics=[tf_keras.metrics.SparseCategoricalAccuracy(name="weighted")],
    )
    return model
"""
    loaded = mine(model="penalized", train="weighted", validation="weighted", more=more)
    outcome = runner.run(loaded, tmp_path / "run", "train_and_eval")["metrics"]
    import mine as module

    model = module.penalized()
    x, y, weight = module.weighted()
    model(x[:1])
    reader = tf.train.load_checkpoint(str(tmp_path / "run/ckpt-40"))
    values = [reader.get_tensor(f"model/layer_with_weights-0/{name}/.ATTRIBUTES/VARIABLE_VALUE")
              for name in ("kernel", "bias")]  # fmt: skip
    model.set_weights(values)
    expected = model.evaluate(x, y, 60, sample_weight=weight, verbose=0, return_dict=True)
    expected["validation_loss"] = expected.pop("loss")
    assert outcome == pytest.approx(expected, rel=1e-5)


X, Y = np.zeros((6, 4)), np.arange(6) % 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X, Y[:5]), "number examples 6 5"),
        (({"a": X, "b": X[:2]}, Y), "6 2"),
        ((np.where(np.eye(6, 4), np.nan, 0), Y), "values finite 4 6"),
        ((X, Y, np.zeros(6)), "sample_weight 0"),
        ((X, np.array(list("abcabc"))), "strings numbers"),
        ((X, np.array([{}] * 6)), "array objects"),
        ((X, [[1], [1, 2], []] * 2), "not array"),
        ((X, Y, np.array(list("abcabc"))), "sample_weight strings"),
        ((X.astype("datetime64[s]"), Y), "array datetime64"),
        ((X.astype("timedelta64[D]"), Y), "array timedelta64"),
        ((np.zeros(6, [("a", "f4"), ("b", "f4")]), Y), "array records"),
        ((np.ma.masked_equal(X, 0), Y), "masked array"),
        ((pd.DataFrame({"a": Y, "b": [1, 2, np.nan] * 2}), Y), "column 'b' index 2"),
        ((X[:0], Y[:0]), "no examples"),
        ((X, 3), "single number"),
        (None, "got None"),
        ("data.csv", "label data.csv"),
        ("data.txt", "path data.txt"),
        ("none.npz", "none.npz read"),
        (tf.data.Dataset.from_tensors((X,)), "must x"),
        (tf.data.Dataset.from_tensors((X, list("abcabc"))), "strings numbers"),
        (tf.data.Dataset.from_tensors((X, Y, list("abcabc"))), "sample_weight strings"),
        (tf.data.Dataset.from_tensors((X, Y, [0] * 6)), "sample_weight 0"),
    ],
)
def test_data_that_no_model_can_learn_from_are_named(given, said):
    with pytest.raises(ConfigError, match=saying(said)) as error:
        examples.read(given, "mine.py:3: data")
    assert str(error.value).startswith("mine.py:3: data: ")
    assert len(str(error.value).splitlines()) == 1


def test_weights_of_a_long_dataset_that_begin_with_0_are_said(capsys):
    weighted = tf.data.Dataset.from_tensors((X, Y, np.zeros(6)))
    one = tf.data.Dataset.from_tensors((X, Y, np.eye(6)[0]))
    examples.read(one.concatenate(weighted), "mine.py:3: data")
    assert not capsys.readouterr().err
    examples.read(weighted.repeat(), "mine.py:3: data")
    says(capsys.readouterr().err, "sample_weight 100 batches 0")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("model=lambda: tf_keras.Model", "expected Keras type"),
        (
            "model=two_outputs",
            "mine.py: mine.arrays 'kind' 'size'",
        ),
        ("train=lambda: (arrays()[0], np.eye(3)[arrays()[1]])", "one-hot sparse_cat"),
        ("train=lambda: (arrays()[0], arrays()[1] + 1)", "y 1 3 model"),
        ("train=lambda: (arrays()[0], arrays()[1] + 0.5)", "y fractions float32"),
        (
            "validation=lambda: (arrays()[0][:, :2], arrays()[1])",
            "mine.py: mine.odd called float32[None 2",
        ),
        ("validation=lambda: dataset().repeat()", "validation endless"),
        ("train=lambda: (arrays()[0].astype(str), arrays()[1])", "x strings"),
        ("model=lambda: 1 / 0", "division zero"),
    ],
)
def test_models_and_data_that_do_not_fit_together_are_named(mine, tmp_path, more, said):
    name, _, function = more.partition("=")
    params = [*PLAIN[1:], "SupervisedConfig.loss = 'sparse_categorical_crossentropy'"]
    changed = {name: "odd"} if "lambda" in more else {name: function}
    added = f"odd = {function}\n" if "lambda" in more else ""
    with pytest.raises((ConfigError, ZeroDivisionError, ValueError), match=saying(said)) as error:
        runner.run(mine(*params, more=added, **changed), tmp_path / "run", "train_and_eval")
    assert "configurable" not in str(error.value)


@pytest.mark.parametrize(
    ("part", "damage"),
    [("train", b""), ("validation", b"text"), ("train", "half")],
    ids=["empty", "no image", "cut"],
)
def test_a_damaged_image_in_a_dataset_of_the_users_is_named(part, damage, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 255, (8, 8, 8, 3)).astype(np.uint8)
    for folder in ("train", "validation"):
        named = {f"{n % 2}/{n}.png": picture for n, picture in enumerate(pictures)}
        image_files.write_folder(tmp_path / folder, named)
    broken = tmp_path / part / "1" / "7.png"
    broken.write_bytes(broken.read_bytes()[:100] if damage == "half" else damage)
    layers = tf_keras.layers
    model = tf_keras.Sequential([tf_keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    train, validation = (
        tf_keras.utils.image_dataset_from_directory(folder, image_size=(8, 8), batch_size=2)
        .map(lambda x, y: (x / 255, y))
        .prefetch(1)
        for folder in ("train", "validation")
    )
    with pytest.raises(ConfigError, match=saying(f"{part}/1/7.png image")) as error:
        runner.fit(model, train, validation, model_dir="run", train_steps=4)
    assert len(str(error.value).splitlines()) == 1


def test_a_loss_and_metrics_with_arguments_are_bound_by_gin(mine, tmp_path):
    more = """
def smoothed(labels, logits, by=0.0):
    labels = tf.one_hot(tf.cast(tf.reshape(labels, [-1]), tf.int32), 3) * (1 - by) + by / 3
    return tf_keras.losses.categorical_crossentropy(labels, logits, from_logits=True)


def hit(labels, logits):
    return tf_keras.metrics.sparse_categorical_accuracy(labels, logits)


class Hits(tf_keras.metrics.SparseTopKCategoricalAccuracy):
    pass
"""
    params = [
        *PLAIN[2:],
        "SupervisedConfig.loss = @mine.smoothed",
        "mine.smoothed.by = 0.3",
        "SupervisedConfig.metrics = (@mine.Hits, @mine.hit)",
        "mine.Hits.k = 3",
        "mine.Hits.name = 'top_3'",
        "TrainerConfig.train_steps = 4",
    ]
    found = runner.run(mine(*params, more=more), tmp_path / "run", "train_and_eval")["metrics"]
    assert set(found) == {"hit", "top_3", "validation_loss"}
    assert found["top_3"] == 1.0
    again = runner.load(tmp_path / "run/config.gin")
    assert runner.run(again, tmp_path / "run", "eval")["metrics"] == found
    plain = mine(*params, "mine.smoothed.by = 0.0", more=more)
    with pytest.raises(ConfigError, match=r"loss\.arguments\.by: 0\.3 -> 0\.0"):
        runner.run(plain, tmp_path / "run", "train_and_eval")
    other = runner.run(plain, tmp_path / "run", "eval")["metrics"]
    assert other["validation_loss"] != found["validation_loss"]


def test_a_file_is_predicted_instead_of_a_function_unless_its_width_is_another(mine, tmp_path):
    loaded = mine(*PLAIN, "TrainerConfig.train_steps = 1")
    runner.run(loaded, tmp_path / "run", "train")
    np.savez("wide.npz", x=np.zeros((5, 7)), y=np.zeros(5, int))
    wide = mine(*PLAIN, "validation/SupervisedData.input_path = 'wide.npz'")
    with pytest.raises(ConfigError, match=saying("float32[None 7 axis -1")):
        runner.run(wide, tmp_path / "run", "predict")
    np.savez("new.npz", x=np.zeros((5, 4)), y=np.zeros(5, int))
    named = mine(*PLAIN, "validation/SupervisedData.input_path = 'new.npz'")
    assert runner.run(named, tmp_path / "run", "predict")["predictions"] == 5


def test_a_format_that_cannot_be_made_does_not_keep_the_others_back(mine, tmp_path):
    more = """
def odd():
    x = tf_keras.Input((4,))
    y = tf_keras.layers.Dense(3)(tf_keras.layers.Lambda(lambda x: tf.math.igamma(1 + x**2, 1.0))(x))
    return tf_keras.Model(x, y)
"""
    formats = "ExportConfig.formats = ('tflite', 'saved_model')"
    loaded = mine(*PLAIN, formats, "TrainerConfig.train_steps = 1", model="odd", more=more)
    runner.run(loaded, tmp_path / "run", "train_and_eval")
    with pytest.raises(RejectedError, match=saying("tflite converter")) as error:
        runner.run(loaded, tmp_path / "run", "export")
    by_format = {each["format"]: each for each in error.value.results["exports"]}
    assert by_format["saved_model"]["accepted"]
    assert not by_format["tflite"]["accepted"]
    assert "igamma" in by_format["tflite"]["reason"].lower()
    card = Path(by_format["tflite"]["path"]) / "model_card.md"
    assert "Rejected" in card.read_text()


def test_class_numbers_for_a_loss_of_one_hot_labels_are_named(mine, tmp_path):
    params = [*PLAIN[1:], "SupervisedConfig.loss = 'categorical_crossentropy'"]
    with pytest.raises(ConfigError, match="compile with sparse_categorical_crossentropy"):
        runner.run(mine(*params), tmp_path / "run", "train_and_eval")


def test_an_optimizer_that_the_configuration_lacks_is_stored_whole(mine, tmp_path):
    more = "def odd():\n    model = plain()\n    model.compile('nadam', 'mse')\n    return model\n"
    assert runner.run(mine(model="odd", more=more), tmp_path / "run", "train")["status"] == "done"
    stored = runner.Run(tmp_path / "run").param(
        "trainer.optimizer_config.optimizer.keras.serialized"
    )
    assert "Nadam" in stored


def test_a_function_that_is_not_there_is_named_with_its_line(mine, tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.gin:6: .*no_such"):
        mine(*PLAIN, model="no_such")


HEADS = """
def parts():
    x, y = arrays()
    return {"left": x[:, :2], "right": x[:, 2:]}, {"kind": y, "size": x[:, 0]}


def heads(library="tf_keras"):
    keras = __import__(library)
    given = {name: keras.Input((2,), name=name) for name in ("left", "right")}
    both = keras.layers.Concatenate()(list(given.values()))
    outputs = {
        "kind": keras.layers.Dense(3, "softmax", name="kind")(both),
        "size": keras.layers.Dense(1, name="size")(both),
    }
    model = keras.Model(given, outputs)
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    weights = {"kind": 1.0, "size": 0.5}
    model.compile("adam", losses, loss_weights=weights, metrics={"kind": "accuracy"})
    return model
"""


@pytest.mark.parametrize(
    ("library", "formats"), [("tf_keras", ("saved_model", "tflite")), ("keras", ("saved_model",))]
)
def test_dicts_of_inputs_and_outputs_are_scored_predicted_and_exported(
    library, formats, mine, tmp_path
):
    pytest.importorskip(library)
    params = (
        f"mine.heads.library = '{library}'",
        f"ExportConfig.formats = {formats}",
        "TrainerConfig.train_steps = 2",
    )
    loaded = mine(*params, model="heads", train="parts", validation="parts", more=HEADS)
    run = tmp_path / "run"
    trained = runner.run(loaded, run, "train_and_eval")["metrics"]
    total = trained["kind_loss"] + 0.5 * trained["size_loss"]
    assert trained["validation_loss"] == pytest.approx(total, rel=1e-5)
    predicted = runner.run(loaded, run, "predict", data="train")["output"]
    rows = [json.loads(line) for line in Path(predicted).read_text().splitlines()]
    assert len(rows) == 60
    hits = [np.argmax(row["kind"]) == row["label"]["kind"] for row in rows]
    assert np.mean(hits) == pytest.approx(trained["kind_accuracy"])
    errors = [row["size"][0] - row["label"]["size"] for row in rows]
    assert np.mean(np.square(errors)) == pytest.approx(trained["size_loss"], rel=1e-4)
    exports = runner.run(loaded, run, "export")["exports"]
    assert [each["metrics"] for each in exports] == [pytest.approx(trained, abs=1e-4)] * len(
        formats
    )


@pytest.mark.parametrize("library", ["tf_keras", "keras"])
def test_a_recurrent_model_with_dropout_is_exported(library, mine, tmp_path):
    keras = pytest.importorskip(library)
    more = f"""
def recurrent():
    import {library} as keras
    layers = keras.layers
    recurrent = layers.GRU(3, dropout=0.1, recurrent_dropout=0.1)
    return keras.Sequential([keras.Input((4,)), layers.Reshape((2, 2)), recurrent])
"""
    loaded = mine(*PLAIN, "TrainerConfig.train_steps = 2", model="recurrent", more=more)
    runner.run(loaded, tmp_path / "run", "train_and_eval")
    (export,) = runner.run(loaded, tmp_path / "run", "export")["exports"]
    assert export["accepted"], keras.__name__
