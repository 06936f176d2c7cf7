"""`--mode=export`: what is exported, and what the gate lets through."""

import json
import resource
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from ai_edge_litert.interpreter import Interpreter
from official.core import task_factory
from toy import ToyConfig, ToyTask, experiment
from wording import saying, says

import runner
from runner import main
from runner.errors import ConfigError, RejectedError, RunnerError
from runner.evaluation.export import card, conversion, fresh_process, gate, signatures

DIGITS = [
    "--gin_file=digits_cnn.gin",
    "--gin.CNNConfig.filters=(4,8)",
    "--gin.TrainerConfig.train_steps=60",
    "--gin.TrainerConfig.steps_per_loop=20",
    "--gin.TrainerConfig.validation_interval=20",
    "--gin.TrainerConfig.checkpoint_interval=20",
]
TFLITE = "--gin.ExportConfig.formats=('tflite',)"


def formats(*names, **options):
    return {"run": {"export": {"formats": names, **options}}}


def command(capsys, folder, *flags):
    """The exit code of an export, its result and what it said."""
    capsys.readouterr()
    code = main.main(["--mode=export", f"--model_dir={folder}", *DIGITS, *flags])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else None, printed.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of digits, and one of the toy task."""
    folder = tmp_path_factory.mktemp("trained")
    assert main.main(["--mode=train_and_eval", f"--model_dir={folder / 'digits'}", *DIGITS]) == 0
    runner.run(experiment(), folder / "toy", "train_and_eval")
    return folder


@pytest.fixture
def digits(trained, tmp_path):
    return shutil.copytree(trained / "digits", tmp_path / "digits")


@pytest.fixture
def toy(trained, tmp_path):
    return shutil.copytree(trained / "toy", tmp_path / "toy")


def digit_files(count):
    """The bytes of images of digits as PNGs, and the same as arrays."""
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 1), np.uint8)
    return [tf.io.encode_png(image).numpy() for image in images], images.astype(np.float32) / 255


def test_the_best_checkpoint_is_exported_and_scored_from_its_files(digits, capsys):
    names = ("saved_model", "tflite", "tflite_float16", "tflite_int8")
    code, results, said = command(capsys, digits, f"--gin.ExportConfig.formats={names}")
    assert code == 0
    best = json.loads((digits / "best/info.json").read_text())
    step = results["step"]
    assert step == best["best_ckpt_global_step"]
    assert results["metrics"]["accuracy"] == pytest.approx(best["accuracy"])
    assert [each["format"] for each in results["exports"]] == list(names)
    for each in results["exports"]:
        path = Path(each["path"])
        assert path == digits / "export" / each["format"] / str(step)
        assert json.loads((path / "export.json").read_text())["accepted"]
        assert each["accepted"]
        assert each["examples"] == 359
        assert each["metrics"]["accuracy"] == pytest.approx(best["accuracy"], abs=0.01)
    sizes = {each["format"]: each["bytes"] for each in results["exports"]}
    assert sizes["tflite_int8"] < sizes["tflite_float16"] < sizes["tflite"] < sizes["saved_model"]
    assert "saved_model from image_bytes" in said

    files, images = digit_files(3)
    served = tf.saved_model.load(str(digits / f"export/saved_model/{step}")).signatures
    from_bytes = served["serving_default"](image_bytes=tf.constant(files))
    from_arrays = served["model"](images=tf.constant(images))["logits"]
    np.testing.assert_allclose(from_bytes["logits"], from_arrays, atol=1e-5)
    np.testing.assert_array_equal(from_bytes["label"], np.argmax(from_arrays, axis=1))
    lite = Interpreter(str(digits / f"export/tflite/{step}/model.tflite"))
    np.testing.assert_allclose(
        lite.get_signature_runner("model")(images=images)["logits"], from_arrays, atol=1e-5
    )

    text = (digits / f"export/tflite_int8/{step}/model_card.md").read_text()
    facts = results["exports"][-1]
    low, high = facts["intervals"]["accuracy"]
    assert low < facts["metrics"]["accuracy"] < high
    assert f"{low:.4g} to {high:.4g} |" in text
    assert "filters:" in text
    assert "tensorflow 2." in text
    assert facts["intervals"].keys() == facts["metrics"].keys()
    assert facts["intervals"]["brier_score"] is None


def int8_scores(folder, count=3):
    """What an exported file gives for some images."""
    run = Interpreter(str(folder / "model.tflite")).get_signature_runner("model")
    return run(images=digit_files(count)[1])["logits"]


def test_a_file_that_scores_otherwise_is_rejected_until_it_is_tolerated(digits, capsys):
    """The second one is calibrated on the same examples: it scores the same to the bit."""
    only = "--gin.ExportConfig.formats=('tflite_int8',)"
    code, results, said = command(capsys, digits, only, "--gin.ExportConfig.tolerance=0.0")
    assert code == RejectedError.exit_code == 4
    (made,) = results["exports"]
    rejected = digits / f"export/tflite_int8/rejected-{results['step']}"
    assert results["status"] == "rejected"
    assert Path(made["path"]) == rejected
    says(made["reason"], "where checkpoint")
    assert "**Rejected**" in (rejected / "model_card.md").read_text()
    assert "!" in said
    assert [each.name for each in rejected.parent.iterdir()] == [rejected.name]
    scores = int8_scores(rejected)

    code, results, _ = command(capsys, digits, only)
    assert code == 0
    assert [each.name for each in rejected.parent.iterdir()] == [str(results["step"])]
    np.testing.assert_array_equal(int8_scores(rejected.with_name(str(results["step"]))), scores)


def test_a_version_stays_as_it_is_and_only_missing_formats_are_made(toy):
    first = runner.run(experiment(formats("tflite")), toy, "export")
    file = Path(first["exports"][0]["path"], "model.tflite")
    before = file.stat()
    (toy / "export/.unfinished/model").mkdir(parents=True)  # as a kill leaves it
    both = runner.run(experiment(formats("tflite", "tflite_float16")), toy, "export")
    assert [each["format"] for each in both["exports"]] == ["tflite", "tflite_float16"]
    assert file.stat() == before
    assert not (toy / "export/.unfinished").exists()

    step = both["step"]
    other = toy / f"ckpt-{40 if step == 20 else 20}"
    for part in other.parent.glob(f"{other.name}.*"):
        shutil.copy(part, toy / "best" / part.name.replace(other.name, f"ckpt-{step}"))
    with pytest.raises(ConfigError, match=saying("exported checkpoint")):
        runner.run(experiment(formats("tflite")), toy, "export")


def test_checkpoint_and_file_are_scored_on_the_batches_that_an_evaluation_is_limited_to(toy):
    def limited(steps):
        return experiment(
            {
                "trainer": {"validation_steps": steps},
                "run": {
                    "limit_evaluation": 2,
                    "export": {"formats": ("tflite",)},
                    "evaluator": {"name": "all" if steps < 0 else "one"},
                },
            }
        )

    for steps, examples in ((-1, 16), (1, 8)):
        config = limited(steps)
        evaluated = runner.run(config, toy, "eval", checkpoint="best")
        made = runner.run(config, toy, "export")
        assert made["metrics"] == evaluated["metrics"]
        (facts,) = made["exports"]
        assert (facts["examples"], facts["limited"]) == (examples, 2)
        assert made["limited"] == {"evaluation": 2}
        assert facts["metrics"] == pytest.approx(facts["checkpoint_metrics"], abs=1e-5)
        with pytest.raises(ConfigError, match=r"scored with RunConfig.limit_evaluation = 2, now 0"):
            runner.run(experiment(formats("tflite")), toy, "export")
        shutil.rmtree(toy / "export")


def test_a_full_disk_leaves_no_version_and_the_same_command_goes_on(toy):
    config = experiment(formats("tflite"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # bytes of a file
    try:
        with pytest.raises(RunnerError, match=saying("written command")):
            runner.run(config, toy, "export")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each for each in (toy / "export").rglob("*") if each.is_file()] == []
    assert runner.run(config, toy, "export")["status"] == "done"


class Scale(tf_keras.layers.Layer):
    """A layer of the user's that Keras could not save."""

    def __init__(self, by):
        super().__init__()
        self._by = by

    def call(self, inputs):
        return inputs * self._by


