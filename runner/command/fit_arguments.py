"""The arguments that `runner.fit` passes to the run, and replacements for Keras's arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runner.core import spelling
from runner.errors import ConfigError

ACTIONS = ("train_actions", "eval_actions")
OPTIONS = (
    *("allow_config_change", "allow_lost_history", "dry_run", "overwrite", "profile_steps"),
    *ACTIONS,
)
"""Options of `runner.run`."""
_COMPILED = ("loss", "metrics", "optimizer")
_SHARED = (*_COMPILED, "batch_size", "gin_params")
_OF_STUDY = ("dry_run", *ACTIONS)

_DATASET = "read the data with a tf.data.Dataset, which loads in parallel"
_COMPILE = "pass it to model.compile"
_INSTEAD = {
    "x": "pass train=(x, y)",
    "y": "pass train=(x, y)",
    "sample_weight": "pass train=(x, y, sample_weight)",
    "class_weight": "pass a weight for each example: train=(x, y, sample_weight)",
    "validation_data": "pass validation=(x, y), (x, y, sample_weight) or a tf.data.Dataset",
    "validation_split": "split the arrays, or set 'SupervisedData.folds = 5' in gin_params, which "
    "holds out a fifth of the examples for validation",
    "validation_steps": "set 'TrainerConfig.validation_steps = ...' in gin_params",
    "validation_batch_size": "set 'validation/SupervisedData.global_batch_size = ...' in "
    "gin_params",
    "validation_freq": "set 'EpochsConfig.validation_interval = ...' in gin_params (with "
    "train_steps, 'TrainerConfig.validation_interval = ...')",
    "steps_per_epoch": "pass train_steps, the length of the whole run, instead of epochs",
    "initial_epoch": "omit it: repeating the call resumes the run",
    "shuffle": "omit it: arrays are shuffled every epoch; a tf.data.Dataset keeps its order",
    "verbose": "omit it: progress is written to stderr",
    "workers": _DATASET,
    "use_multiprocessing": _DATASET,
    "max_queue_size": _DATASET,
    "loss_weights": _COMPILE,
    "weighted_metrics": _COMPILE,
    "run_eagerly": "set 'RuntimeConfig.run_eagerly = True' in gin_params",
    "jit_compile": "set 'RuntimeConfig.enable_xla = True' in gin_params",
    "steps_per_execution": "set 'TrainerConfig.steps_per_loop = ...' in gin_params",
    "learning_rate": "pass it to the optimizer",
    "seed": "set 'RunConfig.seed = ...' in gin_params",
}
_CALLBACKS = {
    "ModelCheckpoint": "the runner always saves checkpoints",
    "BackupAndRestore": "repeating the call resumes the run",
    "EarlyStopping": "set 'EarlyStoppingConfig.lower = (\"validation_loss\",)' and "
    "'EarlyStoppingConfig.patience = ...' in gin_params",
    "ReduceLROnPlateau": "set 'PlateauConfig.lower = (\"validation_loss\",)' and "
    "'PlateauConfig.tolerance = ...' in gin_params",
    "LearningRateScheduler": "pass a schedule as the optimizer's learning_rate",
    "TensorBoard": "the runner writes events by default",
    "CSVLogger": "set 'RunConfig.loggers = (\"csv\",)' in gin_params",
    "TerminateOnNaN": "the runner always checks that the loss is finite",
    "ProgbarLogger": "progress is always written to stderr",
    "History": "train.jsonl and history.jsonl in model_dir have all rows",
}
_OWN_CALLBACK = "pass a function in train_actions or eval_actions"


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


class Shared(NamedTuple):
    """The arguments that `runner.study` passes to all trials.

    Attributes:
        batch_size: As for `runner.fit`.
        compiled: `loss`, `metrics` and `optimizer`.
        gin_params: As for `runner.fit`.
        options: Actions and `dry_run`.
    """

    batch_size: int | None
    compiled: dict[str, Any]
    gin_params: Sequence[str]
    options: dict[str, Any]


def of_study(names: Mapping[str, Any], function: Callable[..., Any]) -> Shared:
    """Returns the arguments that `runner.study` passes to all trials.

    Args:
        names: The further arguments of `runner.study`, by name.
        function: `runner.study`.

    Raises:
        ConfigError: as for `check`.
    """
    others = {name: value for name, value in names.items() if name not in _SHARED}
    own = [name for name in inspect.signature(function).parameters if name != "options"]
    for name in others:
        if name not in _OF_STUDY:
            guess = spelling.did_you_mean(name, [*own, *_SHARED, *_OF_STUDY])
            raise ConfigError(f"runner.study has no argument {name}{guess}")
    compiled = {name: names.get(name) for name in _COMPILED}
    return Shared(names.get("batch_size"), compiled, names.get("gin_params", ()), others)


def _of_callbacks(value: Any) -> str:
    """Describes the replacement of each callback."""
    callbacks = value if isinstance(value, Sequence) else [value]
    classes = dict.fromkeys(type(each).__name__ for each in callbacks if each is not None)
    if not classes:
        return _OWN_CALLBACK
    instead = (f"{name}: {_CALLBACKS.get(name, _OWN_CALLBACK)}" for name in classes)
    return "; ".join(["omit it", *instead])
