"""The mode `ensemble`, over runs that have been trained."""

import json
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import questions
import tf_keras
import warm
from image_files import write_npz
from wording import saying, says

import runner
from runner import main
from runner.errors import ConfigError
from runner.studies.ensembles import averaging
from tasks import image_classification
from tasks.questions import made_up_questions

SHORT = (
    "TrainerConfig.train_steps = 30",
    "TrainerConfig.steps_per_loop = 30",
    "TrainerConfig.validation_interval = 30",
    "TrainerConfig.checkpoint_interval = 30",
    "MLPConfig.hidden = (16,)",
)


def train(folder, *params):
    runner.run(runner.load("digits.gin", [*SHORT, *params]), folder, "train_and_eval")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two good runs and one that has hardly learned, as the trials of a study."""
    study = tmp_path_factory.mktemp("study")
    for number, params in enumerate(
        [["RunConfig.seed = 1"], ["RunConfig.seed = 2"], ["MLPConfig.dropout = 0.95"]]
    ):
        train(study / f"trials/{number}-x", *params)
    return study


@pytest.fixture
def ensemble(tmp_path, capsys):
    """Runs the command; its exit code, its results, and what it says."""

    def command(*flags, out=tmp_path / "together"):
        code = main.main(["--mode=ensemble", f"--model_dir={out}", *flags])
        printed = capsys.readouterr()
        return code, json.loads(printed.out.splitlines()[-1]) if not code else None, printed.err

    return command


def names(runs, *numbers):
    return "--runs=" + ",".join(str(runs / f"trials/{number}-x") for number in numbers)


def test_the_mean_is_scored_by_the_tasks_metrics_beside_its_members(runs, ensemble, tmp_path):
    _, results, said = ensemble(names(runs, 0, 1), "--select=2")
    for member, number in zip(results["members"], (0, 1), strict=True):
        row = json.loads((runs / f"trials/{number}-x/best/info.json").read_text())
        assert member["metrics"]["accuracy"] == pytest.approx(row["accuracy"], abs=1e-6)
    mean = results["mean"]["metrics"]
    one, two = (member["metrics"] for member in results["members"])
    # By convexity, the mean is never worse than its members are on average.
    assert mean["negative_log_likelihood"] < np.mean(
        [each["negative_log_likelihood"] for each in (one, two)]
    )
    assert (
        results["temperature"]["metrics"]["negative_log_likelihood"]
        < (mean["negative_log_likelihood"])
    )
    assert results["temperature"]["metrics"]["accuracy"] == mean["accuracy"]
    assert 0 < results["diversity"]["disagreement"] < 1
    assert "mean of 2" in said
    kept = [np.load(each) for each in sorted((tmp_path / "together/ensemble").glob("*.npz"))]
    parts = averaging.mean([[each["part0"]] for each in kept])
    for name, value in averaging.calibration(parts, [kept[0]["label0"]]).items():
        assert mean[name] == pytest.approx(value, rel=1e-5)  # the task's own are the same
    written = json.loads((tmp_path / "together/ensemble.json").read_text())
    assert written["mean"]["metrics"] == mean


def test_a_study_is_selected_from_and_what_was_predicted_is_not_predicted_again(runs, ensemble):
    flags = ["--select=3", "--metric=negative_log_likelihood:lower"]
    _, results, said = ensemble(*flags, out=runs)
    assert len(results["members"]) == 3
    selected = results["selected"]
    assert 2 not in selected["members"]
    assert selected["scores"][-1] == pytest.approx(selected["metrics"]["negative_log_likelihood"])
    assert said.count("predicting with") == 3
    code, again, said = ensemble(*flags, out=runs)
    assert (code, again["mean"], again["selected"]) == (0, results["mean"], selected)
    assert "predicting with" not in said


def test_members_of_folds_are_averaged_on_data_that_none_has_seen(tmp_path, ensemble):
    tested = write_npz(tmp_path / "test.npz", 40, images=np.zeros((40, 8, 8), np.uint8), classes=10)
    made = ",".join(
        str(
            train(
                tmp_path / f"fold{fold}",
                "ImageData.folds = 3",
                f"ImageData.fold = {fold}",
                "test/ImageData.folds = 0",
                "test/ImageData.fold = 0",
                f"test/ImageData.input_path = {tested!r}",
                "test/ImageData.is_training = False",
                "test/ImageData.global_batch_size = 16",
                "TestConfig.data = @test/image_data.ImageData()",
            )
        )
        for fold in range(2)
    )
    code, _, said = ensemble(f"--runs={made}")
    assert code == 2
    says(said, "members scored 0")
    code, results, said = ensemble(f"--runs={made}", "--data=test")
    assert code == 0
    says(said, "calibrated common")
    assert len(results["members"]) == 2
    code, _, said = ensemble(f"--runs={made}", "--data=test", "--select=1")
    assert code == 2
    says(said, "--select common validation")


MINE = """
import numpy as np
import tf_keras


