"""Builds the objects of a mode from its configuration, inside the strategy's scope."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import tensorflow as tf
import tf_keras
from official.core import actions as official_actions
from official.core import base_task, task_factory
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config
from official.modeling.multitask import configs

from runner.checkpoints import extra_state
from runner.config import Experiment, origins
from runner.configuration import (
    limits,
    multitask,
    registry,
    sections,
    task_contract,
    unused_values,
)
from runner.core import console, layout, schedule, user_code
from runner.data import pipeline, windows
from runner.data.determinism import Determinism
from runner.devices import strategy, team
from runner.errors import ConfigError
from runner.evaluation import evaluation_sets, evaluator
from runner.internals import keras as keras_internals
from runner.models import learning_rate, optimizer
from runner.reporting import mfu, overview, task_summaries
from runner.runs.call import Call, Given
from runner.training import inner_loop, trainer
from runner.training import multitask as training_multitask

_ALL = windows.Reading()


def build_trainer(
    call: Call, *, step: int, evaluates: bool, reading: windows.Reading = _ALL
) -> tuple[trainer.Trainer, learning_rate.Scale]:
    """Builds a trainer with all variables created, and its inputs positioned at `step`.

    Args:
        call: The configuration, the caller's objects, and the directory where a task may log.
        step: The step.
        evaluates: Whether the run also evaluates.
        reading: What training reads from its data.

    Returns:
        The trainer, and the scale of its learning rate.
    """
    config, given = call.config, call.given
    devices = _announced_devices(config, given)
    parts = config.run.gradient_accumulation
    for name, data in _training_data(config.task):
        strategy.check_batch(devices, data, name, parts=parts)
        limits.check_training(data, config.run.limit_train)
    brake, extra = inner_loop.Brake(), extra_state.ExtraState()
    determinism, evaluated = Determinism(), Determinism.of_evaluations()
    call.stop.tell(brake.halt)
    with devices.scope():
        task, model = _task(config, call.model_dir, given)
        made = optimizer.build(task, config)
        rate_scale = learning_rate.scale_rate(made, floor=config.run.plateau.floor)
        with task_contract.kept(task):
            built = trainer.Trainer(
                config,
                task,
                model,
                made,
                train_inputs=training_inputs(config, task, step, reading, determinism),
                validation_dataset=_validation_inputs(config, task, evaluated)
                if evaluates
                else None,
                brake=brake,
                extra=extra,
                determinism=determinism,
                evaluated=evaluated,
                check=call.stop.check,
                written=_summaries(call, "train"),
                summaries=_summaries(call, "validation"),
            )
        if evaluates:
            _build_others(call, call.model_dir, built)
    return built, rate_scale


def _training_data(task: base_config.Config) -> list[tuple[str, cfg.DataConfig]]:
    """Returns the training data, with the names that messages use."""
    if not multitask.trains_several(task):
        return [("train_data", task.train_data)]
    return [
        (f"train_data of {multitask.name_of(each)!r}", each.task_config.train_data)
        for each in task.task_routines
    ]


def _build_others(call: Call, folder: Path, built: evaluator.Evaluator) -> None:
    """Adds the sets with a separate task to an evaluator. Call it in the scope."""
    given, tasks = call.given, {}
    if isinstance(built.task, training_multitask.Together):
        tasks = dict(built.task.tasks)
    elif given.eval_tasks:
        tasks = dict(given.eval_tasks)
    for each in call.config.run.evaluation_sets:
        if each.task is not None and each.name not in tasks:
            section = sections.unlocked(each.task)
            tasks[each.name] = task_contract.build_task(section, str(folder), call.model_dir)
    evaluation_sets.build_others(call.config, built, tasks)


def build_evaluator(call: Call, folder: Path, *, evaluates: bool = True) -> evaluator.Evaluator:
    """Builds an evaluator. It has an optimizer only if that holds the averages to evaluate.

    Args:
        call: The configuration, and the caller's objects.
        folder: The directory where a task may log.
        evaluates: Whether it has validation data.
    """
    config, given = call.config, call.given
    averaged = config.trainer.optimizer_config.ema is not None
    devices, brake = _announced_devices(config, given), inner_loop.Brake()
    evaluated = Determinism.of_evaluations()
    call.stop.tell(brake.halt)
    with devices.scope():
        task, model = _task(config, folder, given, call.model_dir)
        with task_contract.kept(task):
            built = evaluator.Evaluator(
                config,
                task,
                model,
                optimizer.build(task, config) if averaged else None,
                validation_dataset=_validation_inputs(config, task, evaluated)
                if evaluates
                else None,
                evaluated=evaluated,
                check=call.stop.check,
                free=brake.free,
                summaries=_summaries(call, "validation"),
            )
        if evaluates:
            _build_others(call, folder, built)
    return built


def training_inputs(
    config: Experiment,
    task: base_task.Task,
    step: int,
    reading: windows.Reading,
    determinism: Determinism,
) -> pipeline.Inputs:
    """Returns the training inputs from `step` on. Call it in the scope."""
    run = config.run
    made = pipeline.training(
        task,
        multitask.train_data(config.task),
        step=step,
        reading=reading,
        limit=config.run.limit_train,
        seed=run.seed if run.data_seed < 0 else run.data_seed,
        augmentation_seed=run.augmentation_seed,
        threads=config.runtime.dataset_num_private_threads,
        determinism=determinism,
        by_index=config.run.inputs == "indexed",
        max_bad_examples=config.run.max_bad_examples,
    )
    if run.data_seed >= 0:
        strategy.set_seed(run.seed)  # that of the order was set to build the pipeline
    return made


def build_pruning(
    config: Experiment, built: trainer.Trainer, folder: Path
) -> tuple[schedule.Action, ...]:
    """Returns Model Garden's action for a task that prunes its model. Call it before a restore.

    Raises:
        ConfigError: the package that prunes is not installed.
    """
    if not getattr(config.task, "pruning", None):
        return ()
    try:
        return (
            official_actions.PruningAction(str(folder), built.model, optimizer=built.optimizer),
        )
    except ImportError as error:
        raise ConfigError(
            f"task.pruning needs tensorflow-model-optimization: pip install it ({error})"
        ) from error


class Costs(NamedTuple):
    """The cost of training.

    Attributes:
        view: Parameters and FLOPs.
        utilization: Converts a throughput to the fraction of the devices' peak, or None if the peak
            is unknown.
    """

    view: overview.Overview
    utilization: mfu.Utilization | None


def build_costs(config: Experiment, built: trainer.Trainer) -> Costs:
    """Counts parameters, and the FLOPs of an example's forward pass and of a training step."""
    features, devices = built.features_spec, built.strategy
    forward = overview.forward(built.task.inference_step, features, built.model)
    if built.training_graph is None:
        step = overview.Count(unknown="the training step runs eagerly")
    else:
        step = overview.count(built.training_graph)
    view = overview.build(built.model, forward=forward, training_step=step, frozen=built.frozen)
    if not step.flops:
        return Costs(view, None)
    variable, *_ = devices.experimental_local_results(keras_internals.variables(built.model)[0])
    precision = config.runtime.mixed_precision_dtype or "float32"
    peak = mfu.peak(mfu.device_name(variable), precision, given=config.run.peak_flops)
    replicas = devices.num_replicas_in_sync // team.current().size  # the counted step is theirs
    return Costs(view, mfu.Utilization(step.flops, replicas, peak) if peak else None)


