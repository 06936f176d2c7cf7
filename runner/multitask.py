"""The functions of Model Garden's `official.modeling.multitask.train_lib` on this runner.

from runner import multitask as train_lib
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from official.core import base_task, base_trainer, train_utils
from official.modeling.multitask import base_trainer as multitask_trainer
from official.modeling.multitask import configs, train_lib
from official.modeling.multitask import multitask as official_multitask

from runner import config, model_garden
from runner.command import table
from runner.configuration import multitask
from runner.core import console
from runner.errors import ConfigError
from runner.runs.call import Call, Given
from runner.training import multitask as training_multitask

_MODES = ("train", "eval", "train_and_eval", "continuous_eval")
_exporter = train_utils.maybe_create_best_ckpt_exporter


def run_experiment(
    *,
    distribution_strategy: tf.distribute.Strategy,
    task: official_multitask.MultiTask,
    model: Any,
    mode: str,
    params: configs.MultiTaskExperimentConfig,
    model_dir: str,
    run_post_eval: bool = False,
    trainer: multitask_trainer.MultiTaskBaseTrainer | None = None,
    eval_summary_manager: Any = None,
    best_ckpt_exporter_creator: Callable[..., Any] | None = _exporter,
) -> Any:
    """Trains and evaluates several tasks with one model, as Model Garden's function does.

    Args:
        distribution_strategy: The strategy in whose scope the tasks and the model were built.
        task: The tasks.
        model: The model for all of them.
        mode: `train`, `eval`, `train_and_eval` or `continuous_eval`.
        params: The configuration.
        model_dir: The run's directory.
        run_post_eval: Whether to evaluate the newest weights at the end.
        trainer: If given, Model Garden's own loop runs, without this runner's guarantees.
        eval_summary_manager: Receives the results of evaluations, instead of an event file.
        best_ckpt_exporter_creator: As for `trainer`, if it is not Model Garden's.

    Returns:
        The model, and with `run_post_eval` also the results, by the task's name.

    Raises:
        runner.errors.RunnerError: if the run cannot continue. The message gives the reason.
    """
    arguments = dict(locals())
    _check(mode)
    if _is_own_loop(trainer=trainer, best_ckpt_exporter_creator=best_ckpt_exporter_creator):
        return train_lib.run_experiment(**arguments)
    managers = {"validation": eval_summary_manager}
    experiment = model_garden.adopted(params, True, managers, run={})
    together = training_multitask.of(experiment.task, experiment.trainer, task, lambda: model)
    given = Given(
        distribution_strategy,
        together,
        model_garden.writers(managers),
        official=model_garden.is_official(params),
    )
    actions = _actions(eval_summary_manager, list(task.tasks))
    call = Call(experiment, Path(model_dir), eval_actions=actions, given=given)
    _, logs = model_garden.run(call, mode, model_garden.evaluated if run_post_eval else None)
    return (model, logs) if run_post_eval else model


def run_experiment_with_multitask_eval(
    *,
    distribution_strategy: tf.distribute.Strategy,
    train_task: base_task.Task,
    eval_tasks: Sequence[base_task.Task],
    mode: str,
    params: configs.MultiEvalExperimentConfig,
    model_dir: str,
    run_post_eval: bool = False,
    save_summary: bool = True,
    trainer: base_trainer.Trainer | None = None,
    eval_summary_manager: Any = None,
    best_ckpt_exporter_creator: Callable[..., Any] | None = _exporter,
    train_actions_factory: Callable[..., Any] | None = None,
    eval_actions_factory: Callable[..., Any] | None = None,
) -> tuple[Any, Mapping[str, Any]]:
    """Trains one task and evaluates others with its model, as Model Garden's function does.

    Args:
        distribution_strategy: The strategy in whose scope the tasks were built.
        train_task: Builds the model and the training inputs.
        eval_tasks: The tasks that are evaluated, each with its own name.
        mode: `train`, `eval`, `train_and_eval` or `continuous_eval`.
        params: The configuration.
        model_dir: The run's directory.
        run_post_eval: Whether to evaluate the newest weights at the end.
        save_summary: Whether to write TensorBoard events.
        trainer: If given, Model Garden's own loop runs, without this runner's guarantees.
        eval_summary_manager: Receives the results of evaluations, instead of an event file.
        best_ckpt_exporter_creator: As for `trainer`, if it is not Model Garden's.
        train_actions_factory: As for `trainer`.
        eval_actions_factory: As for `trainer`.

    Returns:
        The model, and the results of the evaluation at the end by the task's name, {} if there is
        none.

    Raises:
        runner.errors.RunnerError: if the run cannot continue. The message gives the reason.
    """
    arguments = dict(locals())
    _check(mode)
    if _is_own_loop(
        trainer=trainer,
        train_actions_factory=train_actions_factory,
        eval_actions_factory=eval_actions_factory,
        best_ckpt_exporter_creator=best_ckpt_exporter_creator,
    ):
        return train_lib.run_experiment_with_multitask_eval(**arguments)
    managers = {"validation": eval_summary_manager}
    experiment = model_garden.adopted(params, save_summary, managers, run={})
    tasks = {task.name: task for task in eval_tasks}
    _evaluate(experiment, tasks, params.eval_tasks)
    given = Given(
        distribution_strategy,
        train_task,
        model_garden.writers(managers),
        official=model_garden.is_official(params),
        eval_tasks=tasks,
    )
    actions = _actions(eval_summary_manager, list(tasks))
    call = Call(experiment, Path(model_dir), eval_actions=actions, given=given)
    return model_garden.run(call, mode, model_garden.evaluated if run_post_eval else None)


def _check(mode: str) -> None:
    if mode not in _MODES:
        raise ConfigError(table.unknown(mode, f"run_experiment(mode={mode!r})", _MODES))


def _is_own_loop(**arguments: Any) -> bool:
    """Returns whether an argument needs Model Garden's own loop, and reports it."""
    usual = {"best_ckpt_exporter_creator": _exporter}
    for name, value in arguments.items():
        if value is not usual.get(name):
            console.say(model_garden.OWN_LOOP.format(what=f"{name} of your own"))
            return True
    return False


def _evaluate(
    experiment: config.Experiment,
    tasks: Mapping[str, base_task.Task],
    routines: Sequence[configs.TaskRoutine],
) -> None:
    """Makes the experiment evaluate the tasks that a program has built."""
    steps = {each.task_config.name: each.eval_steps for each in routines}  # as Model Garden does
    steps |= {multitask.name_of(each): each.eval_steps for each in routines}
    sets = (
        multitask.evaluation_set(name, task.task_config, steps.get(name))
        for name, task in tasks.items()
    )
    multitask.put_sets(experiment.run, tuple(sets))


def _actions(manager: Any, names: Sequence[str]) -> list[Any]:
    """Returns an action that passes evaluation results to a summary manager, by the task's name."""

    def nested(logs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            name: {
                metric.removeprefix(f"{name}/"): value
                for metric, value in logs.items()
                if metric.startswith(f"{name}/")
            }
            for name in names
        }

    return model_garden.summaries(manager, nested)
