"""What two workers decide, beside what one process over two devices decides."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import own_task
import pytest
import resumed
from several_workers import MULTI, Workers
from warm import Popen

import runner

HELD = """
import dataclasses
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class HeldConfig(image_classification.ImageClassificationConfig):
    pass


def hold():
    if Path("hold").exists():
        with Path("held").open("a") as file:
            file.write(".")
        time.sleep(0.2)
    return np.int32(0)


@task_factory.register_task_cls(HeldConfig)
class HeldTask(image_classification.ImageClassificationTask):
    def validation_step(self, inputs, model, metrics=None):
        with tf.control_dependencies([tf.numpy_function(hold, [], tf.int32)]):
            return super().validation_step(inputs, model, metrics)
"""

GIN = """
HeldConfig.validation_data = @validation/image_data.ImageData()
validation/ImageData.is_training = False
validation/ImageData.global_batch_size = 8
TestConfig.data = @test/image_data.ImageData()
TestConfig.last = True
test/ImageData.is_training = False
test/ImageData.global_batch_size = 50
RunConfig.evaluation_sets = (@part/EvaluationSetConfig(),)
part/EvaluationSetConfig.name = 'part'
part/EvaluationSetConfig.data = @part/image_data.ImageData()
part/EvaluationSetConfig.examples = 51
part/ImageData.is_training = False
part/ImageData.global_batch_size = 10
TrainerConfig.validation_interval = 10
TrainerConfig.checkpoint_interval = 10
TrainerConfig.summary_interval = 10
TrainerConfig.steps_per_loop = 5
TrainerConfig.best_checkpoint_eval_metric = 'accuracy'
RunConfig.system_seconds = 0
# after the first, no evaluation is better
PlateauConfig.higher = ('accuracy',)
PlateauConfig.min_delta = 1.0
PlateauConfig.tolerance = 1
EarlyStoppingConfig.higher = ('accuracy',)
EarlyStoppingConfig.min_delta = 1.0
EarlyStoppingConfig.patience = 4
"""
BATCHES = 45  # of an evaluation, with eight of the 359 examples each


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("decided")
    (made / "held.py").write_text(HELD)
    (made / "held.gin").write_text(own_task.digits_gin("held", "HeldConfig", 200) + GIN)
    return made


@pytest.fixture(scope="module")
def decided(folder):
    """The results of two workers, stopped in their first evaluation and started again."""
    with contextlib.chdir(folder):
        run, log, flags = folder / "run", folder / "log", ("--gin_file=held.gin",)
        several = f"--gin.RuntimeConfig.distribution_strategy={MULTI!r}"
        (folder / "hold").touch()
        with Workers(log, "train_and_eval", run, *flags, several, digits=False) as workers:
            workers.wait_until((folder / "held").exists)
            workers.processes[1].send_signal(signal.SIGTERM)
            assert workers.wait() == [143, 143], workers.said(0) + workers.said(1)
        stopped = resumed.rows(run / "history.jsonl") if (run / "history.jsonl").exists() else []
        (folder / "hold").unlink()
        command = [sys.executable, "-m", "runner", "--mode=continuous_eval", *flags, several]
        command += [f"--model_dir={run}", "--gin.EvaluatorConfig.policy='every'"]
        with (log / "evaluator.err").open("a") as errors:
            beside = Popen(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            with Workers(log, "train_and_eval", run, *flags, several, digits=False) as workers:
                assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
                results = workers.results()[0]
            assert beside.wait(300) == 0, (log / "evaluator.err").read_text()
        finally:
            beside.kill()
    return results, stopped


def test_a_signal_ends_an_evaluation_on_all_workers(decided, folder):
    _, rows = decided
    assert rows == []  # nothing was recorded of it
    assert (folder / "held").stat().st_size < 2 * BATCHES


def test_decisions_and_scores_are_those_of_one_process_over_two_devices(
    decided, folder, monkeypatch
):
    results, _ = decided
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    config = runner.load(
        "held.gin",
        ["RuntimeConfig.distribution_strategy = 'mirrored'", "RunConfig.logical_cpus = 2"],
    )
    mirrored = runner.run(config, folder / "mirrored", "train_and_eval")
    assert results["status"] == mirrored["status"] == "stopped"
    assert results["step"] == 50
    assert "early stopping" in results["reason"]
    for name in ("reason", "step", "metrics", "test"):
        assert results[name] == json.loads(json.dumps(mirrored[name]))
    rows = resumed.rows(folder / "run" / "history.jsonl")
    assert rows == resumed.rows(folder / "mirrored" / "history.jsonl")
    trained = resumed.rows(folder / "run" / "train.jsonl")
    assert [row["learning_rate"] for row in trained] == pytest.approx(
        [0.1 * scale for scale in (1, 1, 0.5, 0.25, 0.125)]
    )
    assert resumed.state(folder / "run", 50) == resumed.state(folder / "mirrored", 50)


def test_an_evaluator_beside_them_scores_every_checkpoint(decided, folder):
    own = resumed.rows(folder / "run" / "eval-continuous" / "history.jsonl")
    theirs = [row for row in resumed.rows(folder / "run" / "history.jsonl") if "metrics" in row]
    for first, second in zip(own[:5], theirs[:5], strict=True):
        assert first["step"] == second["step"]
        assert first["metrics"] == pytest.approx(second["metrics"], abs=1e-4)
    assert Path(folder / "run" / "eval-continuous" / "best").is_dir()
