"""The arguments that `runner.fit` passes to the run, and replacements for Keras's arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.core import spelling
from runner.errors import ConfigError

ACTIONS = ("train_actions", "eval_actions")
OPTIONS = (
    *("allow_config_change", "allow_lost_history", "dry_run", "overwrite", "profile_steps"),
    *ACTIONS,
)
"""Options of `runner.run`."""

_DATASET = "read the data with a tf.data.Dataset, which loads in parallel"
_COMPILE = "give it to model.compile"
_INSTEAD = {
    "x": "give train=(x, y)",
    "y": "give train=(x, y)",
    "sample_weight": "give train=(x, y, sample_weight)",
    "class_weight": "give each example's weight: train=(x, y, sample_weight)",
    "validation_data": "give validation=(x, y), as (x, y, sample_weight) or as a tf.data.Dataset",
    "validation_split": "split the arrays, or set 'SupervisedData.folds = 5' in gin_params, which "
    "keeps a fifth of them for validation",
    "validation_steps": "set 'TrainerConfig.validation_steps = ...' in gin_params",
    "validation_batch_size": "set 'validation/SupervisedData.global_batch_size = ...' in "
    "gin_params",
    "validation_freq": "set 'EpochsConfig.validation_interval = ...' in gin_params (with "
    "train_steps, 'TrainerConfig.validation_interval = ...')",
    "steps_per_epoch": "give train_steps, the length of the whole run, instead of epochs",
    "initial_epoch": "leave it out: the same call resumes the run",
    "shuffle": "leave it out: arrays are shuffled every epoch; a tf.data.Dataset keeps its order",
    "verbose": "leave it out: progress is written to stderr",
    "workers": _DATASET,
    "use_multiprocessing": _DATASET,
    "max_queue_size": _DATASET,
    "loss_weights": _COMPILE,
    "weighted_metrics": _COMPILE,
    "run_eagerly": "set 'RuntimeConfig.run_eagerly = True' in gin_params",
    "jit_compile": "set 'RuntimeConfig.enable_xla = True' in gin_params",
    "steps_per_execution": "set 'TrainerConfig.steps_per_loop = ...' in gin_params",
    "learning_rate": "give it to the optimizer",
    "seed": "set 'RunConfig.seed = ...' in gin_params",
}
_CALLBACKS = {
    "ModelCheckpoint": "checkpoints are saved without it",
    "BackupAndRestore": "the same call resumes the run",
    "EarlyStopping": "'EarlyStoppingConfig.lower = (\"validation_loss\",)' and "
    "'EarlyStoppingConfig.patience = ...' in gin_params",
    "ReduceLROnPlateau": "'PlateauConfig.lower = (\"validation_loss\",)' and "
    "'PlateauConfig.tolerance = ...' in gin_params",
    "LearningRateScheduler": "a schedule as the optimizer's learning_rate",
    "TensorBoard": "events are written without it",
    "CSVLogger": "'RunConfig.loggers = (\"csv\",)' in gin_params",
    "TerminateOnNaN": "a run ends without it at a loss that is not finite",
    "ProgbarLogger": "progress is written to stderr without it",
    "History": "train.jsonl and history.jsonl in model_dir hold all rows",
}
_OWN_CALLBACK = "a function in train_actions or eval_actions"


def check(names: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Checks the further arguments of `runner.fit`.

    Args:
        names: The arguments by name.
        function: `runner.fit`, whose signature lists its other arguments.

    Raises:
        ConfigError: if an argument is unknown, or one of Keras's. The message names the
            replacement.
    """
    own = [name for name in inspect.signature(function).parameters if name != "options"]
    for name, value in names.items():
        if name in OPTIONS:
            continue
        if name == "callbacks":
            raise ConfigError(f"runner.fit has no argument callbacks: {_of_callbacks(value)}")
        if name in _INSTEAD:
            raise ConfigError(f"runner.fit has no argument {name}: {_INSTEAD[name]}")
        guess = spelling.did_you_mean(name, [*own, *OPTIONS, *_INSTEAD, "callbacks"])
        raise ConfigError(f"runner.fit has no argument {name}{guess}")


def _of_callbacks(value: Any) -> str:
    """Describes the replacement of each callback."""
    callbacks = value if isinstance(value, Sequence) else [value]
    classes = dict.fromkeys(type(each).__name__ for each in callbacks if each is not None)
    if not classes:
        return f"use {_OWN_CALLBACK}"
    instead = (f"{name}: {_CALLBACKS.get(name, _OWN_CALLBACK)}" for name in classes)
    return "; ".join(["leave it out", *instead])
