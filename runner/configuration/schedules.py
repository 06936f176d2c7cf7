"""Fits the learning rate schedule to the run's length, and finds mismatches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config
from official.modeling.optimization.configs import learning_rate_config

from runner.configuration import origins
from runner.configuration.epochs import DECAYS
from runner.configuration.origins import Field

FOLLOWS = "follows TrainerConfig.train_steps"
"""The location of a value that was not set and that the run's length determines."""

_OPTIMIZATION = "trainer.optimizer_config"
_SAMPLES = 100  # steps at which a schedule is evaluated
_MUCH = 0.1  # the fraction of steps with learning rate 0 that is reported


def follow(experiment: cfg.ExperimentConfig) -> None:
    """Makes the chosen schedule end with the run if its own length is empty or 0.

    A repeated call has no effect unless the run's length has changed.
    """
    field, end = _length(experiment), experiment.trainer.train_steps
    if field is None or not end or end < 1:
        return
    if field.value and field.place != FOLLOWS:
        return
    # Bypasses the lock, which nested configs of a copied locked experiment keep.
    vars(field.section)[field.name] = max(end - _offset(field.section), 1)
    origins.of(experiment)[field.origin] = FOLLOWS


def complaints(
    experiment: cfg.ExperimentConfig, rates: Callable[[Sequence[int]], Sequence[float]]
) -> Iterator[str]:
    """Yields a line for the schedule and for the warm-up if it does not match the run's length.

    Args:
        experiment: All values.
        rates: Returns the learning rates at given steps.
    """
    end = experiment.trainer.train_steps
    chosen = experiment.trainer.optimizer_config.learning_rate
    warmup = _field(experiment, "warmup", "warmup_steps")
    if warmup and warmup.value > end:
        yield warmup.line(f"the warm-up is longer than the run's {end:,} steps")
    if chosen.type == "constant":
        return
    field = _end_field(experiment)
    share = _share_of_zero(rates, end, warmup.value if warmup else 0)
    if share > _MUCH:
        what = field or origins.field(experiment, f"{_OPTIMIZATION}.learning_rate.type")
        said = f"the learning rate is 0 for {share:.0%} of the run's {end:,} steps"
        yield what.line(f"{said}{_advice(field)}")
    elif field and (misfit := _misfit(field, end)):
        yield field.line(f"{misfit}{_advice(field)}")


def _share_of_zero(
    rates: Callable[[Sequence[int]], Sequence[float]], end: int, warmup: int
) -> float:
    """Returns the fraction of the run's steps with learning rate 0, except during the warm-up."""
    steps = sorted({number * end // _SAMPLES for number in range(_SAMPLES)})
    pairs = zip(steps, rates(steps), strict=True)
    return sum(rate == 0 and step >= warmup for step, rate in pairs) / len(steps)


def _misfit(field: Field, end: int) -> str:
    """Describes how a schedule, whose end or steps `field` sets, misses the end of the run."""
    offset = _offset(field.section)
    if isinstance(field.section, learning_rate_config.StepwiseLrConfig):
        late = [each + offset for each in field.value if each + offset >= end - 1]  # applies later
        return f"the run ends at step {end:,}, before {late[0]:,} takes effect" if late else ""
    last = offset + (field.value if field.name in DECAYS else field.value[-1])
    return "" if last == end else f"the schedule ends at step {last:,}, the run at {end:,}"


def _advice(field: Field | None) -> str:
    return "; 0 has it follow the run's length" if field and field.name in DECAYS else ""


def _end_field(experiment: cfg.ExperimentConfig) -> Field | None:
    """Returns the field that sets where the schedule ends, or None if it does not end."""
    kind = experiment.trainer.optimizer_config.learning_rate.type
    field = _length(experiment) or _field(experiment, "learning_rate", "boundaries")
    goes_on = kind == "exponential" or (field and getattr(field.section, "cycle", False))
    return None if goes_on else field


def _length(experiment: cfg.ExperimentConfig) -> Field | None:
    """Returns the field that holds the chosen schedule's length in steps, if it has one."""
    found = (_field(experiment, "learning_rate", name) for name in DECAYS)
    return next(filter(None, found), None)


def _field(experiment: cfg.ExperimentConfig, choice: str, name: str) -> Field | None:
    """Returns a field of the chosen schedule or warm-up."""
    chosen = getattr(experiment.trainer.optimizer_config, choice)
    section: Any = getattr(chosen, chosen.type, None) if chosen.type else None
    if isinstance(section, base_config.Config) and hasattr(section, name):
        return origins.field(experiment, f"{_OPTIMIZATION}.{choice}.{chosen.type}.{name}")
    return None


def _offset(section: base_config.Config) -> int:
    """Returns the step at which a schedule starts."""
    return getattr(section, "offset", 0)
