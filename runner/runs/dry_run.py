"""`--dry_run`: does one small round of a mode's work in a temporary directory.

It uses real data: one training step, one evaluation batch, and a checkpoint saved and restored.
Problems that would occur hours later (a full disk, a directory that is not writable, a metric that
does not exist, too little memory) show up within seconds.
"""

import dataclasses
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner import config
from runner.checkpoints import checkpoint_files, restore, selection
from runner.configuration import unused_values
from runner.core import closing, console, text
from runner.devices import memory
from runner.errors import ConfigError, DivergedError, RunnerError
from runner.evaluation import evaluation_sets, evaluator, metric_names
from runner.history import policies
from runner.internals import keras as keras_internals
from runner.reporting import progress, scalars
from runner.run_directory import config_change
from runner.runs import build, open_run, training_state
from runner.runs.call import Call
from runner.storage import display_names
from runner.training import trainer

_TIMED_STEPS = 3


def rehearse(
    call: Call,
    *,
    trains: bool,
    evaluates: bool,
    checkpoint: str | None = None,
    allow_config_change: bool = False,
) -> dict[str, Any]:
    """Does everything once. The run's directory is only read.

    Args:
        call: The mode's call.
        trains: Whether the mode trains.
        evaluates: Whether it evaluates.
        checkpoint: The checkpoint that a mode without training would evaluate. None selects the
            newest, if any.
        allow_config_change: Whether the run may have another configuration.

    Returns:
        For JSON: `seconds_per_step`, `peak_memory_bytes` and similar values.

    Raises:
        RunnerError: the problem that the mode would have had.
    """
    model_dir = call.model_dir
    _check_folder(model_dir)
    with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
        if trains:
            config_change.check(model_dir, call.config, allow=allow_config_change, note=console.say)
            found = _training(call, Path(scratch), evaluates=evaluates)
        else:
            found = _evaluating(call, Path(scratch), checkpoint)
    peak = memory.peak()
    console.say(f"peak memory {text.size(peak)}")
    console.say(f"{display_names.of(model_dir)} is unchanged")
    return {"status": "rehearsed", **found, "peak_memory_bytes": peak, "model_dir": str(model_dir)}


def _training(call: Call, scratch: Path, *, evaluates: bool) -> dict[str, Any]:
    experiment, model_dir = call.config, call.model_dir
    if not evaluates:
        metric_names.check_idle(experiment)
    small = dataclasses.replace(call, model_dir=scratch, train_actions=(), eval_actions=())
    matters = unused_values.concerned(experiment, evaluates=evaluates)
    with unused_values.Reads(experiment, matters) as reads:
        plan = policies.of(experiment, evaluates=evaluates)
        run = open_run.open_run(small, plan, evaluators=model_dir)
        trainer = run.state.trainer
        with closing.closing(run):
            run.report()
            if newest := checkpoint_files.latest(model_dir):
                restore.restore(trainer.checkpoint, newest)
                console.say(f"{newest.name} restores cleanly")
            _say_shapes("training batch", trainer.train_dataset)
            seconds = _step(trainer)
            size = _save_and_restore(run.state)
            _check_space(model_dir, size, experiment)
            metrics = _evaluate(experiment, trainer) if evaluates else {}
        unused_values.Report(reads, note=console.say, record=lambda _: None)({})
    return {"seconds_per_step": seconds, "checkpoint_bytes": size, "metrics": metrics}


def _chosen(experiment: config.Experiment, model_dir: Path, which: str | None) -> Path | None:
    """Returns the checkpoint that would be evaluated, the newest if there are several."""
    if which is None:
        return checkpoint_files.latest(model_dir)
    paths = selection.select(model_dir, which, best=list(policies.of(experiment).best_folders))
    if not paths and not experiment.task.init_checkpoint:
        raise ConfigError(f"there is no checkpoint to evaluate in {model_dir}")
    return paths[-1] if paths else None


def _evaluating(call: Call, scratch: Path, checkpoint: str | None) -> dict[str, Any]:
    experiment, model_dir = call.config, call.model_dir
    path = _chosen(experiment, model_dir, checkpoint)
    built = build.build_evaluator(call, scratch)
    metric_names.check(
        experiment, built, model_dir, evaluates=True, evaluator=experiment.run.evaluator.name or "-"
    )
    if path is None:
        built.initialize(whole=checkpoint is not None)
        name = display_names.of(model_dir)
        console.say(f"{name} has no checkpoint yet; using the initial weights")
    else:
        built.restore(path)
        console.say(f"{path.name} restores cleanly")
    return {"metrics": _evaluate(experiment, built)}


