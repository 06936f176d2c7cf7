"""Named datasets that are evaluated in addition to the validation data."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner.config import Experiment
from runner.configuration import epochs
from runner.core import schedule
from runner.data import batches, pipeline
from runner.data.determinism import Determinism
from runner.devices import strategy
from runner.errors import ConfigError
from runner.history import records
from runner.run_config import EvaluationSetConfig

LOSS = "validation_loss"
"""What official calls the loss of an evaluation."""


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A set of data to evaluate.

    Attributes:
        name: The set's name; empty for the validation data.
        prefix: The prefix of its metrics' names in a row.
        interval: The steps between its evaluations.
        dataset: A distributed dataset; None for the validation data, which the evaluator holds.
    """

    name: str
    prefix: str
    interval: schedule.Interval
    dataset: Any = None


def build(config: Experiment, task: base_task.Task) -> tuple[EvaluationSet, ...]:
    """The validation data and the sets, in the order of the configuration.

    Call it in the strategy's scope.
    """
    intervals = intervals_of(config)
    named = [
        EvaluationSet(
            each.name,
            prefix(each),
            intervals[prefix(each)],
            dataset(config, task, each.data, f"data of {each.name!r}", portion(each, task)),
        )
        for each in config.run.evaluation_sets
    ]
    return (EvaluationSet("", "", intervals[""]), *named)


def intervals_of(config: Experiment) -> dict[str, schedule.Interval]:
    """The steps between a set's evaluations, by its prefix; empty for the validation data."""
    interval = epochs.interval(config, "trainer.validation_interval")
    own = {
        prefix(each): epochs.interval(config, f"run.evaluation_sets[{index}].interval") or interval
        for index, each in enumerate(config.run.evaluation_sets)
    }
    return {"": interval, **own}


@dataclasses.dataclass(frozen=True)
class Due:
    """Which part of an evaluation a run's grid has at its step.

    The rest was evaluated where an earlier start of the run ended, or stopped.

    Attributes:
        grid: When things fall due.
        intervals: As `intervals_of` returns them.
    """

    grid: schedule.Grid
    intervals: Mapping[str, schedule.Interval]

    def __call__(self, row: records.Evaluation) -> records.Evaluation:
        """The row with the metrics that are due at its step."""
        due = {name: value for name, value in row.metrics.items() if self._is_due(row.step, name)}
        return row if len(due) == len(row.metrics) else dataclasses.replace(row, metrics=due)

    def _is_due(self, step: int, name: str) -> bool:
        prefix = max((each for each in self.intervals if name.startswith(each)), key=len)
        return self.grid.due(step, self.intervals[prefix])


def dataset(
    config: Experiment,
    task: base_task.Task,
    data: cfg.DataConfig,
    name: str,
    examples: int | None = None,
    determinism: Determinism | None = None,
    start: int = 0,
) -> Any:
    """Data for `Evaluator.evaluate_on`: the first `examples`, None for all, from batch `start` on.

    Call it inside the strategy's scope.
    """
    strategy.check_batch(tf.distribute.get_strategy(), data, name)
    threads = config.runtime.dataset_num_private_threads
    return pipeline.validation(
        task, data, threads=threads, examples=examples, start=start, determinism=determinism
    )


def named(logs: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A set's results by their names in a row: the loss is `<prefix>loss`."""
    return {_name(name, prefix): value for name, value in logs.items()}


def metric_names(config: Experiment, names: Collection[str]) -> list[str]:
    """The names in the rows of an experiment whose task produces `names`.

    Raises:
        ConfigError: two metrics would have one name.
    """
    prefixes = ["", *(prefix(each) for each in config.run.evaluation_sets)]
    every = [_name(name, each) for each in prefixes for name in set(names)]
    twice = sorted(name for name, count in Counter(every).items() if count > 1)
    if twice:
        raise ConfigError(
            f"EvaluationSetConfig.prefix: more than one metric would be named {', '.join(twice)}"
        )
    return sorted(every)


def prefix(each: EvaluationSetConfig) -> str:
    """Before the names of a set's metrics."""
    return each.prefix or f"{each.name}/"


def _name(metric: str, prefix: str) -> str:
    return prefix + ("loss" if prefix and metric == LOSS else metric)


def portion(each: EvaluationSetConfig, task: base_task.Task) -> int | None:
    """The number of examples to evaluate; None for all.

    For a `share`, the examples are counted by reading them once, unless the data's configuration
    has a method `size()`.
    """
    if not each.examples and each.share == 1.0:
        return None
    size = getattr(each.data, "size", lambda: None)()
    if each.examples:
        if size is not None and each.examples > size:
            raise ConfigError(
                f"EvaluationSetConfig.examples = {each.examples} of {each.name!r}: there are {size}"
            )
        return each.examples
    if size is None:
        parts = tf.nest.flatten(pipeline.inputs_of(task, pipeline.whole(each.data), None))
        size = batches.count(parts[0])
    return max(1, round(each.share * size))
