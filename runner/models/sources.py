"""Gets a model and data from memory, from a function that gin binds, or from a file."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from official.core import config_definitions as cfg

from runner import inputs
from runner.configuration import functions
from runner.configuration.functions import FunctionConfig
from runner.core import console, user_code
from runner.errors import ConfigError
from runner.models import copies, examples, tables

_UNASKED: Any = object()


class Given(NamedTuple):
    """The caller's objects in memory. For None, the configuration names the object.

    Attributes:
        model: A model of tf_keras or Keras 3, or a function that builds one.
        train: Data that have been read, or a function that reads them. It has the argument
            `takes` of `examples.read`.
        validation: In the same form.
        lasting: Whether the run keeps the model's layers in its directory.
    """

    model: Any = None
    train: examples.Examples | Callable[..., examples.Examples] | None = None
    validation: examples.Examples | Callable[..., examples.Examples] | None = None
    lasting: bool = True


class Sources:
    """The data of a task, read once, when first needed.

    Args:
        config: Has functions `train` and `validation`, and the fields `train_data` and so on.
        given: The objects in memory.
        model: Builds the model, whose inputs decide on the form of tables.
    """

    def __init__(
        self, config: cfg.TaskConfig, given: Given, model: Callable[[], Any] = lambda: None
    ) -> None:
        _check_folds(config)
        self._model, self._inputs = model, _UNASKED
        self._config = config
        self._given = given
        self._held: dict[str, examples.Examples] = {}

    def read(self, data: Any) -> examples.Examples:
        """Reads the data that a `SupervisedData` describes.

        Raises:
            ConfigError: there are none, none can be learned from, or they have no folds.
        """
        part = "train" if data.folds else data.reads()
        found = self.whole(part, data.input_path)
        return examples.of_fold(found, data, data.input_path or self.where(part))

    def whole(self, part: str, path: str = "") -> examples.Examples:
        """Training or validation data, all folds together.

        Args:
            part: `train` or `validation`.
            path: An .npz file to read instead, for example of a further evaluation set.

        Raises:
            ConfigError: there are none, or none can be learned from.
        """
        own = getattr(self._config, f"{part}_data").input_path
        key = path if path and path != own else part
        if key not in self._held:
            group = self._config.train_data.fold_group
            if key == part:
                found = self._read(part)
            else:
                found = examples.read(path, path, group, takes=self._takes)
            self._held[key] = found
        return self._held[key]

    def where(self, part: str) -> str:
        """The name of the data in messages: `my.py:12: my.train_data`."""
        if getattr(self._given, part) is not None:
            return f"{part} data"
        if path := getattr(self._config, f"{part}_data").input_path:
            return path
        return place(getattr(self._config, part))

    def has(self, part: str) -> bool:
        """Whether there are such data."""
        named = getattr(self._config, part).name or getattr(self._config, f"{part}_data").input_path
        return bool(named) or getattr(self._given, part) is not None

    def first(self) -> Any:
        """The features of one example, [1, ...]."""
        return examples.first(self.whole("train" if self.has("train") else "validation"))

    def _read(self, part: str) -> examples.Examples:
        if (held := getattr(self._given, part)) is not None:
            return held(takes=self._takes) if callable(held) else held
        if path := getattr(self._config, f"{part}_data").input_path:
            return examples.read(path, path, self._config.train_data.fold_group)
        if (named := getattr(self._config, part)).name:
            make = functools.partial(called, named, part)
            return examples.read(make, self.where(part), takes=self._takes)
        raise ConfigError(
            f"there are no {part} data (runner.fit does not store its data): bind "
            f"SupervisedConfig.{part} to a function of yours, set task.{part}_data.input_path to "
            f"an .npz, or pass data in Python: runner.run(None, model_dir, mode, {part}=(x, y))"
        )

    def _takes(self) -> Sequence[str] | None:
        """The names of the model's inputs: see `tables.Takes`."""
        if self._inputs is _UNASKED:
            self._inputs = None  # while the model is built, which may need data
            given = self._given.model
            model = given if copies.is_model(given) else self._model()
            self._inputs = tables.inputs_of(model)
        return self._inputs


def _check_folds(config: Any) -> None:
    """Checks the folds, which are of the training data, and reports data that are not read."""
    train, validation = config.train_data, config.validation_data
    if not train.folds:
        return
    if validation.input_path not in ("", train.input_path):
        own = train.input_path or place(config.train)
        raise ConfigError(inputs.one_source(own, validation.input_path))
    if config.validation.name:
        console.say(
            f"validating on {validation.side()} of the training data, "
            f"not on @{config.validation.name}"
        )


def called(named: FunctionConfig, field: str) -> Any:
    """Calls a function of the user's and returns its result.

    Raises:
        ConfigError: there is no such function, or it takes other arguments.
    """
    try:
        function = functions.load(named)
    except ConfigError as error:
        raise ConfigError(f"SupervisedConfig.{field} = @{named.name}: {error}") from error
    return function()


def place(named: FunctionConfig) -> str:
    """The file and line of a function, and its name."""
    return f"{user_code.place(functions.load(named).func)}: {named.name}"
