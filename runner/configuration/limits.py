"""Limits for trying an experiment out: a few batches to train on, a few to evaluate."""

from collections.abc import Iterator
from typing import Any

from runner.errors import ConfigError


def of(experiment: Any) -> dict[str, int]:
    """The limits of an experiment, in batches: of `train` and of `evaluation`, if there are any."""
    run = experiment.run
    limits = {"train": run.limit_train, "evaluation": run.limit_evaluation}
    return {what: batches for what, batches in limits.items() if batches}


def validation_batches(experiment: Any) -> int:
    """How many batches of the validation data count; -1 for all."""
    steps, limit = experiment.trainer.validation_steps, experiment.run.limit_evaluation
    return min((each for each in (steps, limit) if each > 0), default=-1)


def describe(experiment: Any, *, trains: bool, evaluates: bool) -> Iterator[str]:
    """A line for each limit that a mode meets, so that nobody takes its results for real ones."""
    limits = of(experiment)
    if trains and (number := limits.get("train")):
        what = "its first batch" if number == 1 else f"its first {number:,} batches"
        yield f"a trial: training repeats {what} (RunConfig.limit_train)"
    if evaluates and (number := limits.get("evaluation")):
        what = "the first batch counts" if number == 1 else f"the first {number:,} batches count"
        yield f"a trial: of each evaluated set only {what} (RunConfig.limit_evaluation)"


def check_training(data: Any, limit: int) -> None:
    """Raises ConfigError if the training data are known to have fewer batches than the limit."""
    batch, size = getattr(data, "global_batch_size", 0), getattr(data, "size", None)
    examples = size() if limit and batch > 0 and callable(size) else None
    if examples and examples <= (limit - 1) * batch:
        raise ConfigError(
            f"RunConfig.limit_train = {limit} limits nothing: {examples:,} examples in batches of "
            f"{batch:,} are {-(-examples // batch):,} batches"
        )
