"""`runner.study`: a study of a Keras model that a function builds."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.random import default_rng

import runner
from runner.errors import ConfigError

X = default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
DATA = (X[:40], Y[:40]), (X[40:], Y[40:])
SHORT = {
    "train_steps": 10,
    "batch_size": 10,
    "gin_params": ["RunConfig.tensorboard = False", "RunConfig.seed = 5"],
}
SCRIPT = """
import sys
import numpy as np
import tf_keras
import runner

x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
y = x[:, :3].argmax(1)

def build_model(rate):
    model = tf_keras.Sequential([tf_keras.layers.Dropout(0.2), tf_keras.layers.Dense(3)])
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.SGD(rate), loss)
    return model

for folder, jobs in zip(sys.argv[1::2], sys.argv[2::2]):
    results = runner.study(
        build_model, (x[:40], y[:40]), (x[40:], y[40:]), model_dir=folder, vary={"rate": [0.1]},
        seeds=1, jobs=int(jobs), train_steps=2000, batch_size=10,
        gin_params=["RunConfig.tensorboard = False", "TrainerConfig.steps_per_loop = 10"],
    )
    print(results["trials"])
"""


def made(units=4, rate=0.1, keras=tf_keras):
    model = keras.Sequential([keras.layers.Dense(units, "relu"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    return model


def study(build, folder, vary, **more):
    return runner.study(build, *DATA, model_dir=folder, vary=vary, **{**SHORT, **more})


def weights(folder, step):
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("model/")]
    return {name: np.asarray(reader.get_tensor(name)).tobytes() for name in names}


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Two widths and one value of a setting, from a closure."""
    folder = tmp_path_factory.mktemp("study")
    rate = 0.1

    def build_model(units=4):
        return made(units, rate)

    vary = {"units": [2, 8], "SGDExperimentalConfig.momentum": (0.9,)}
    return folder, study(build_model, folder, vary, seeds=[5]), build_model, vary


def test_the_best_configuration_and_all_others_are_returned(studied):
    _, results, _, _ = studied
    assert results["status"] == "done"
    assert results["trials"] == {"done": 2}
    rows = results["configurations"]
    assert results["best"]["parameters"] == rows[0]["parameters"]
    losses = [row["metrics"]["validation_loss"] for row in rows]
    assert losses == sorted(losses)
    assert "accuracy" in rows[0]["metrics"]
    assert {row["parameters"]["units"] for row in rows} == {2, 8}
    for row in rows:
        assert runner.Run(row["trials"][0]).best.metrics == pytest.approx(row["metrics"])


def test_a_trial_is_bit_equal_to_a_run_of_fit(studied, tmp_path):
    folder, _, build, _ = studied
    params = [*SHORT["gin_params"], "SGDExperimentalConfig.momentum = 0.9"]
    options = {**SHORT, "gin_params": params}
    runner.fit(lambda: build(8), *DATA, model_dir=tmp_path / "run", **options)
    (trial,) = folder.glob("trials/0001-*")
    found = weights(trial, 10)
    assert found
    assert found == weights(tmp_path / "run", 10)


def test_the_same_call_only_reads_and_a_longer_list_adds_trials(studied):
    folder, before, build, vary = studied
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/ckpt-*")}
    assert study(build, folder, vary, seeds=[5])["best"] == before["best"]
    more = study(build, folder, {**vary, "units": [2, 8, 3]}, seeds=[5])
    assert more["trials"] == {"done": 3}
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())


def test_other_data_are_rejected(studied):
    folder, _, build, vary = studied
    with pytest.raises(ConfigError, match="train data"):
        runner.study(build, (X, Y), DATA[1], model_dir=folder, vary=vary, seeds=[5], **SHORT)


def test_commands_read_the_study(studied):
    folder, *_ = studied
    found = runner.run(None, folder, "runs", output=folder / "runs.csv")
    assert found["states"]["done"] == found["runs"]
    assert "task.model.arguments.units" in (folder / "runs.csv").read_text()
    assert runner.run(None, folder, "report")["status"] == "done"


def test_ranges_are_searched_and_bad_trials_paused(tmp_path):
    results = study(
        lambda rate, units=4: made(units, rate),
        tmp_path / "study",
        {"rate": "log(1e-4, 1)"},
        trials=3,
        stopping="asha",
        train_steps=12,
        gin_params=[*SHORT["gin_params"], "TrainerConfig.validation_interval = 4"],
    )
    assert sum(results["trials"].values()) == 3
    assert 1 <= results["trials"]["done"] < 3
    rates = {row["parameters"]["rate"] for row in results["configurations"]}
    assert len(rates) == 3
    assert all(1e-4 <= rate <= 1 for rate in rates)


def test_a_function_that_fails_for_one_value_is_reported(tmp_path):
    def build(units):
        if units == 3:
            raise ValueError("three")
        return made(units)

    with pytest.raises(ValueError, match="three"):
        study(build, tmp_path / "study", {"units": [2, 3]})
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("vary", "word"),
    [
        ({"unit": [2]}, "units"),
        ({"units": 3}, "list"),
        ({"units": [object()]}, "build"),
        ({"units": "log(1, 2"}, "units"),
        ({"units": "int(1, 4)"}, "trials"),
        ({"SGDConfig.momentum": [0.1, 0.9]}, "momentum"),
        ({"Nothing.momentum": [0.1, 0.9]}, "Nothing"),
        (["units"], "dict"),
        ({}, "vary"),
    ],
)
def test_mistakes_in_vary(vary, word, tmp_path):
    with pytest.raises(ConfigError, match=word):
        study(made, tmp_path, vary)


def test_mistakes_in_other_arguments(tmp_path):
    with pytest.raises(ConfigError, match="function"):
        study(made(), tmp_path, {})
    with pytest.raises(ConfigError, match="batch_size"):
        study(made, tmp_path, {"units": [2]}, batchsize=3)
    with pytest.raises(ConfigError, match="rate"):
        study(lambda units, rate: made(units, rate), tmp_path, {"units": [2, 4]})
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    with pytest.raises(ConfigError, match="jobs"):
        options = {**SHORT, "jobs": 2}
        runner.study(made, data, model_dir=tmp_path / "s", vary={"units": [2, 4]}, **options)


def script(folder, *arguments):
    path = folder / "script.py"
    path.write_text(SCRIPT)
    return [sys.executable, str(path), *map(str, arguments)]


def test_a_killed_study_in_a_script_continues_bit_exactly_in_a_process_of_the_trial(tmp_path):
    killed = subprocess.Popen(script(tmp_path, tmp_path / "killed", 1))
    while not list(tmp_path.glob("killed/trials/0000-*/ckpt-*.index")):
        assert killed.poll() is None
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    command = script(tmp_path, tmp_path / "killed", 2, tmp_path / "once", 1)
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines().count(str({"done": 1})) == 2
    found = runner.Run(next(tmp_path.glob("killed/trials/0000-*")))
    assert len(found.attempts) == 2
    facts = json.loads((found.directory / "trial.json").read_text())
    assert facts["parameters"] == {"build_model.rate": 0.1}

    assert weights(next(tmp_path.glob("once/trials/0000-*")), 2000) == weights(
        found.directory, 2000
    )
