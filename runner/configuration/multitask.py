"""Model Garden's experiments with several tasks, as experiments of this runner.

The tasks that are evaluated become evaluation sets, each with a separate task.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config
from official.modeling.multitask import configs

from runner.configuration import sections
from runner.configuration.origins import Invalid
from runner.errors import ConfigError
from runner.run_config import EvaluationSetConfig, RunConfig

MULTI_EVAL = configs.MultiEvalExperimentConfig
"""Model Garden's experiment that trains one task and evaluates others."""

TRAINERS = ("interleaving", "joint")
"""The values of `MultiTaskTrainerConfig.trainer_type`."""


def trains_several(task: base_config.Config) -> bool:
    """Returns whether the config `task` of an experiment describes several tasks to train."""
    return isinstance(task, configs.MultiTaskConfig)


@dataclasses.dataclass
class IndexedData(cfg.DataConfig):
    """Represents the training data of several tasks that can all start at any step.

    Attributes:
        start_step: The step to start with.
    """

    start_step: int = 0


def train_data(task: base_config.Config) -> Any:
    """Returns the training data of a config `task`, or one config that represents several tasks."""
    if not trains_several(task):
        return task.train_data
    parts = [each.task_config.train_data for each in task.task_routines]
    indexed = all(hasattr(each, "start_step") for each in parts)
    return (IndexedData if indexed else cfg.DataConfig)(is_training=True)


def evaluates_own(experiment: cfg.ExperimentConfig) -> bool:
    """Returns whether the trained task is evaluated, and not only others with its model."""
    sets = experiment.run.evaluation_sets
    return not trains_several(experiment.task) and all(one.task is None for one in sets)


def name_of(routine: configs.TaskRoutine) -> str:
    """Returns the name of a task, as Model Garden chooses it."""
    return routine.task_name or getattr(routine.task_config, "name", None) or ""


def evaluated(routines: Iterable[configs.TaskRoutine]) -> tuple[EvaluationSetConfig, ...]:
    """Returns the evaluation sets of the tasks that are evaluated.

    Raises:
        ConfigError: if a task has no configuration.
    """
    return tuple(map(_evaluated, routines))


def _evaluated(routine: configs.TaskRoutine) -> EvaluationSetConfig:
    task, name = routine.task_config, name_of(routine)
    if task is None:
        raise ConfigError(f"TaskRoutine.task_config of {name or 'a task'!r} is missing")
    return evaluation_set(name, task, routine.eval_steps)


def evaluation_set(name: str, task: cfg.TaskConfig, steps: int | None) -> EvaluationSetConfig:
    """Returns the evaluation set of a task.

    Args:
        name: The task's name.
        task: The task's config.
        steps: How many batches are evaluated. None or -1 evaluates all of the validation data.
    """
    steps = max(steps or 0, 0)
    return EvaluationSetConfig(name=name, task=task, data=_evaluated_data(task), steps=steps)


def _evaluated_data(task: cfg.TaskConfig) -> cfg.DataConfig:
    return getattr(task, "validation_data", None) or cfg.DataConfig(is_training=False)


def evaluate_only(
    experiment: cfg.ExperimentConfig, routines: Iterable[configs.TaskRoutine]
) -> None:
    """Makes an experiment evaluate only these tasks, without its training task."""
    put_sets(experiment.run, evaluated(routines))


def put_sets(run: RunConfig, sets: tuple[EvaluationSetConfig, ...]) -> None:
    """Replaces the evaluation sets of a config."""
    run.evaluation_sets = ()  # otherwise Model Garden changes the existing ones
    run.evaluation_sets = sets


def follow(experiment: cfg.ExperimentConfig) -> None:
    """Derives the evaluation sets from the configs of their tasks. Idempotent."""
    task, before = experiment.task, experiment.run.evaluation_sets
    if trains_several(task):
        after = evaluated(task.task_routines)
    else:
        after = tuple(map(_followed, before))
    if before != after:
        put_sets(experiment.run, after)


def _followed(one: EvaluationSetConfig) -> EvaluationSetConfig:
    if one.task is None:
        return one
    one = one.replace()  # an unlocked copy
    one.data = _evaluated_data(one.task)
    return one


def task_sections(experiment: cfg.ExperimentConfig) -> Iterator[base_config.Config]:
    """Yields the configs of all tasks of an experiment."""
    for _, section in sections.walk(experiment):
        if isinstance(section, cfg.TaskConfig | configs.MultiTaskConfig):
            yield section


def problems(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields missing and unsupported values of an experiment with several tasks."""
    sets = experiment.run.evaluation_sets
    if not evaluates_own(experiment):
        for index, one in enumerate(sets):
            if one.task is None:
                needs = "must be set for each set, or for none"
                yield Invalid(f"run.evaluation_sets[{index}]", one, "task", needs)
    if trains_several(experiment.task):
        yield from _of_several(experiment)


def check_one(task: base_config.Config, what: str, **options: str) -> None:
    """Checks that an experiment trains one task, as `what` requires.

    Raises:
        ConfigError: if it trains several.
    """
    if trains_several(task):
        raise ConfigError(
            f"{what} is for experiments that train one task; {type(task).__name__} describes "
            "several",
            **options,
        )


def _of_several(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields such values of an experiment that trains several tasks."""
    task = experiment.task
    run, trainer = experiment.run, experiment.trainer
    names = [name_of(routine) for routine in task.task_routines]
    if not names:
        yield Invalid("task", task, "task_routines", "must name at least one task")
    for index, routine in enumerate(task.task_routines):
        if not names[index] or names.index(names[index]) < index:
            needs = "must be set, and differ from those of the other tasks"
            yield Invalid(f"task.task_routines[{index}]", routine, "task_name", needs)
    if run.test.data is not None:
        needs = "is for an experiment with one task"
        yield Invalid("run.test", run.test, "data", needs)
    if getattr(trainer, "trainer_type", TRAINERS[0]) not in TRAINERS:
        needs = f"must be one of {', '.join(TRAINERS)}"
        yield Invalid("trainer", trainer, "trainer_type", needs)
