"""Checks that evaluations produce the metrics that the configuration names."""

import functools
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.core import base_task

from runner.config import Experiment
from runner.configuration import multitask
from runner.core import console
from runner.core.spelling import did_you_mean, metric_name
from runner.errors import ConfigError, RunnerError
from runner.evaluation import evaluation_sets, evaluator, handover
from runner.reporting import scalars


class _Watched(NamedTuple):
    """A metric that a field names, and the evaluator that produces it ("": this process)."""

    field: str
    metric: str
    source: str = ""


def check(
    config: Experiment,
    built: evaluator.Evaluator,
    model_dir: Path,
    *,
    evaluates: bool,
    evaluator: str = "",
) -> list[str] | None:
    """Checks that evaluations will produce every metric that this process needs.

    Args:
        config: Names the metrics.
        built: Has the task.
        model_dir: The training run's directory.
        evaluates: Whether this process evaluates.
        evaluator: The name of this evaluator. Empty: this process trains.

    Returns:
        The result of `produced`.

    Raises:
        ConfigError: a metric will not exist, or two have the same name. The message lists the
            metrics that will exist.
    """
    watched = [*_best(config), *_decisions(config, evaluator)]
    own = produced(config, built, evaluates=evaluates and bool(watched))
    for each in watched:
        if each.source:
            _check_foreign(each, own, handover.metrics_of(model_dir, each.source))
        elif own is not None and each.metric not in own:
            raise ConfigError(_missing(each, f"the evaluation produces {', '.join(own)}", own))
    return own


def check_idle(config: Experiment) -> None:
    """Checks that no rule needs evaluations of a process that trains without evaluating.

    Raises:
        ConfigError: one does, so it would have no effect.
    """
    for rule in (config.run.early_stopping, config.run.plateau):
        if (rule.higher or rule.lower) and not rule.source:
            name = type(rule).__name__
            raise ConfigError(
                f"{name} has no effect: this mode does not evaluate. Name the evaluator that does "
                f"in {name}.source, or use the mode train_and_eval"
            )


def produced(
    config: Experiment, built: evaluator.Evaluator, *, evaluates: bool
) -> list[str] | None:
    """The names of the metrics in this process's rows.

    The metrics that a task declares are trusted. If this process evaluates, it finds the metrics
    that a task aggregates itself by a trial on one batch. Otherwise, or if the trial fails, the
    names are unknown and the result is None.
    """
    own = _of(built, built.evaluate, evaluates) if multitask.evaluates_own(config) else []
    others = {
        name: _of(other, functools.partial(_evaluate_on, built, name), evaluates)
        for name, other in built.others.items()
    }
    known = {name: names for name, names in others.items() if names is not None}
    if own is None or len(known) < sum(
        each.task is not None for each in config.run.evaluation_sets
    ):
        return None  # a run that only trains has no evaluators for other tasks
    return evaluation_sets.metric_names(config, own, known)


def _evaluate_on(built: evaluator.Evaluator, name: str, batches: tf.Tensor) -> evaluator.Logs:
    return built.evaluate_on(built.others[name].eval_dataset, name, limit=int(batches))


def _of(
    built: evaluator.Evaluator, evaluate: Callable[[tf.Tensor], evaluator.Logs], evaluates: bool
) -> Collection[str] | None:
    """The names that one task's evaluation produces, or None if they are unknown."""
    if not _aggregates(built.task):
        with built.strategy.scope():
            declared = built.task.build_metrics(training=False)
        metrics = [*declared, *getattr(built.model, "metrics", ())]
        return [evaluation_sets.LOSS, *(name for metric in metrics for name in _scalars(metric))]
    if not evaluates:
        return None
    try:
        return scalars.scalars(evaluate(tf.constant(1)))
    except RunnerError:
        raise
    except Exception as error:  # raised by the task, which may need all of the data
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        console.say(f"metric names cannot be checked, because evaluating one batch fails ({why})")
        return None


def _scalars(metric: tf_keras.metrics.Metric) -> Collection[str]:
    """A metric's names in rows. A metric whose result needs data is assumed to be a scalar."""
    try:
        result = metric.result()
    except Exception:
        return [metric.name]
    return scalars.scalars({metric.name: result})


def _best(config: Experiment) -> Iterator[_Watched]:
    if metric := config.trainer.best_checkpoint_eval_metric:
        yield _Watched("TrainerConfig.best_checkpoint_eval_metric", metric_name(metric))
    for field in ("or_higher", "or_lower", "higher", "lower"):
        for metric in getattr(config.run.retention, field):
            yield _Watched(f"RetentionConfig.{field}", metric_name(metric))


def _decisions(config: Experiment, evaluator: str) -> Iterator[_Watched]:
    """The metrics of the rules: all rules in training, those that name it in an evaluator."""
    for rule in (config.run.early_stopping, config.run.plateau):
        if evaluator and rule.source != evaluator:
            continue
        for order, metrics in (("higher", rule.higher), ("lower", rule.lower)):
            for metric in metrics:
                field = f"{type(rule).__name__}.{order}"
                yield _Watched(field, metric, "" if evaluator else rule.source)


def _check_foreign(each: _Watched, own: list[str] | None, known: list[str] | None) -> None:
    """Checks an evaluator's metric against those it reports, or against this task's.

    A running evaluator that does not know its metrics (`known` is empty) is trusted.
    """
    if known and each.metric not in known:
        produces = f"the evaluator {each.source!r} produces {', '.join(known)}"
        raise ConfigError(_missing(each, produces, known))
    if known is None and own is not None and each.metric not in own:
        produces = (
            f"the evaluator {each.source!r} is not running; this task produces {', '.join(own)}; "
            "start the evaluator first if it has other metrics"
        )
        raise ConfigError(_missing(each, produces, own))


def _missing(each: _Watched, produces: str, names: list[str]) -> str:
    return f"{each.field} = {each.metric!r}: {produces}{did_you_mean(each.metric, names)}"


def _aggregates(task: base_task.Task) -> bool:
    return type(task).reduce_aggregated_logs is not base_task.Task.reduce_aggregated_logs