class TwoHeads(tf_keras.Model):
    """Takes and returns dicts, and declares neither."""

    def __init__(self):
        super().__init__()
        self.hidden = tf_keras.layers.Dense(8, activation="relu")
        self.scale = Scale(0.5)
        self.head = tf_keras.layers.Dense(3, dtype="float32")

    def call(self, inputs):
        hidden = self.scale(self.hidden(inputs["point"]))
        return {"logits": self.head(hidden), "hidden": tf.cast(hidden, tf.float32)}


class TwoHeadedTask(ToyTask):
    def build_model(self):
        model = TwoHeads()
        model({"point": tf.zeros([1, 4])})
        return model

    def build_inputs(self, params, input_context=None):
        dataset = super().build_inputs(params, input_context)
        return dataset.map(lambda points, labels: ({"point": points}, labels))

    def build_losses(self, labels, model_outputs, aux_losses=None):
        return super().build_losses(labels, model_outputs["logits"])

    def process_metrics(self, metrics, labels, model_outputs):
        super().process_metrics(metrics, labels, model_outputs["logits"])


def test_averages_of_a_model_of_dicts_that_was_mirrored_in_bfloat16_are_exported(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        "official.core.task_factory.get_task", lambda params, **kw: TwoHeadedTask(params, **kw)
    )
    config = experiment(
        {
            **formats("tflite"),
            "runtime": {
                "distribution_strategy": "mirrored",
                "mixed_precision_dtype": "bfloat16",
            },
            "trainer": {"optimizer_config": {"ema": {"average_decay": 0.5}}},
        }
    )
    config.override({"run": {"logical_cpus": 2, "export": {"formats": ("tflite",)}}})
    trained = runner.run(config, tmp_path / "run", "train_and_eval")
    exported = runner.run(config, tmp_path / "run", "export")
    said = capsys.readouterr().err
    assert "averaged weights" in said
    assert "trained in bfloat16" in said
    assert exported["metrics"]["accuracy"] == pytest.approx(
        trained["best"]["metrics"]["accuracy"], abs=0.06
    )
    path = Path(exported["exports"][0]["path"], "model.tflite")
    run = Interpreter(str(path)).get_signature_runner("model")
    assert {name: each.shape for name, each in run(point=np.ones((5, 4), np.float32)).items()} == {
        "hidden": (5, 8),
        "logits": (5, 3),
    }


