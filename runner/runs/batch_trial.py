"""Tries one batch size in this process: whether it fits, and how fast it is."""

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner import config
from runner.configuration import sections
from runner.data import batches
from runner.devices import memory
from runner.errors import ConfigError
from runner.runs import build, compiled_model
from runner.runs.call import Call
from runner.training import trainer

_UNTIMED_STEPS = 2  # the first steps compile and fill the input pipeline


def measure(call: Call, size: int) -> dict[str, Any]:
    """Trains for a few steps in batches of `size`.

    Returns:
        For JSON: `fits`, and either the throughput and the peak memory, or the `reason`.

    Raises:
        ConfigError: the training data have no such batches.
    """
    found: dict[str, Any] = {"global_batch_size": size}
    options = call.config.run.find_batch
    try:
        with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
            built = _built(call, size, Path(scratch))
            seconds = _seconds_per_step(built, options.seconds)
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        reason = (str(error).splitlines() or ["out of memory"])[0]
        return {**found, "fits": False, "reason": reason}
    return {
        **found,
        "fits": True,
        "examples_per_second": round(size / seconds, 1),
        "seconds_per_step": round(seconds, 6),
        "peak_memory_bytes": memory.peak_of_gpus() or memory.peak(),
    }


def _built(call: Call, size: int, folder: Path) -> trainer.Trainer:
    """Returns a trainer whose data give batches of `size`."""
    compiled_model.bring_optimizer(call.config)
    inside = dataclasses.replace(call, config=_resized(call.config, size), model_dir=folder)
    built, _ = build.build_trainer(inside, step=0, evaluates=False)
    built.initialize()
    local = built.strategy.experimental_local_results
    parts = local(next(iter(built.train_dataset)))
    examples = sum(int(batches.examples(part)) for part in parts)
    if examples != size:
        raise ConfigError(
            f"task.train_data.global_batch_size = {size:,}: the data give batches of {examples:,}"
        )
    return built


def _resized(experiment: config.Experiment, size: int) -> config.Experiment:
    made = sections.unlocked(experiment)
    made.task.train_data.global_batch_size = size
    made.run.limit_train = 0
    made.trainer.recovery_max_trials = -1
    return made


def _seconds_per_step(built: trainer.Trainer, least: float) -> float:
    """Returns the mean over steps that together take `least` seconds or more."""
    _train(built, _UNTIMED_STEPS)
    steps, count, start = 0, 1, time.perf_counter()
    while (taken := time.perf_counter() - start) < least:
        _train(built, count)
        steps, count = steps + count, 2 * count
    return taken / steps


def _train(built: trainer.Trainer, steps: int) -> None:
    """Trains this many steps, regardless of their loss, and waits for them."""
    built.brake.sound.assign(True)
    float(built.train(tf.constant(steps))["training_loss"])
