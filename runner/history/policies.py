"""Derives a run's schedule and its rules for the best evaluation. No TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.core import layout, schedule
from runner.core.spelling import metric_name
from runner.errors import ConfigError
from runner.history import best_evaluation

if TYPE_CHECKING:  # importing it loads TensorFlow
    from runner.config import Experiment


@dataclasses.dataclass(frozen=True)
class Policies:
    """The schedule and rules of a configuration, derived once and passed to their users.

    Attributes:
        grid: The training schedule.
        best: The rule for the best evaluation, or None if the configuration names no metric.
        best_folders: The rule of each directory of best checkpoints, by the directory's name. The
            first is that of `best`, if there is one.
        deciding: The metrics by which the run's own evaluations stop it or lower its learning rate.
    """

    grid: schedule.Grid
    best: best_evaluation.BestRule | None
    best_folders: Mapping[str, best_evaluation.BestRule]
    deciding: tuple[str, ...]

    @property
    def shown(self) -> best_evaluation.BestRule:
        """The rule whose metrics the live line shows."""
        return self.best or best_evaluation.BestRule("validation_loss", higher=False)


def of(config: "Experiment", *, evaluates: bool = True) -> Policies:
    """Returns the policies of a run that trains, and that evaluates if `evaluates` is true.

    Raises:
        ConfigError: two rules would share a directory.
    """
    run, official = config.run, best(config)
    rules = [rule for rule in (run.early_stopping, run.plateau) if not rule.source]
    return Policies(
        grid=_grid(config, evaluates=evaluates),
        best=official,
        best_folders=_best_folders(config, official),
        deciding=tuple(name for rule in rules for name in (*rule.higher, *rule.lower)),
    )


def _grid(config: "Experiment", *, evaluates: bool) -> schedule.Grid:
    from runner.configuration import epochs  # imports TensorFlow

    options, run, last = config.trainer, config.run, config.trainer.train_steps
    every = {
        name: epochs.interval(config, f"trainer.{name}_interval")
        for name in ("summary", "checkpoint", "validation")
    }
    sets = [
        epochs.interval(config, f"run.evaluation_sets[{index}].interval")
        for index, each in enumerate(run.evaluation_sets)
        if each.interval
    ]
    return schedule.Grid(
        end=min(last, run.pause_at or last),
        loop=options.steps_per_loop,
        summary=every["summary"],
        checkpoint=every["checkpoint"] if options.checkpoint_interval > 0 else last,
        evaluations=(every["validation"], *sets) if evaluates else (),
        evaluations_commit=run.evaluations_commit,
        seconds=0
        if run.checkpoint_seconds == schedule.CONTINUOUS
        else float(run.checkpoint_seconds),
        continuous=run.checkpoint_seconds == schedule.CONTINUOUS,
        actions=tuple(each.every for each in run.actions if each.every),
        epoch=epochs.length(config),
    )


def best(config: "Experiment") -> best_evaluation.BestRule | None:
    """Returns the rule for the best evaluation, or None if the configuration names no metric."""
    options, retention = config.trainer, config.run.retention
    if not options.best_checkpoint_eval_metric:
        return None
    return best_evaluation.BestRule(
        metric_name(options.best_checkpoint_eval_metric),
        higher=options.best_checkpoint_metric_comp == "higher",
        or_higher=tuple(map(metric_name, retention.or_higher)),
        or_lower=tuple(map(metric_name, retention.or_lower)),
        from_step=retention.from_step,
    )


def _best_folders(
    config: "Experiment", official: best_evaluation.BestRule | None
) -> dict[str, best_evaluation.BestRule]:
    retention = config.run.retention
    folders: dict[str, best_evaluation.BestRule] = {}
    if official:
        folders[config.trainer.best_checkpoint_export_subdir or layout.BEST] = official
    for names, higher in ((retention.higher, True), (retention.lower, False)):
        for name in names:
            rule = best_evaluation.BestRule(
                metric_name(name), higher=higher, from_step=retention.from_step
            )
            if rule == official:
                continue
            folder = f"{layout.BEST}-{rule.metric.replace('/', '-')}"
            if folder in folders:
                raise ConfigError(
                    f"RetentionConfig.higher, lower: the best by {rule.metric!r} and the best by "
                    f"{folders[folder].metric!r} would share the directory {folder}; remove one"
                )
            folders[folder] = rule
    return folders
