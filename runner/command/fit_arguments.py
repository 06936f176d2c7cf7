"""The arguments of `runner.fit`: those of Keras's `fit`, and options of the run. No TensorFlow."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
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

_DATASET = "omit it: one thread reads batches ahead; a tf.data.Dataset loads in parallel"
_COMPILE = "pass it to model.compile"
_INSTEAD = {
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


class OfKeras(NamedTuple):
    """Arguments of Keras's `fit` that `runner.fit` takes by name. See there."""

    x: Any = None
    y: Any = None
    sample_weight: Any = None
    class_weight: Any = None
    validation_data: Any = None
    validation_split: float = 0.0
    validation_steps: int | None = None
    validation_batch_size: int | None = None
    validation_freq: Any = 1
    steps_per_epoch: int | None = None
    initial_epoch: int = 0
    shuffle: Any = True
    verbose: Any = "auto"
    callbacks: Any = ()

    def check(self) -> None:
        """Checks the values that need no data.

        Raises:
            ConfigError: if one has no equivalent in a run. The message names the replacement.
        """
        if self.initial_epoch:
            raise ConfigError(
                f"runner.fit: initial_epoch={self.initial_epoch!r}: omit it, because repeating the "
                "call resumes the run, and epochs is its whole length"
            )
        if not isinstance(self.shuffle, bool):
            raise ConfigError(
                f"runner.fit: shuffle={self.shuffle!r}: expected True, which shuffles arrays every "
                "epoch, or False, which keeps their order"
            )
        if self.verbose not in ("auto", 0, 1, 2):
            raise ConfigError(
                f"runner.fit: verbose={self.verbose!r}: expected 0 (no progress), 1, 2 or 'auto'"
            )
        if not _is_count(self.validation_freq):
            raise ConfigError(
                f"runner.fit: validation_freq={self.validation_freq!r}: expected a number of "
                "epochs. To evaluate at chosen epochs only, set a common interval"
            )
        for name in ("steps_per_epoch", "validation_steps", "validation_batch_size"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise ConfigError(f"runner.fit: {name}={value!r}: expected a number above 0")
        if not 0 <= self.validation_split < 1:
            raise ConfigError(
                f"runner.fit: validation_split={self.validation_split!r}: expected the fraction of "
                "the examples that validate, such as 0.2"
            )

    def settings(self) -> Iterator[str]:
        """Yields the bindings that these arguments imply, except for lengths."""
        if self.validation_steps:
            yield f"TrainerConfig.validation_steps = {self.validation_steps}"
        if self.validation_batch_size:
            yield f"validation/SupervisedData.global_batch_size = {self.validation_batch_size}"
        if not self.shuffle:
            yield "train/SupervisedData.shuffle = 'none'"


class Lengths(NamedTuple):
    """The length of a run, as given to `runner.fit`. Without any, it is one epoch, as in Keras."""

    train_steps: int | None = None
    epochs: float | None = None
    batch_size: int | None = None
    steps_per_epoch: int | None = None
    validation_freq: int = 1

    @classmethod
    def of(
        cls, train_steps: int | None, epochs: float | None, batch_size: int | None, keras: OfKeras
    ) -> "Lengths":
        """Returns the length that the arguments give.

        Raises:
            ConfigError: if they contradict each other.
        """
        if train_steps is not None and epochs is not None:
            raise ConfigError("runner.fit: pass either train_steps or epochs")
        if train_steps is not None and keras.steps_per_epoch:
            raise ConfigError(
                "runner.fit: steps_per_epoch goes with epochs: omit it, or train_steps"
            )
        if train_steps is None and epochs is None:
            epochs = 1
        freq = keras.validation_freq
        return cls(train_steps, epochs, batch_size, keras.steps_per_epoch, freq)


class Data(NamedTuple):
    """The data of a run, each as for `train` of `runner.fit`, or None."""

    train: Any
    validation: Any


def data(train: Any, validation: Any, keras: OfKeras) -> Data:
    """Brings the data arguments into one form.

    `runner.fit(model, x, y)` passes x and y as `train` and `validation`.

    Raises:
        ConfigError: if data are given twice, or in parts.
    """
    x, y, weight = keras.x, keras.y, keras.sample_weight
    if train is not None and x is not None:
        raise ConfigError("runner.fit: the training data are given twice, by position and as x")
    if _is_y(train if x is None else x, validation):
        if y is not None:
            raise ConfigError("runner.fit: y is given twice, by position and by name")
        y, validation = validation, None
    if validation is not None and keras.validation_data is not None:
        raise ConfigError("runner.fit: pass either validation or validation_data")
    x = train if x is None else x
    if validation is None:
        validation = keras.validation_data
    if y is None:
        return Data(_weighted(x, weight), validation)
    if x is None:
        raise ConfigError("runner.fit: y is given without x")
    if _is_whole(x):
        raise ConfigError(
            f"runner.fit: y is given, but x is a {type(x).__name__}, which has its own labels"
        )
    return Data((x, y) if weight is None else (x, y, weight), validation)


def _weighted(train: Any, weight: Any) -> Any:
    """Adds sample weights to training data that lack them."""
    if weight is None:
        return train
    if not isinstance(train, tuple | list) or len(train) != 2:
        raise ConfigError(
            "runner.fit: sample_weight needs x and y. The elements of a tf.data.Dataset are "
            "weighted as (x, y, sample_weight), and an .npz may have the array sample_weight"
        )
    return (*train, weight)


def _is_y(train: Any, value: Any) -> bool:
    """Whether the argument after the training data is their labels rather than other data."""
    if isinstance(value, tuple):  # of outputs if x is alone
        return _is_array(train)
    if isinstance(value, list):  # of outputs, or plain numbers
        return _is_array(train) or isinstance(train, list)
    return _is_array(value)


def _is_array(value: Any) -> bool:
    """Whether a value is an array, a tensor or a table, or a dict of them."""
    return hasattr(value, "shape") or isinstance(value, Mapping)


def _is_whole(value: Any) -> bool:
    """Whether data have their labels: a tf.data.Dataset, or the path of a file."""
    return isinstance(value, str | Path) or hasattr(value, "element_spec")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


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
    for name in names:
        if name in OPTIONS:
            continue
        if name in _INSTEAD:
            raise ConfigError(f"runner.fit has no argument {name}: {_INSTEAD[name]}")
        guess = spelling.did_you_mean(name, [*own, *OPTIONS, *_INSTEAD])
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