def data():
    x = np.random.default_rng(0).normal(size=(60, 4))
    return x, LABELS


def model():
    made = tf_keras.Sequential([tf_keras.layers.Dense(WIDTH)])
    made.compile("adam", tf_keras.losses.LOSS(from_logits=True), weighted_metrics=["METRIC"])
    return made
"""


@pytest.mark.parametrize(
    ("labels", "width", "loss", "metric"),
    [
        ("x[:, :3].argmax(1)", 3, "SparseCategoricalCrossentropy", "accuracy"),
        ("(x[:, :1] > 0) * 1", 1, "BinaryCrossentropy", "AUC"),
    ],
)
def test_probabilities_of_a_users_models_are_averaged(
    tmp_path, monkeypatch, ensemble, labels, width, loss, metric
):
    monkeypatch.syspath_prepend(tmp_path)
    code = MINE.replace("LABELS", labels).replace("WIDTH", str(width))
    (tmp_path / "mine.py").write_text(code.replace("LOSS", loss).replace("METRIC", metric))
    (tmp_path / "mine.gin").write_text(
        "from __gin__ import dynamic_registration\nimport mine\nfrom tasks import supervised\n"
        "include 'supervised.gin'\nSupervisedConfig.model = @mine.model\n"
        "SupervisedConfig.train = @mine.data\nSupervisedConfig.validation = @mine.data\n"
        "TrainerConfig.train_steps = 20\n"
    )
    alone = []
    for seed in (1, 2):
        loaded = runner.load("mine.gin", [f"RunConfig.seed = {seed}"])
        trained = runner.run(loaded, tmp_path / f"run{seed}", "train_and_eval")
        alone.append(trained["metrics"])
    _, results, _ = ensemble(f"--runs={tmp_path / 'run1'},{tmp_path / 'run2'}")
    for member, metrics in zip(results["members"], alone, strict=True):
        for name, value in metrics.items():
            assert member["metrics"][name] == pytest.approx(value, rel=1e-4)
    losses = [each["validation_loss"] for each in alone]
    assert results["mean"]["metrics"]["validation_loss"] < np.mean(losses)  # by convexity


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--runs={0}"], "ensemble members"),
        (["--runs={0},{0}"], "0-x twice"),
        (["--runs={0},{1}/nothing"], "nothing not exist"),
        (["--runs={0},{1}/train"], "train study params.yaml"),
        (["--runs={0},{1}", "--data=tset"], "--data=tset data"),
        (["--runs={0},{1}", "--select=0"], "--select=0 1"),
        (["--runs={0},{1}", "--metric=loss"], "--metric no effect without --select"),
        (["--runs={0},{1}", "--select=1", "--metric=entropy"], "what better"),
        (
            ["--runs={0},{1}", "--select=1", "--metric=acuracy:higher"],
            "--metric=acuracy task metric",
        ),
        (["--runs={0},{1}", "--gin_file=digits.gin"], "--gin_file effect"),
        (["--runs={0},{1}", "--checkpoint=7"], "--checkpoint=7 checkpoint"),
    ],
)
def test_what_makes_no_ensemble_is_refused(flags, message, runs, ensemble):
    folders = [runs / f"trials/{number}-x" for number in range(2)]
    code, _, said = ensemble(*(each.format(*folders) for each in flags))
    assert code == 2
    says(said, message)


def test_runs_that_do_not_fit_together_are_refused(runs, ensemble, tmp_path):
    aspects = shutil.copytree(runs / "trials/0-x", tmp_path / "aspects")
    (aspects / "config.gin").write_text("include 'aspects_tiny.gin'")
    code, _, said = ensemble(f"{names(runs, 0)},{aspects}")
    assert code == 2
    assert "trains ImageClassificationConfig" in said
    fewer = train(tmp_path / "fewer", "ImageClassificationConfig.num_classes = 11")
    code, _, said = ensemble(f"{names(runs, 0)},{fewer}")
    assert code == 2
    says(said, "validation [359, 10] 11]")
    bare = shutil.copytree(runs / "trials/0-x", tmp_path / "bare")
    for path in [*bare.glob("ckpt-*"), *bare.glob("best/ckpt-*"), bare / "checkpoint"]:
        path.unlink()
    code, _, said = ensemble(f"{names(runs, 1)},{bare}")
    assert code == 2
    says(said, f"--checkpoint=best no {bare}")


def test_a_dry_run_writes_nothing(runs, ensemble, tmp_path):
    code, results, _ = ensemble(names(runs, 0, 1), "--dry_run")
    assert (code, results["status"]) == (0, "rehearsed")
    assert not (tmp_path / "together").exists()


def test_a_temperature_at_the_end_of_its_range_is_pointed_out(runs, ensemble, monkeypatch):
    monkeypatch.setattr(averaging, "temperature", lambda *_: 20.0)
    _, results, said = ensemble(names(runs, 0, 1))
    assert results["temperature"]["at_an_end"]
    says(said, "T=20 searched")


def test_a_metric_that_is_nan_leaves_valid_json(runs, ensemble, monkeypatch, tmp_path):
    task = image_classification.ImageClassificationTask
    metrics = task.build_metrics

    def undefined(_, outputs):
        return outputs[:, 0] * float("nan")

    def build_metrics(self, training=True):
        f1 = tf_keras.metrics.MeanMetricWrapper(undefined, name="f1")
        return [*metrics(self, training), f1]

    monkeypatch.setattr(task, "build_metrics", build_metrics)
    _, results, _ = ensemble(names(runs, 0, 1))
    text = (tmp_path / "together" / "ensemble.json").read_text()
    written = json.loads(text, parse_constant=pytest.fail)
    assert results["mean"]["metrics"]["f1"] == written["mean"]["metrics"]["f1"] == "nan"


def test_members_on_several_replicas_with_averaged_weights_score_as_their_runs_did(tmp_path):
    own = (
        "RuntimeConfig.distribution_strategy = 'mirrored'",
        "RunConfig.logical_cpus = 2",
        "OptimizationConfig.ema = @EMAConfig()",
        "EMAConfig.average_decay = 0.9",
        "validation/ImageData.global_batch_size = 100",
    )
    one = train(tmp_path / "one", *own)
    folders = [one, shutil.copytree(one, tmp_path / "two")]
    found = runner.run(None, tmp_path / "out", "ensemble", runs=folders, select=1)
    for member, folder in zip(found["members"], folders, strict=True):
        row = json.loads((folder / "best/info.json").read_text())
        for name in ("accuracy", "negative_log_likelihood"):
            assert member["metrics"][name] == pytest.approx(row[name], rel=1e-5)


def test_sigterm_ends_it_and_the_next_start_predicts_only_what_is_missing(runs, ensemble, tmp_path):
    out = tmp_path / "together"
    command = [sys.executable, "-m", "runner", "--mode=ensemble", f"--model_dir={out}"]
    process = warm.Popen([*command, names(runs, 0, 1, 2)])
    while not list(out.glob("ensemble/*.npz")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 143
    assert not (out / "ensemble.json").exists()
    kept = len(list(out.glob("ensemble/*.npz")))
    code, results, said = ensemble(names(runs, 0, 1, 2))
    assert (code, said.count("predicting with")) == (0, 3 - kept)
    assert results["mean"] == ensemble(names(runs, 0, 1, 2), out=tmp_path / "other")[1]["mean"]


def test_question_answering_has_a_temperature_for_starts_and_ends(tmp_path, ensemble):
    vocab_file = questions.vocabulary(tmp_path / "vocab.txt")
    path = questions.written(tmp_path / "few.json", made_up_questions.document(60, seed=5))
    data = {"vocab_file": vocab_file, "max_context": 100, "stride": 50, "max_question": 20}
    train = {"input_path": path}
    made = questions.experiment(questions.bert(num_layers=1), train=train, both=data)
    runner.run(made, tmp_path / "one", "train_and_eval")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    _, results, _ = ensemble(f"--runs={tmp_path / 'one'},{tmp_path / 'two'}")
    mean, tempered = results["mean"]["metrics"], results["temperature"]["metrics"]
    assert tempered["negative_log_likelihood"] <= mean["negative_log_likelihood"]
    assert mean["negative_log_likelihood"] == pytest.approx(mean["validation_loss"], rel=1e-3)


def test_in_python_too_what_has_no_effect_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match=saying("configurations None")):
        runner.run(runner.load("digits.gin"), runs, "ensemble")
    with pytest.raises(ConfigError, match=saying("metric select")):
        runner.run(None, runs, "ensemble", metric="accuracy")
    with pytest.raises(ConfigError, match=saying("needs configuration")):
        runner.run(None, runs, "eval")
    with pytest.raises(ConfigError, match=saying("select ensemble")):
        runner.run(runner.load("digits.gin"), tmp_path, "eval", select=2)
