"""Lengths and intervals that are given in epochs, turned into steps.

An epoch is as many steps as the training data have batches, which need not be a whole number; a
length in epochs is the step that ends it. The boundaries of a schedule may be shares of the
training's length, too.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof

from runner.core import spelling
from runner.errors import ConfigError

# For each field of EpochsConfig, the section and the field of steps that it stands for.
_STEPS = {
    "train": ("trainer", "train_steps"),
    "validation_interval": ("trainer", "validation_interval"),
    "checkpoint_interval": ("trainer", "checkpoint_interval"),
    "summary_interval": ("trainer", "summary_interval"),
    "warmup": ("trainer.optimizer_config.warmup", "warmup_steps"),
    "decay": ("trainer.optimizer_config.learning_rate", "decay_steps"),
    "boundaries": ("trainer.optimizer_config.learning_rate", "boundaries"),
    "boundary_shares": ("trainer.optimizer_config.learning_rate", "boundaries"),
    "stopping_from": ("run.early_stopping", "from_step"),
    "best_from": ("run.retention", "from_step"),
}
DECAYS = ("decay_steps", "total_decay_steps")
"""Official's names for the length of a schedule."""

# Official's other names of a field.
_ALIASES = dict([DECAYS])


class Field(NamedTuple):
    """A field, and the section that has it."""

    path: str
    section: base_config.Config
    name: str

    def __str__(self) -> str:
        return f"{type(self.section).__name__}.{self.name}"

    @property
    def origin(self) -> str:
        """Its path in the experiment."""
        return f"{self.path}.{self.name}"

    @property
    def is_share(self) -> bool:
        """Whether it is given in shares of the training's length, not in epochs."""
        return self.name == "boundary_shares"

    @property
    def value(self) -> Any:
        """What it holds."""
        return getattr(self.section, self.name)

    def line(self, origins: dict[str, str], what: str) -> str:
        """`digits.gin:7: EpochsConfig.train = 10; what`."""
        place = origins.get(self.origin)
        return f"{f'{place}: ' if place else ''}{self} = {_plain(self.value)}; {what}"

    def shown(self, origins: dict[str, str]) -> str:
        """`EpochsConfig.train = 10 (digits.gin:7)`."""
        place = origins.get(self.origin)
        return f"{self} = {_plain(self.value)}{f' ({place})' if place else ''}"


class _Epoch(NamedTuple):
    """The training data of an epoch."""

    examples: int
    batch: int

    def __str__(self) -> str:
        steps = f"{self.examples / self.batch:,.1f}".removesuffix(".0")
        return (
            f"epochs: {self.examples:,} examples in batches of {self.batch:,}, {steps} steps each"
        )

    def steps(self, epochs: float | Sequence[float]) -> int | list[int]:
        """The step that ends so many epochs, or a step for each of several."""
        if not isinstance(epochs, (int, float)):
            return [self._end(each) for each in epochs]
        return self._end(epochs)

    def _end(self, epochs: float) -> int:
        return max(math.ceil(_meant(epochs) * self.examples / self.batch), int(epochs > 0))


def resolve(experiment: cfg.ExperimentConfig) -> list[str]:
    """Sets the fields of steps for which `run.epochs` and the evaluation sets give something else.

    Doing it again changes nothing. Where nothing is given, nothing changes at all.

    Returns:
        What to show: the length of an epoch, if anything is in epochs, and each field that was set.

    Raises:
        ConfigError: an epoch's length is not known; a length is negative, or no share; there is no
            field that it could stand for; or that is given, too. A line each, and nothing is set.
    """
    origins = vars(experiment).get("_origins", {})
    fields = list(given(experiment))
    if not fields:
        return []
    problems: list[str] = []
    plan: list[tuple[Field, Field, int | list[int]]] = []
    in_epochs = [field for field in fields if not field.is_share]
    epoch = None
    try:
        epoch = _epoch(experiment, in_epochs[0], origins) if in_epochs else None
    except ConfigError as error:
        problems.append(str(error))
    for field in fields:
        try:
            steps = _stands_for(field, experiment, origins)
            if epoch or not in_epochs:
                number = _number(field, experiment, epoch)
                _agree(field, steps, number, origins)
                plan.append((field, steps, number))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    for field, steps, number in plan:
        if _listed(steps.value) != number:
            setattr(steps.section, steps.name, number)
        origins[steps.origin] = field.shown(origins)
    shown = [_shown(field, steps) for field, steps, _ in plan]
    return [str(epoch), *shown] if epoch else shown


def given(experiment: cfg.ExperimentConfig) -> Iterator[Field]:
    """The fields in epochs, or in shares of the training, that hold something."""
    run = experiment.run
    fields = [Field("run.epochs", run.epochs, name) for name in _STEPS]
    for index, one in enumerate(run.evaluation_sets):
        fields.append(Field(f"run.evaluation_sets[{index}]", one, "interval_epochs"))
    yield from (field for field in fields if field.value)


