"""What a configuration means: what is due when, and which evaluation is the best. No TensorFlow."""

from typing import TYPE_CHECKING

from runner.core import layout, schedule
from runner.core.spelling import metric_name
from runner.errors import ConfigError
from runner.history import best_evaluation

if TYPE_CHECKING:  # which loads TensorFlow
    from runner.config import Experiment


def grid(config: "Experiment", *, evaluates: bool) -> schedule.Grid:
    """When things fall due."""
    options, run, last = config.trainer, config.run, config.trainer.train_steps
    sets = (each.interval for each in run.evaluation_sets if each.interval)
    return schedule.Grid(
        end=last,
        loop=options.steps_per_loop,
        summary=options.summary_interval,
        checkpoint=options.checkpoint_interval if options.checkpoint_interval > 0 else last,
        evaluations=(options.validation_interval, *sets) if evaluates else (),
        evaluations_commit=run.evaluations_commit,
        seconds=run.checkpoint_seconds,
        actions=tuple(each.every for each in run.actions if each.every),
    )


def best_rule(config: "Experiment") -> best_evaluation.BestRule | None:
    """Which evaluation is best, None if the configuration names no metric."""
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


def best_rules(config: "Experiment") -> dict[str, best_evaluation.BestRule]:
    """The rule of each folder of best checkpoints, by the folder's name; official's comes first.

    Raises:
        ConfigError: two rules would share a folder.
    """
    retention, official = config.run.retention, best_rule(config)
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
                    f"{folders[folder].metric!r} would share the folder {folder}; leave one out"
                )
            folders[folder] = rule
    return folders


def shown(config: "Experiment") -> best_evaluation.BestRule:
    """The rule whose metrics the live line shows."""
    return best_rule(config) or best_evaluation.BestRule("validation_loss", higher=False)


def left_to_evaluators(config: "Experiment") -> list[str]:
    """What the configuration asks for, but a mode that only trains leaves to evaluators."""
    left = [f"the set {each.name!r}" for each in config.run.evaluation_sets]
    left += [f"{folder}/" for folder in best_rules(config)]
    return [*left, "the test"] if config.run.test.data is not None else left
