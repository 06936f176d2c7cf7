"""Model Garden's programs for several workers, on `runner.run_experiment`."""

import json
import signal

import model_garden_program
import numpy as np
import pytest
import tensorflow as tf
import toy

import runner
from runner.errors import ConfigError

LONG = {"trainer": {"train_steps": 400, "checkpoint_interval": 100, "validation_interval": 400}}


def ended(workers):
    for each in workers:
        each.join(600)
    return [each.exitcode for each in workers]


def said(log):
    return "\n".join(path.read_text() for path in log.glob("*.err"))


def test_workers_that_a_given_strategy_connects_train_together(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "together"
    struck = model_garden_program.started(folder, log, [LONG], strikes=True)
    assert ended(struck) == [128 + signal.SIGTERM] * 2, said(log)
    assert ended(model_garden_program.started(folder, log, [LONG])) == [0, 0], said(log)
    chief, other = (json.loads((log / f"{index}.json").read_text()) for index in range(2))
    assert chief["weights"] == other["weights"]
    rate = "steps_per_second"
    assert [{**each["logs"], rate: 0} for each in (chief, other)] == [chief["logs"] | {rate: 0}] * 2
    assert len(json.loads((folder / "run.json").read_text())["starts"]) == 2

    devices = ["CPU:0", "CPU:1"]
    strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    params = toy.experiment(LONG)
    with strategy.scope():
        task = toy.ToyTask(params.task)
    model, logs = runner.run_experiment(
        strategy, task, "train_and_eval", params, str(tmp_path / "one"), run_post_eval=True
    )
    for ours, theirs in zip(model.get_weights(), chief["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert chief["logs"]["validation_loss"] == pytest.approx(float(logs["validation_loss"]))


def test_connected_workers_of_other_configurations_do_not_begin(tmp_path):
    other = {"run": {"seed": 3}}
    workers = model_garden_program.started(tmp_path / "run", tmp_path / "log", [{}, other])
    assert ended(workers) == [1, 1]
    for index in range(2):
        text = (tmp_path / "log" / f"{index}.err").read_text()
        assert "worker 1" in text
        assert "run.seed" in text
    assert not (tmp_path / "run" / "params.yaml").exists()


def test_a_strategy_for_one_process_is_refused_to_several_workers(tmp_path, monkeypatch):
    task = {"type": "worker", "index": 1}
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    params = toy.experiment()
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        runner.run_experiment(
            tf.distribute.get_strategy(), toy.ToyTask(params.task), "train", params, str(tmp_path)
        )
    assert not list(tmp_path.iterdir())
