"""Event files of other programs become runs that tables and pages show."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from runner import main
from runner.inspection import report
from runner.run_directory.run import Run


def write(folder, rows):
    """An event file with the values of each step by tag."""
    with tf.summary.create_file_writer(str(folder)).as_default():
        for step, values in rows.items():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)


def imported(logs, target, capsys):
    """The exit code and the results of the command."""
    code = main.main(["--mode=import", str(logs), f"--model_dir={target}"])
    out = capsys.readouterr().out.splitlines()
    return code, json.loads(out[-1]) if out else {}


def test_runs_of_keras_are_imported(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(40, 4))
    histories = {}
    for name in ("a", "b"):
        model = keras.Sequential([keras.layers.Dense(1, "sigmoid")])
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        board = keras.callbacks.TensorBoard(tmp_path / "logs" / name)
        kept = model.fit(
            x, x[:, 0] > 0, validation_split=0.2, epochs=2, verbose=0, callbacks=[board]
        )
        histories[name] = kept.history
    code, results = imported(tmp_path / "logs", tmp_path / "runs", capsys)
    assert (code, len(results["runs"])) == (0, 2)
    for name, history in histories.items():
        run = Run(tmp_path / "runs" / name)
        losses = [row.metrics["validation_loss"] for row in run.evaluations]
        np.testing.assert_allclose(losses, history["val_loss"], rtol=1e-6)
        assert [row.step for row in run.evaluations] == [0, 1]
        trained = [row["accuracy"] for row in run.training_rows]
        np.testing.assert_allclose(trained, history["accuracy"], rtol=1e-6)
        assert run.state == "done"
    assert report.report(tmp_path / "runs" / "a")["status"] == "done"
    assert main.main(["--mode=runs", f"--model_dir={tmp_path / 'runs'}"]) == 0
    printed = capsys.readouterr()
    assert "validation_loss" in printed.out + printed.err


def test_further_sets_have_a_prefix_and_a_single_run_its_own_directory(tmp_path, capsys):
    write(tmp_path / "logs" / "train", {10: {"loss": 1.0}, 20: {"loss": float("nan")}})
    write(tmp_path / "logs" / "test", {20: {"accuracy": 0.5}})
    write(tmp_path / "logs" / "eval", {20: {"accuracy": 0.75}})
    code, results = imported(tmp_path / "logs", tmp_path / "run", capsys)
    assert (code, results["runs"]) == (0, [str(tmp_path / "run")])
    run = Run(tmp_path / "run")
    assert [row.metrics for row in run.evaluations] == [{"accuracy": 0.75, "test/accuracy": 0.5}]
    assert [row["training_loss"] for row in run.training_rows] == [1.0, "nan"]


def test_imported_runs_with_equal_values_are_equal(tmp_path, capsys):
    for name in ("a", "b"):
        write(tmp_path / "logs" / name / "train", {10: {"loss": 0.5}, 20: {"loss": 0.25}})
        write(tmp_path / "logs" / name / "validation", {20: {"accuracy": 0.9}})
    assert imported(tmp_path / "logs", tmp_path / "runs", capsys)[0] == 0
    runs = [str(tmp_path / "runs" / name) for name in ("a", "b")]
    assert main.main(["--mode=compare", *runs]) == 0


def test_an_existing_run_is_kept(tmp_path, capsys):
    write(tmp_path / "logs" / "train", {1: {"loss": 1.0}})
    assert imported(tmp_path / "logs", tmp_path / "run", capsys)[0] == 0
    before = (tmp_path / "run" / "train.jsonl").read_bytes()
    assert imported(tmp_path / "logs", tmp_path / "run", capsys)[0] == 2
    assert (tmp_path / "run" / "train.jsonl").read_bytes() == before


@pytest.mark.parametrize("logs", ["empty", "absent"])
def test_a_directory_without_scalars_is_rejected(tmp_path, capsys, logs):
    (tmp_path / "empty").mkdir()
    assert imported(tmp_path / logs, tmp_path / "run", capsys)[0] == 2
    assert not (tmp_path / "run").exists()
