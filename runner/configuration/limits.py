"""Limits for trying out an experiment: the first batches for training and for evaluation."""

from collections.abc import Iterator
from typing import Any

from runner.errors import ConfigError


def of(experiment: Any) -> dict[str, int]:
    """Returns the limits of an experiment in batches, for `train` and `evaluation` if set."""
    run = experiment.run
    limits = {"train": run.limit_train, "evaluation": run.limit_evaluation}
    return {what: batches for what, batches in limits.items() if batches}


def validation_batches(experiment: Any) -> int:
    """Returns the number of batches of validation data to use, or -1 for all."""
    steps, limit = experiment.trainer.validation_steps, experiment.run.limit_evaluation
    return min((each for each in (steps, limit) if each > 0), default=-1)


def describe(experiment: Any, *, trains: bool, evaluates: bool) -> Iterator[str]:
    """Yields a line for each limit that applies, to mark the results as limited."""
    limits = of(experiment)
    if trains and (number := limits.get("train")):
        what = "its first batch" if number == 1 else f"its first {number:,} batches"
        yield f"limited run: training repeats {what} (RunConfig.limit_train)"
    if evaluates and (number := limits.get("evaluation")):
        what = "the first batch" if number == 1 else f"the first {number:,} batches"
        yield f"limited run: evaluations use only {what} (RunConfig.limit_evaluation)"


def check_training(data: Any, limit: int) -> None:
    """Checks that the training data are not known to have fewer batches than the limit.

    Raises:
        ConfigError: if they are.
    """
    batch, size = getattr(data, "global_batch_size", 0), getattr(data, "size", None)
    examples = size() if limit and batch > 0 and callable(size) else None
    if examples and examples <= (limit - 1) * batch:
        raise ConfigError(
            f"RunConfig.limit_train = {limit} has no effect: {examples:,} examples in batches of "
            f"{batch:,} are {-(-examples // batch):,} batches"
        )