def _task(
    config: Experiment, logging_dir: Path, given: Given, run_folder: Path | None = None
) -> tuple[base_task.Task, tf_keras.Model]:
    """Builds the task and its model.

    Some of Model Garden's builders write to their own config class. A task that is built here
    therefore gets a copy, and the experiment keeps the configured values.

    Raises:
        ConfigError: a builder has replaced a configured value.
    """
    if given.task is not None:
        return given.task, task_contract.build_model(given.task)
    section = sections.unlocked(config.task)
    if multitask.trains_several(section):
        task = build_several(section, config, logging_dir)
    else:
        task = task_contract.build_task(section, str(logging_dir), run_folder)
    model = task_contract.build_model(task)
    if lost := list(unused_values.replaced(config.task, section, "task", origins(config))):
        raise ConfigError("\n".join(lost))
    return task, model


def _summaries(call: Call, kind: Literal["train", "validation"]) -> task_summaries.Summaries:
    """Returns the destination of a task's `tf.summary` while it trains or evaluates."""
    given, run = call.given.summaries, call.config.run
    if given and (writer := getattr(given, kind)):
        return task_summaries.Summaries(writer)
    kinds = {"train": ("train",), "validation": ("validation", "sets", layout.TEST)}[kind]
    if team.current().follows or not any(run.draws(each) for each in kinds):
        return task_summaries.Summaries()
    return task_summaries.Taken()


def build_several(
    section: configs.MultiTaskConfig, config: Experiment, logging_dir: Path
) -> training_multitask.Together:
    """Combines the tasks of a multitask experiment, with the class registered for its config class.

    Raises:
        ConfigError: no registered class makes the model for all of them.
    """
    kind = section.__class__
    built = None
    if registry.task_module(section) is not None:
        built = task_factory.get_task_cls(kind).from_config(section, str(logging_dir))
    make = getattr(built, "build_multitask_model", None)
    if make is None:
        raise ConfigError(
            f"{user_code.place(kind)}: no registered class builds the model for the tasks of "
            f"{kind.__name__}: derive a class from official.modeling.multitask.multitask.MultiTask "
            "that has the method build_multitask_model, and write @task_factory.register_task_cls("
            f"{kind.__name__}) above it"
        )
    return training_multitask.of(section, config.trainer, built, make)


def _announced_devices(config: Experiment, given: Given) -> tf.distribute.Strategy:
    """Builds the strategy, and reports if it has fewer devices than configured."""
    devices = build_devices(config, given)
    if given.strategy is None and (line := strategy.lacking(config.runtime)):
        console.say(line)
    return devices


def build_devices(config: Experiment, given: Given) -> tf.distribute.Strategy:
    """Sets up the process for the run, and returns the strategy."""
    prepare(config)
    if given.strategy is not None:
        strategy.check_joined(given.strategy)
        return given.strategy
    return strategy.build(config.runtime, logical_cpus=config.run.logical_cpus)


def prepare(config: Experiment) -> None:
    """Sets up the process for the run."""
    run = config.run
    strategy.set_threads(intra_op=run.intra_op_threads, inter_op=run.inter_op_threads)
    strategy.configure(config.runtime, seed=run.seed, deterministic=run.deterministic)


def _validation_inputs(config: Experiment, task: base_task.Task, evaluated: Determinism) -> Any:
    if not multitask.evaluates_own(config):
        return None
    data = config.task.validation_data
    return evaluation_sets.dataset(config, task, data, "validation_data", determinism=evaluated)