def test_inputs_in_a_list_are_scored_by_their_names_and_others_ignored(tmp_path):
    chance = np.random.default_rng(0)
    x = {name: chance.normal(size=(60, 3)).astype("float32") for name in ("zeta", "alpha")}
    x["patient"] = np.arange(60) // 4
    first, second = tf_keras.Input((3,), name="zeta"), tf_keras.Input((3,), name="alpha")
    joined = tf_keras.layers.Concatenate()([3 * first, second])
    model = tf_keras.Model([first, second], tf_keras.layers.Dense(2, "softmax")(joined))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = x, (x["zeta"][:, 0] > 0).astype(int)
    runner.fit(model, data, data, model_dir=tmp_path, train_steps=20, batch_size=20)
    made = runner.run(None, tmp_path, "export", validation=data)
    assert [each["accepted"] for each in made["exports"]] == [True]


def test_what_cannot_be_exported_is_refused(toy, tmp_path, capsys, monkeypatch):
    with pytest.raises(ConfigError, match=saying("checkpoint export")):
        runner.run(experiment(), tmp_path / "nothing", "export")
    with pytest.raises(ConfigError, match=saying("export checkpoint")):
        runner.run(experiment(), toy, "export", checkpoint="all")
    with pytest.raises(ConfigError, match=saying("acuracy mean accuracy")):
        runner.run(experiment(formats("tflite", metrics=("acuracy",))), toy, "export")
    other = experiment(formats("tflite"))
    monkeypatch.setattr(
        ToyTask,
        "build_model",
        lambda _: tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)]),
    )
    with pytest.raises(ConfigError, match=saying("written model")):
        runner.run(other, toy, "export")
    code, _, said = command(capsys, toy, "--gin.ExportConfig.formats=('tflight',)")
    assert code == 2
    assert "tflite" in said
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=saying("tf2onnx onnxruntime")):
        conversion.check_installed(["onnx"])


