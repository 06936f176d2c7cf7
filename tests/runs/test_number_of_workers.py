"""A run of two workers, then of one, then of two again."""

import collections
import itertools
import signal
import sys
from pathlib import Path

import own_task
import resumed
from several_workers import MULTI, Workers

import runner

STEPS = 400
SEEN = """
import dataclasses
import hashlib
import os

import numpy as np
import tensorflow as tf
from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class SeenConfig(image_classification.ImageClassificationConfig):
    pass


def note(step, replica, images):
    with open(f"seen/{os.getpid()}.txt", "a") as file:
        print(step, replica, *map(name, images), file=file)
    return np.int32(0)


def name(image):
    return hashlib.blake2s(image.tobytes(), digest_size=6).hexdigest()


@task_factory.register_task_cls(SeenConfig)
class SeenTask(image_classification.ImageClassificationTask):
    def train_step(self, inputs, model, optimizer, metrics=None):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        told = [optimizer.iterations, replica, inputs[0]]
        with tf.control_dependencies([tf.numpy_function(note, told, tf.int32)]):
            return super().train_step(inputs, model, optimizer, metrics)
"""

FLAGS = (
    "--gin_file=seen.gin",
    "--gin.TrainerConfig.checkpoint_interval=100",
    "--gin.TrainerConfig.summary_interval=10",
    "--gin.TrainerConfig.steps_per_loop=10",
    "--gin.RunConfig.gradient_accumulation=2",
    f"--gin.RuntimeConfig.distribution_strategy={MULTI!r}",
    "--params_override=trainer: {optimizer_config: {ema: {average_decay: 0.9}}}\n"
    "run: {variable_groups: [{name: last, pattern: logits, rate_scale: 0.5}]}",
)


def start(folder, count, stopped_by=None):
    """Trains with so many workers, until some steps later a signal comes; the step."""

    def rows():
        path = folder / "train.jsonl"
        return resumed.rows(path) if path.exists() else []

    log, enough = folder.with_name("log"), len(rows()) + 2
    with Workers(log, "train", folder, *FLAGS, count=count, digits=False) as workers:
        if stopped_by:
            workers.wait_until(lambda: len(rows()) >= enough)
            workers.processes[0].send_signal(stopped_by)
        codes = workers.wait()
        assert codes == [128 + stopped_by if stopped_by else 0] * count, workers.said()
        return workers.results()[0]["step"]


def seen():
    """The examples of each step, in the order of the replicas."""
    lines = [line.split() for path in Path("seen").iterdir() for line in path.open()]
    found = collections.defaultdict(list)
    for step, _, *examples in sorted(lines, key=lambda line: (int(line[0]), int(line[1]))):
        found[int(step)] += examples
    return [found[step] for step in range(STEPS)]


def placed():
    """The global batches of the configuration, and how many examples there are."""
    config = runner.load("seen.gin")
    module = sys.modules["seen"]
    batches = module.SeenTask(config.task).build_inputs(config.task.train_data).take(STEPS)
    found = [list(map(module.name, images)) for images, _ in batches.as_numpy_iterator()]
    return found, config.task.train_data.size()


def test_every_example_comes_once_an_epoch(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    Path("seen.py").write_text(SEEN)
    Path("seen.gin").write_text(own_task.digits_gin("seen", "SeenConfig", STEPS))
    Path("seen").mkdir()
    run = tmp_path / "run"
    first = start(run, 2, signal.SIGINT)
    second = start(run, 1, signal.SIGTERM)
    assert 0 < first < second < STEPS == start(run, 2)
    batches, size = placed()
    assert seen() == batches
    assert any(stop * 64 % size for stop in (first, second))
    stream = list(itertools.chain.from_iterable(batches))
    epochs = [collections.Counter(stream[n : n + size]) for n in range(0, len(stream) - size, size)]
    assert len(epochs) > 10
    assert all(epoch == epochs[0] for epoch in epochs)
    assert sum(epochs[0].values()) == size
