"""Loads the model of a run with a checkpoint's weights, as its evaluations use them."""

import tempfile
from pathlib import Path

import tensorflow as tf
import tf_keras

from runner import config
from runner.checkpoints import averages, restore, selection
from runner.configuration import multitask, sections, task_contract
from runner.core import layout
from runner.devices import process_state, strategy
from runner.errors import ConfigError
from runner.history import policies


def load(directory: Path, checkpoint: str = "") -> tf_keras.Model:
    """Builds the model of the run in a directory and restores its weights.

    The process keeps its settings, such as the precision policy.

    Args:
        directory: The run's directory.
        checkpoint: Described in `stored`.

    Raises:
        ConfigError: there is no such checkpoint, or the run trains several tasks.
        RunnerError: the checkpoint is damaged.
    """
    experiment, path = stored(directory, checkpoint)
    multitask.check_one(experiment.task, "load_model")
    with process_state.restored(), tempfile.TemporaryDirectory() as scratch:
        run = experiment.run
        strategy.configure(experiment.runtime, seed=run.seed, deterministic=run.deterministic)
        section = sections.unlocked(experiment.task)  # a task's builders may write into it
        task = task_contract.build_task(section, scratch, directory)
        model = task_contract.build_model(task)
        if not averages.stand_alone(path):
            averages.write(path, Path(scratch, path.name))
            path = Path(scratch, path.name)
        restore.restore(tf.train.Checkpoint(model=model), path, partly=True)
    return model


def stored(directory: Path, checkpoint: str = "") -> tuple[config.Experiment, Path]:
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
    which = checkpoint or (layout.BEST if has_best else "latest")
    paths = selection.select(directory, which, best=best)
    if not paths:
        raise ConfigError(f"{directory} has no checkpoint")
    if len(paths) > 1:
        raise ConfigError(f"--checkpoint={which} names {len(paths)} checkpoints of {directory}")
    return experiment, paths[0]