def steps_given(experiment: cfg.ExperimentConfig) -> set[str]:
    """The paths of the fields of steps that something else that is given stands for."""
    found = set()
    for field in given(experiment):
        with contextlib.suppress(ConfigError):
            found.add(_stands_for(field, experiment, {}).origin)
    return found


def _epoch(experiment: cfg.ExperimentConfig, first: Field, origins: dict[str, str]) -> _Epoch:
    """What an epoch is; `first` is the field that asks for it."""
    data = getattr(experiment.task, "train_data", None)
    examples = experiment.run.epochs.examples
    size = getattr(data, "size", None)  # of a `runner.inputs.DataConfig`
    if size and not examples:
        examples = size() or 0
    if examples < 1:
        has = "num_examples or " if size else ""
        needs = (
            f"needs the number of training examples: {has and f'its {has}'}EpochsConfig.examples"
        )
        raise ConfigError(first.line(origins, needs))
    batch = getattr(data, "global_batch_size", 0)
    if batch < 1:
        needs = f"needs task.train_data.global_batch_size, which is {batch}"
        raise ConfigError(first.line(origins, needs))
    return _Epoch(examples, batch)


def _stands_for(field: Field, experiment: cfg.ExperimentConfig, origins: dict[str, str]) -> Field:
    """The field of steps for which a field stands."""
    values = [field.value] if isinstance(field.value, (int, float)) else field.value
    if field.is_share:
        if not all(low < high for low, high in pairwise([0, *values, 1])):
            raise ConfigError(field.line(origins, "must ascend between 0 and 1"))
        if field.section.boundaries:
            raise ConfigError(field.line(origins, "stands for EpochsConfig.boundaries: give one"))
    elif not all(math.isfinite(each) and each >= 0 for each in values):
        raise ConfigError(field.line(origins, "must be 0 or more"))
    if field.name == "interval_epochs":
        return field._replace(name="interval")
    path, name = _STEPS[field.name]
    section: Any = experiment
    for part in path.split("."):
        section = getattr(section, part)
    if not isinstance(section, oneof.OneOfConfig):
        return Field(path, section, name)
    choices = _choices(section, name)
    if section.type not in choices:
        needs = f"needs {type(section).__name__}.type to be one of {', '.join(choices)}"
        meant = spelling.did_you_mean(section.type or "", choices)
        raise ConfigError(field.line(origins, f"{needs}; it is {section.type!r}{meant}"))
    return choices[section.type]._replace(path=f"{path}.{section.type}")


def _choices(section: oneof.OneOfConfig, name: str) -> dict[str, Field]:
    """Those of the sections to choose from that have a field, by the name of the choice."""
    names = (name, _ALIASES.get(name, name))
    return {
        choice: Field("", options, each)
        for choice, options in vars(section).items()
        for each in names
        if isinstance(options, base_config.Config) and hasattr(options, each)
    }


def _number(
    field: Field, experiment: cfg.ExperimentConfig, epoch: _Epoch | None
) -> int | list[int]:
    """The steps for a field; `epoch` is there if anything is given in epochs."""
    length = experiment.run.epochs.train
    if epoch is None or (field.is_share and not length):
        return [math.ceil(_meant(share) * experiment.trainer.train_steps) for share in field.value]
    return epoch.steps([share * length for share in field.value] if field.is_share else field.value)


def _agree(field: Field, steps: Field, number: int | list[int], origins: dict[str, str]) -> None:
    """Raises ConfigError where the field of steps was given, too, and says something else."""
    defaults = {each.name: each.default for each in dataclasses.fields(steps.section)}
    own = steps.origin in origins or steps.value != defaults[steps.name]
    if steps.value and own and _listed(steps.value) != number:
        other = field.shown(origins)
        none = "[]" if isinstance(number, list) else "0"
        raise ConfigError(
            steps.line(origins, f"{other} makes it {number}: give one, and {none} for the other")
        )


def _shown(field: Field, steps: Field) -> str:
    """`TrainerConfig.train_steps = 225 (10 epochs)`."""
    unit = "epoch" if field.value == 1 else "of the training" if field.is_share else "epochs"
    of = f" of {field.section.name!r}" if field.name == "interval_epochs" else ""
    return f"{steps}{of} = {steps.value} ({_plain(field.value).strip('(,)')} {unit})"


def _meant(number: float) -> Fraction:
    """The fraction that is meant: 0.1 as a float is a little more, and would round up."""
    return Fraction(number).limit_denominator(10**9)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> str:
    """Numbers as a person writes them: 10 for 10.0."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_plain(each) for each in value)}{',' * (len(value) == 1)})"
    return str(value).removesuffix(".0")
