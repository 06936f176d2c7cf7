"""Named datasets that are evaluated in addition to the validation data."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner.config import Experiment
from runner.configuration import epochs, multitask, task_contract
from runner.core import schedule
from runner.data import batches, pipeline
from runner.data.determinism import Determinism
from runner.devices import strategy
from runner.errors import ConfigError
from runner.evaluation import evaluator
from runner.history import records
from runner.run_config import EvaluationSetConfig

LOSS = "validation_loss"
"""Model Garden's name for the loss of an evaluation."""


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A set of data to evaluate.

    Attributes:
        name: The set's name. Empty for the validation data.
        prefix: The prefix of its metrics' names in a row.
        interval: The steps between its evaluations.
        dataset: A distributed dataset. None for the validation data, which the evaluator holds.
        batches: The number of batches to evaluate. 0: all.
        task: The set's own task. None: the run's.
    """

    name: str
    prefix: str
    interval: schedule.Interval
    dataset: Any = None
    batches: int = 0
    task: base_task.Task | None = None

    @property
    def title(self) -> str:
        """Its name in errors and for other workers."""
        return title(self.name)

    def named(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """The results by their names in a row. A set's own task uses Model Garden's names."""
        if self.task is None:
            return named(logs, self.prefix)
        return {self.prefix + name: value for name, value in logs.items()}


def title(name: str) -> str:
    """The title of the set with this name in errors and for other workers."""
    return f"the set {name!r}"


def build(config: Experiment, built: evaluator.Evaluator) -> tuple[EvaluationSet, ...]:
    """The validation data and the sets, in the order of the configuration.

    Omits the validation data if other tasks are evaluated. Call it in the strategy's scope.

    Args:
        config: The experiment.
        built: Has the run's task, and the evaluators of the sets that have their own task.
    """
    intervals = intervals_of(config)
    named = [_built(config, each, built, intervals) for each in config.run.evaluation_sets]
    own = [""] if multitask.evaluates_own(config) else []
    return (*(EvaluationSet(name, "", intervals[""]) for name in own), *named)


def _built(
    config: Experiment,
    each: EvaluationSetConfig,
    built: evaluator.Evaluator,
    intervals: Mapping[str, schedule.Interval],
) -> EvaluationSet:
    by = built.others.get(title(each.name))
    data = by.eval_dataset if by else _dataset(config, each, built.task)
    steps = each.steps
    if by and not steps:
        steps = max(config.trainer.validation_steps, 0)
    return EvaluationSet(
        each.name, prefix(each), intervals[prefix(each)], data, steps, by.task if by else None
    )


def _dataset(config: Experiment, each: EvaluationSetConfig, task: base_task.Task) -> Any:
    return dataset(config, task, each.data, f"data of {each.name!r}", portion(each, task))


def build_others(
    config: Experiment, built: evaluator.Evaluator, tasks: Mapping[str, base_task.Task]
) -> None:
    """Gives an evaluator the sets that have their own task.

    Call it in the strategy's scope.

    Args:
        config: The experiment.
        built: Holds the model.
        tasks: The tasks, by the names of their sets.
    """
    for each in config.run.evaluation_sets:
        if each.task is not None:
            task = tasks[each.name]
            with task_contract.kept(task):
                data = _dataset(config, each, task)
                built.others[title(each.name)] = built.another(task, each.name, data)


def intervals_of(config: Experiment) -> dict[str, schedule.Interval]:
    """The steps between a set's evaluations, by its prefix. Empty for the validation data."""
    interval = epochs.interval(config, "trainer.validation_interval")
    own = {
        prefix(each): epochs.interval(config, f"run.evaluation_sets[{index}].interval") or interval
        for index, each in enumerate(config.run.evaluation_sets)
    }
    return {"": interval, **own}


@dataclasses.dataclass(frozen=True)
class Due:
    """Selects the part of an evaluation that a run's schedule has at its step.

    The rest was evaluated because an earlier attempt of the run ended or stopped there.

    Attributes:
        grid: The schedule.
        intervals: The result of `intervals_of`.
    """

    grid: schedule.Grid
    intervals: Mapping[str, schedule.Interval]

    def __call__(self, row: records.Evaluation) -> records.Evaluation:
        """The row with the metrics that are scheduled at its step."""
        due = {name: value for name, value in row.metrics.items() if self._is_due(row.step, name)}
        return row if len(due) == len(row.metrics) else dataclasses.replace(row, metrics=due)

    def _is_due(self, step: int, name: str) -> bool:
        return self.grid.due(step, self.intervals[prefix_of(name, self.intervals)])


def dataset(
    config: Experiment,
    task: base_task.Task,
    data: cfg.DataConfig,
    name: str,
    examples: int | None = None,
    determinism: Determinism | None = None,
    start: int = 0,
) -> Any:
    """Data for `Evaluator.evaluate_on`, starting at batch `start`.

    Contains the first `examples`, or all if None. Call it inside the strategy's scope.
    """
    strategy.check_batch(tf.distribute.get_strategy(), data, name)
    threads = config.runtime.dataset_num_private_threads
    return pipeline.validation(
        task, data, threads=threads, examples=examples, start=start, determinism=determinism
    )


def named(logs: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A set's results by their names in a row. The loss is `<prefix>loss`."""
    return {_name(name, prefix): value for name, value in logs.items()}


def metric_names(
    config: Experiment, names: Collection[str], others: Mapping[str, Collection[str]]
) -> list[str]:
    """The names in the rows of an experiment.

    Args:
        config: The experiment.
        names: The metrics that its task produces.
        others: The metrics of the sets' own tasks, by the title of the set.

    Raises:
        ConfigError: two metrics would have the same name.
    """
    sets = config.run.evaluation_sets
    prefixes = ["", *map(prefix, sets)] if multitask.evaluates_own(config) else []
    for name in sorted(set(names)) if prefixes else ():
        if taken := prefix_of(name, prefixes):
            raise ConfigError(
                f"EvaluationSetConfig.prefix = {taken!r}: the validation metric {name} begins with "
                "it; choose another prefix"
            )
    every = [_name(name, each) for each in prefixes for name in set(names)]
    every += [
        prefix(each) + name
        for each in sets
        if each.task is not None
        for name in set(others[title(each.name)])
    ]
    twice = sorted(name for name, count in Counter(every).items() if count > 1)
    if twice:
        raise ConfigError(
            f"EvaluationSetConfig.prefix: more than one metric would be named {', '.join(twice)}"
        )
    return sorted(every)


def prefix(each: EvaluationSetConfig) -> str:
    """The prefix of a set's metric names."""
    return each.prefix or f"{each.name}/"


def prefix_of(name: str, prefixes: Iterable[str]) -> str:
    """The prefix of a metric's name in a row. Empty for the validation data."""
    return max((each for each in prefixes if name.startswith(each)), key=len, default="")


def _name(metric: str, prefix: str) -> str:
    return prefix + ("loss" if prefix and metric == LOSS else metric)


def portion(each: EvaluationSetConfig, task: base_task.Task) -> int | None:
    """The number of examples to evaluate, or None for all.

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
