"""Assembles what a mode drives from its configuration, inside the strategy's scope."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from official.core import base_task, task_factory

from runner import (
    actions,
    best,
    controller,
    evaluation,
    evaluator,
    history,
    memory,
    optimizer,
    overview,
    placement,
    progress,
    rules,
    signals,
    strategy,
    trainer,
)
from runner.config import Experiment
from runner.errors import ConfigError
from runner.spelling import did_you_mean


def build_trainer(
    config: Experiment,
    logging_dir: Path,
    *,
    step: int,
    rows: history.History,
    evaluates: bool,
    stop: signals.Stop,
) -> tuple[trainer.Trainer, tf.Variable]:
    """A trainer whose variables all exist, its inputs placed at `step`.

    Returns:
        The trainer, and the scale of its learning rate.
    """
    devices = _devices(config)
    strategy.check_batch(devices, config.task.train_data, "train_data")
    brake, inputs, replicas = trainer.Brake(), memory.Inputs(), memory.Replicas()
    stop.tell(brake.halt)
    with devices.scope():
        task = task_factory.get_task(config.task, logging_dir=str(logging_dir))
        model = task.build_model()
        made = optimizer.build(task, config)
        rate_scale = optimizer.scale_rate(made)
        built = trainer.Trainer(
            config,
            task,
            model,
            made,
            train_dataset=training_inputs(config, task, step, rows),
            validation_dataset=_validation_inputs(config, task) if evaluates else None,
            brake=brake,
            inputs=inputs,
            replicas=replicas,
            check=stop.check,
        )
    return built, rate_scale


def build_evaluator(
    config: Experiment, logging_dir: Path, *, stop: signals.Stop
) -> evaluator.Evaluator:
    """An evaluator; it has an optimizer only where that keeps the averages to evaluate."""
    averages = config.trainer.optimizer_config.ema is not None
    with _devices(config).scope():
        task = task_factory.get_task(config.task, logging_dir=str(logging_dir))
        return evaluator.Evaluator(
            config,
            task,
            task.build_model(),
            optimizer.build(task, config) if averages else None,
            validation_dataset=_validation_inputs(config, task),
            check=stop.check,
        )


def training_inputs(
    config: Experiment, task: base_task.Task, step: int, rows: history.History
) -> Any:
    """The training inputs from `step` on, without the batches that decisions leave out."""
    return placement.training(
        task,
        config.task.train_data,
        step=step,
        skipped=rules.skipped(rows.rollbacks),
        seed=config.run.seed,
        threads=config.runtime.dataset_num_private_threads,
    )


def build_evaluation(
    config: Experiment,
    built: evaluator.Evaluator,
    folder: Path,
    *,
    board: actions.TensorBoard,
    rows: history.History,
    line: progress.Progress,
    eval_actions: Sequence[controller.Action],
) -> evaluation.Evaluation:
    """The evaluation of what `built` holds, recorded in `folder`."""
    rule = best_rule(config)
    keeper = None
    if rule:
        averages = built.write_averages if built.averages else None
        keeper = best.BestCheckpoint(folder / best_folder(config), rule, write_averages=averages)
    log = actions.EvaluationLog(rows, board, keeper, line)
    batches = config.trainer.validation_steps
    return evaluation.Evaluation(built, log, batches=batches, actions=eval_actions)


def build_overview(built: trainer.Trainer) -> overview.Overview:
    """Parameters, and the FLOPs of an example's forward pass and of a training step."""
    features = built.features_spec
    forward = overview.forward(lambda x: built.task.inference_step(x, built.model), features)
    if built.training_graph is None:
        step = overview.Count(unknown="the training step runs eagerly")
    else:
        step = overview.count(built.training_graph)
    return overview.build(built.model, forward=forward, training_step=step)


def check_metric(config: Experiment, built: evaluator.Evaluator, *, evaluates: bool) -> None:
    """Raises ConfigError where the task does not produce the best checkpoint's metric.

    The task is taken at its word for the metrics that it declares. What it aggregates itself has no
    declaration; where the mode evaluates, a rehearsal on one batch tells.
    """
    rule = best_rule(config)
    if rule is None:
        return
    declared = {metric.name for metric in built.task.build_metrics(training=False)}
    names = sorted(declared | {"validation_loss"})
    if rule.metric in declared:
        return
    if evaluates:
        names = sorted(evaluation.metric_names(built))
    elif _aggregates(built.task):
        return
    if rule.metric not in names:
        raise ConfigError(
            f"TrainerConfig.best_checkpoint_eval_metric = {rule.metric!r}: the evaluation produces "
            f"{', '.join(names)}{did_you_mean(rule.metric, names)}"
        )


def grid(config: Experiment, *, evaluates: bool) -> controller.Grid:
    """When things fall due."""
    options = config.trainer
    return controller.Grid(
        end=options.train_steps,
        loop=options.steps_per_loop,
        summary=options.summary_interval,
        checkpoint=options.checkpoint_interval,
        evaluations=(options.validation_interval,) if evaluates else (),
    )


def best_rule(config: Experiment) -> rules.BestRule | None:
    """Which evaluation is best, None where the configuration names no metric."""
    options = config.trainer
    if not options.best_checkpoint_eval_metric:
        return None
    metric = options.best_checkpoint_eval_metric.replace("|", "/")  # as Model Garden nests names
    return rules.BestRule(metric, higher=options.best_checkpoint_metric_comp == "higher")


def best_folder(config: Experiment) -> str:
    """The name of the best checkpoint's folder."""
    return config.trainer.best_checkpoint_export_subdir or "best"


def shown(config: Experiment) -> rules.BestRule:
    """The metric that the live line shows."""
    return best_rule(config) or rules.BestRule("validation_loss", higher=False)


def _devices(config: Experiment) -> tf.distribute.Strategy:
    """The strategy, on a process that is set up for the run."""
    strategy.configure(config.runtime, seed=config.run.seed, deterministic=config.run.deterministic)
    return strategy.build(config.runtime, logical_cpus=config.run.logical_cpus)


def _validation_inputs(config: Experiment, task: base_task.Task) -> Any:
    data = config.task.validation_data
    strategy.check_batch(tf.distribute.get_strategy(), data, "validation_data")
    return placement.validation(task, data, threads=config.runtime.dataset_num_private_threads)


def _aggregates(task: base_task.Task) -> bool:
    return type(task).reduce_aggregated_logs is not base_task.Task.reduce_aggregated_logs
