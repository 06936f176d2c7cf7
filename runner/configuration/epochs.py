"""Converts lengths and intervals in epochs to steps.

An epoch has as many steps as the training data have batches. This need not be a whole number: the
n-th epoch ends at round(n * steps). A schedule's boundaries may also be fractions of the training
length.
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

from runner.configuration import fields, origins
from runner.configuration.origins import Field
from runner.core import schedule, spelling
from runner.errors import ConfigError

DECAYS = ("decay_steps", "total_decay_steps")
"""Model Garden's names for the length of a schedule."""

UP = "up"
"""A value of `EpochsConfig.rounding`."""

_SHARES = "boundary_shares"  # in fractions of the training length, not in epochs
_ALIASES = dict([DECAYS])  # Model Garden's other names of a field


class _Epoch(NamedTuple):
    """The size of an epoch and of its batches."""

    examples: int
    batch: int
    rounding: str

    def __str__(self) -> str:
        steps = f"{self.examples / self.batch:,.1f}".removesuffix(".0")
        return (
            f"epochs: {self.examples:,} examples in batches of {self.batch:,}, {steps} steps each"
        )

    def steps(self, epochs: float | Sequence[float]) -> int | list[int]:
        """Returns the step that completes `epochs` epochs, or the list of steps for a sequence."""
        if not isinstance(epochs, (int, float)):
            return [self._end(number) for number in epochs]
        return self._end(epochs)

    def interval(self, epochs: float) -> schedule.Interval:
        """Returns the interval in steps of an event that happens every `epochs` epochs."""
        if self.rounding == UP:
            return self._end(epochs)
        return _meant(epochs) * self.examples / self.batch

    def _end(self, epochs: float) -> int:
        length = _meant(epochs) * self.examples / self.batch
        if self.rounding == UP:
            return max(math.ceil(length), int(epochs > 0))
        return max(schedule.multiple(1, length) if length else 0, int(epochs > 0))


def resolve(experiment: cfg.ExperimentConfig, *, counts: bool = True) -> list[str]:
    """Sets the step-based fields that `run.epochs` and the evaluation sets give in other units.

    It is idempotent and changes only fields given in such units.

    Args:
        experiment: All values.
        counts: Whether examples may be counted. If not, fields in epochs are checked but not set.

    Returns:
        Lines to show: the length of an epoch, if epochs are used, and each field that was set.

    Raises:
        ConfigError: if an epoch's length is unknown, a length is negative, a fraction is out of
            range, the chosen schedule has no such field, or the steps are also set. The message has
            one line for each problem, and no field is set.
    """
    named = list(given(experiment))
    in_epochs = [field for field in named if field.name != _SHARES]
    problems: list[str] = []
    plan: list[tuple[Field, Field, int | list[int]]] = []
    epoch = None
    try:
        epoch = _epoch(experiment, in_epochs[0]) if in_epochs and counts else None
    except ConfigError as error:
        problems.append(str(error))
    for field in named:
        try:
            steps = _stands_for(field, experiment)
            if epoch or not in_epochs:
                number = _number(field, experiment, epoch)
                _agree(field, steps, number)
                plan.append((field, steps, number))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    for field, steps, number in plan:
        if _listed(steps.value) != number:
            setattr(steps.section, steps.name, number)
        origins.of(experiment)[steps.origin] = field.shown()
    shown = [_shown(field, steps) for field, steps, _ in plan]
    return [str(epoch), *shown] if epoch else shown


def given(experiment: cfg.ExperimentConfig) -> Iterator[Field]:
    """Yields the fields that are set in epochs or in fractions of the training length."""
    paths = [f"run.epochs.{name}" for name in _replacing(experiment)]
    sets = range(len(experiment.run.evaluation_sets))
    paths += [f"run.evaluation_sets[{index}].interval_epochs" for index in sets]
    for path in paths:
        if (field := origins.field(experiment, path)).value:
            yield field


def steps_given(experiment: cfg.ExperimentConfig) -> set[str]:
    """Returns the paths of the step-based fields that are set in epochs or fractions."""
    paths = set()
    for field in given(experiment):
        with contextlib.suppress(ConfigError):
            paths.add(_stands_for(field, experiment).origin)
    return paths


def interval(experiment: cfg.ExperimentConfig, path: str) -> schedule.Interval:
    """Returns the interval at a path like `trainer.validation_interval`.

    It is a fraction if the interval is given in epochs.
    """
    value: int = origins.field(experiment, path).value
    for field in given(experiment):
        with contextlib.suppress(ConfigError):
            if isinstance(field.value, (int, float)) and (
                _stands_for(field, experiment).origin == path
            ):
                epoch = _epoch(experiment, field)
                return epoch.interval(field.value) if epoch.steps(field.value) == value else value
    return value


