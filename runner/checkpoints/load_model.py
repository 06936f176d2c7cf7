"""Loads the model of a run with a checkpoint's weights, as its evaluations use them."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task

from runner import config
from runner.checkpoints import averages, restore, selection
from runner.configuration import multitask, sections, task_contract
from runner.core import layout
from runner.devices import process_state, strategy
from runner.errors import ConfigError
from runner.history import policies
from runner.models import models, optimizer


def load(directory: Path, checkpoint: str | int = "", model: Any = None) -> Any:
    """Builds the model of the run in a directory, restores its weights and compiles it.

    The process keeps its settings, such as the precision policy.

    Args:
        directory: The run's directory.
        checkpoint: Described in `stored`.
        model: A model of the same layers, or a function that builds one, for a run of `runner.fit`
            whose model cannot be rebuilt in this process. A model that cannot be copied gets the
            weights itself.

    Returns:
        A model of tf_keras, or of Keras 3 if the run trained one, compiled with the loss, metrics
        and optimizer of the run.

    Raises:
        ConfigError: there is no such checkpoint, or the run trains several tasks.
        RunnerError: the checkpoint is damaged.
    """
    experiment, path = stored(directory, checkpoint)
    multitask.check_one(experiment.task, "load_model")
    lent = models.lent(model)
    with process_state.restored(), tempfile.TemporaryDirectory() as scratch, lent:
        run = experiment.run
        strategy.configure(experiment.runtime, seed=run.seed, deterministic=run.deterministic)
        section = sections.unlocked(experiment.task)  # a task's builders may write into it
        task: Any = task_contract.build_task(section, scratch, directory)
        if model is not None:
            task.given = task.given._replace(model=model, lasting=False)
        trained = task_contract.build_model(task)
        if not averages.stand_alone(path):
            averages.write(path, Path(scratch, path.name))
            path = Path(scratch, path.name)
        restore.restore(tf.train.Checkpoint(model=trained), path, partly=True)
        if hasattr(task, "compiled_model"):
            return task.compiled_model(trained)
        return _compiled(task, trained, optimizer.build(task, experiment))


def _compiled(task: base_task.Task, model: Any, made: tf_keras.optimizers.Optimizer) -> Any:
    """Compiles a task's model, so that `evaluate` and `fit` compute as the task does.

    They take batches as the task's `build_inputs` makes them.
    """
    if isinstance(model, tf_keras.Model):
        model.compile(optimizer=made, metrics=task.build_metrics(training=False))
        steps: Any = model
        steps.train_step = functools.partial(task.train_step, model=model, optimizer=made)
        steps.test_step = functools.partial(task.validation_step, model=model)
    return model


def stored(directory: Path, checkpoint: str | int = "") -> tuple[config.Experiment, Path]:
    """Returns the experiment of a run, and one of its checkpoints.

    Args:
        directory: The run's directory.
        checkpoint: As for `selection.select`. If empty, the best checkpoint, or the latest if the
            run keeps no best.

    Raises:
        ConfigError: there is no such checkpoint, or several are named.
    """
    written = directory / layout.GIN
    if not written.exists():
        raise ConfigError(f"{directory} has no {layout.GIN}, the configuration of the run")
    experiment = config.load([str(written)], trains=False, evaluates=False)
    best = list(policies.of(experiment).best_folders)
    has_best = best and (directory / best[0]).is_dir()
    which = str(checkpoint) or (layout.BEST if has_best else "latest")
    paths = selection.select(directory, which, best=best)
    if not paths:
        raise ConfigError(f"{directory} has no checkpoint")
    if len(paths) > 1:
        raise ConfigError(f"--checkpoint={which} names {len(paths)} checkpoints of {directory}")
    return experiment, paths[0]