def _step(trainer: trainer.Trainer) -> float:
    """Trains one step, and a few more to time them. Returns the seconds per step."""
    start = time.perf_counter()
    logs = trainer.train(tf.constant(1))
    loss = float(logs["training_loss"])
    first = time.perf_counter() - start
    if not np.isfinite(loss):
        raise DivergedError(f"the loss of the first step is {loss:g}")
    start = time.perf_counter()
    trainer.train(tf.constant(_TIMED_STEPS))
    broken = trainer.not_finite()
    seconds = (time.perf_counter() - start) / _TIMED_STEPS
    if broken:
        raise DivergedError(f"after {_TIMED_STEPS + 1} steps not finite: {', '.join(broken[:3])}")
    console.say(f"first step {first:.2f} s (compiles), loss {loss:.4g}; next step {seconds:.4f} s")
    return round(seconds, 6)


def _save_and_restore(state: training_state.TrainingState) -> int:
    """Saves and restores a checkpoint. Returns its size in bytes."""
    before = [
        (v, v.numpy()) for v in keras_internals.variables(state.trainer.model)
    ]  # names may be shared
    start = time.perf_counter()
    path = state.save()
    for variable in state.trainer.model.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    restore.restore(state.trainer.checkpoint, path)
    seconds = time.perf_counter() - start
    for variable, value in before:
        if not np.array_equal(variable.numpy(), value, equal_nan=True):
            raise RunnerError(f"{variable.name} is not restored from a checkpoint")
    files = [*checkpoint_files.data(path), checkpoint_files.index(path)]
    size = sum(file.stat().st_size for file in files)
    console.say(f"saved and restored a checkpoint of {text.size(size)} in {seconds:.2f} s")
    return size


def _evaluate(experiment: config.Experiment, built: evaluator.Evaluator) -> dict[str, Any]:
    """Evaluates one batch of each task's validation data, and reads one of the other data."""
    metrics: dict[str, float] = {}
    with built.strategy.scope():
        sets = evaluation_sets.build(experiment, built)
    for each in sets:
        if each.dataset is not None and each.task is None:
            with built.strategy.scope():
                next(iter(each.dataset))
            console.say(f"evaluation set {each.name!r}: read one batch")
            continue
        what = f"task {each.name!r}: " if each.task else ""
        _say_shapes(f"{what}validation batch", each.dataset or built.eval_dataset)
        start = time.perf_counter()
        if each.task:
            logs = built.evaluate_on(each.dataset, each.title, limit=1)
        else:
            logs = built.evaluate(tf.constant(1))
        found = scalars.scalars(each.named(logs))
        seconds = time.perf_counter() - start
        console.say(f"{what}one batch evaluated in {seconds:.2f} s: {progress.values(found)}")
        metrics |= found
    return metrics


def _say_shapes(what: str, dataset: Any) -> None:
    specs = [
        f"{getattr(spec, 'name', None) or ''} {spec.shape} {spec.dtype.name}".strip()
        for spec in tf.nest.flatten(dataset.element_spec)
        if hasattr(spec, "shape") and hasattr(spec, "dtype")
    ]
    console.say(f"{what}: {'; '.join(specs)}")


def _nearest(model_dir: Path) -> Path:
    """Returns the run's directory, or its nearest existing parent."""
    return next(path for path in (model_dir, *model_dir.absolute().parents) if path.exists())


def _check_folder(model_dir: Path) -> None:
    """Raises if the run's directory could not be written."""
    there = _nearest(model_dir)
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunnerError(f"{model_dir} cannot be written: no permission for {there}")


def _check_space(model_dir: Path, size: int, experiment: config.Experiment) -> None:
    """Raises if the disk has no room for all checkpoints that are kept at once."""
    there = _nearest(model_dir)
    needed = size * (experiment.trainer.max_to_keep + 1)
    free = shutil.disk_usage(there).free
    if needed > free:
        raise RunnerError(
            f"{experiment.trainer.max_to_keep} checkpoints and the one being written need "
            f"{text.size(needed)}; {there} has {text.size(free)} left (TrainerConfig.max_to_keep)"
        )