def test_a_dry_run_exports_nothing(toy):
    done = runner.run(experiment(), toy, "export", dry_run=True)
    assert done["status"] == "rehearsed"
    assert not (toy / "export").exists()


def test_onnx_scores_the_same(toy):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    (made,) = runner.run(experiment(formats("onnx")), toy, "export")["exports"]
    assert made["accepted"]
    assert made["metrics"] == pytest.approx(made["checkpoint_metrics"], abs=1e-5)


def test_a_model_that_a_task_never_calls_as_a_whole_cannot_pass(toy, monkeypatch):
    def validation_step(self, inputs, model, metrics=None):
        features, labels = inputs
        return {self.loss: self.build_losses(labels, model.call(features))}

    monkeypatch.setattr(ToyTask, "validation_step", validation_step)
    with pytest.raises(ConfigError, match=saying("call model")):
        runner.run(experiment(formats("tflite")), toy, "export")


def test_text_ops_are_named_before_anything_is_converted():
    text = tf_keras.layers.TextVectorization(vocabulary=["good", "bad"])
    words = tf_keras.Input((1,), dtype="string", name="words")
    found = tf_keras.layers.Embedding(8, 4)(text(words))
    model = tf_keras.Model(words, tf_keras.layers.GlobalAveragePooling1D()(found))
    task = task_factory.get_task(ToyConfig())
    servable = signatures.Servable(task, model, signatures.of_model(model, None))
    with pytest.raises(ConfigError, match=saying("tflite carry")):
        conversion.check_carries(["saved_model", "tflite"], servable)
    conversion.check_carries(["saved_model"], servable)


def test_a_keras_3_model_of_dicts_is_exported_with_all_its_state(tmp_path):
    point = keras.Input((4,), name="point")
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(point))
    heads = {"logits": keras.layers.Dense(3)(hidden), "size": keras.layers.Dense(1)(hidden)}
    model = keras.Model({"point": point}, heads)
    saved = tmp_path / "saved"
    conversion.save(signatures.Servable(object(), model, signatures.of_model(model, None)), saved)
    lite = conversion.convert("tflite", saved, tmp_path, []) / "model.tflite"
    points = np.ones((5, 4), np.float32)
    for run in (
        tf.saved_model.load(str(saved)).signatures["model"],
        Interpreter(str(lite)).get_signature_runner("model"),
    ):
        found, expected = run(point=points), model({"point": points})
        assert found.keys() == heads.keys()
        for name in heads:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_a_file_that_does_not_load_says_why(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"nothing of the kind")
    with (
        fresh_process.FreshProcess(
            "tflite", tmp_path / "model.tflite", tmp_path / "log"
        ) as process,
        pytest.raises(fresh_process.LoadError, match="ValueError"),
    ):
        process.call("model", {})


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [
        (0.90, 0.909, False),
        (0.90, 0.92, True),
        (80.0, 79.3, False),
        (80.0, 79.0, True),
        (float("nan"), float("nan"), False),
        (0.5, float("nan"), True),
    ],
)
def test_a_difference_counts_as_it_is_or_relative_to_a_large_value(one, other, far):
    assert gate.too_far(one, other, 0.01) is far


def test_an_accuracy_has_wilsons_interval_where_it_is_a_share_of_the_examples():
    scored = gate.Scored("tflite", {"accuracy": 0.9, "weighted_accuracy": 0.123456}, 1, 1.0)
    low, high = card.interval("accuracy", scored, 10)
    assert low == pytest.approx(0.5958, abs=1e-4)  # as Wilson's formula gives for 9 of 10
    assert high == pytest.approx(0.9821, abs=1e-4)
    assert card.interval("weighted_accuracy", scored, 10) is None