def length(experiment: cfg.ExperimentConfig) -> schedule.Interval:
    """Returns the steps per epoch, or 0 if the run's length is not given in epochs."""
    train = origins.field(experiment, "run.epochs.train")
    if not train.value:
        return 0
    epoch = _epoch(experiment, train)
    return Fraction(epoch.examples, epoch.batch)


def _replacing(experiment: cfg.ExperimentConfig) -> dict[str, str]:
    """Returns the path of the step-based field that each field of `run.epochs` replaces."""
    kind = type(experiment.run.epochs)
    all_fields = {each.name: fields.of(kind, each.name) for each in dataclasses.fields(kind)}
    return {name: of.stands_for for name, of in all_fields.items() if of.stands_for}


def _epoch(experiment: cfg.ExperimentConfig, first: Field) -> _Epoch:
    """Returns the size of an epoch. `first` is the first field that needs it."""
    data = getattr(experiment.task, "train_data", None)
    examples, batch = experiment.run.epochs.examples, getattr(data, "global_batch_size", 0)
    size = getattr(data, "size", None)  # for a `runner.inputs.DataConfig`
    if size and not examples:
        examples = size() or 0
    if limit := experiment.run.limit_train * batch:
        examples = min(examples or limit, limit)
    if examples < 1:
        has = "num_examples or " if size else ""
        needs = (
            f"needs the number of training examples: {has and f'its {has}'}EpochsConfig.examples"
        )
        raise ConfigError(first.line(needs))
    if batch < 1:
        raise ConfigError(first.line(f"needs task.train_data.global_batch_size, which is {batch}"))
    return _Epoch(examples, batch, experiment.run.epochs.rounding)


def _stands_for(field: Field, experiment: cfg.ExperimentConfig) -> Field:
    """Returns the step-based field that a field replaces."""
    values = [field.value] if isinstance(field.value, (int, float)) else field.value
    if field.name == _SHARES:
        if not all(low < high for low, high in pairwise([0, *values, 1])):
            raise ConfigError(field.line("must ascend between 0 and 1"))
        if field.section.boundaries:
            raise ConfigError(field.line("replaces EpochsConfig.boundaries: set only one"))
    elif not all(math.isfinite(value) and value >= 0 for value in values):
        raise ConfigError(field.line("must be 0 or more"))
    if field.name == "interval_epochs":
        return origins.field(experiment, f"{field.path}.interval")
    steps = origins.field(experiment, _replacing(experiment)[field.name])
    if not isinstance(steps.section, oneof.OneOfConfig):
        return steps
    chosen, choices = steps.section.type, _choices(steps.section, steps.name)
    if chosen not in choices:
        needs = f"needs {type(steps.section).__name__}.type to be one of {', '.join(choices)}"
        meant = spelling.did_you_mean(chosen or "", choices)
        raise ConfigError(field.line(f"{needs}; it is {chosen!r}{meant}"))
    return origins.field(experiment, f"{steps.path}.{chosen}.{choices[chosen]}")


def _choices(section: oneof.OneOfConfig, name: str) -> dict[str, str]:
    """Returns the choices that have a field, with its name there."""
    return {
        choice: alias
        for choice, options in vars(section).items()
        for alias in (name, _ALIASES.get(name, name))
        if isinstance(options, base_config.Config) and hasattr(options, alias)
    }


def _number(
    field: Field, experiment: cfg.ExperimentConfig, epoch: _Epoch | None
) -> int | list[int]:
    """Returns the steps for a field. `epoch` is set if any field is in epochs."""
    length, shares = experiment.run.epochs.train, field.name == _SHARES
    if epoch is None or (shares and not length):
        return [math.ceil(_meant(share) * experiment.trainer.train_steps) for share in field.value]
    return epoch.steps([share * length for share in field.value] if shares else field.value)


def _agree(field: Field, steps: Field, number: int | list[int]) -> None:
    """Checks that the step-based field is not also set to another value.

    Raises:
        ConfigError: if it is.
    """
    defaults = {each.name: each.default for each in dataclasses.fields(steps.section)}
    own = steps.place or steps.value != defaults[steps.name]
    if steps.value and own and _listed(steps.value) != number:
        none = "[]" if isinstance(number, list) else "0"
        raise ConfigError(
            steps.line(f"{field.shown()} makes it {number}: set one, and the other to {none}")
        )


def _shown(field: Field, steps: Field) -> str:
    """Returns a line such as `TrainerConfig.train_steps = 225 (10 epochs)`."""
    unit = "epoch" if field.value == 1 else "epochs"
    if field.name == _SHARES:
        unit = "of the training"
    of = f" of {field.section.name!r}" if field.name == "interval_epochs" else ""
    return f"{steps}{of} = {steps.value} ({origins.plain(field.value).strip('(,)')} {unit})"


def _meant(number: float) -> Fraction:
    """Returns the intended fraction, since the float 0.1 exceeds 1/10 and would round up."""
    return Fraction(number).limit_denominator(10**9)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
