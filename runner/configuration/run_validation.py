"""Validates this runner's config class, `run`, by itself and together with the other configs."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration import epochs, fields, folding, functions, origins, sections
from runner.configuration.origins import Invalid
from runner.core import spelling
from runner.run_config import RunConfig

TEST = "test/"
"""The prefix of the final test's metrics."""


def problems(
    experiment: cfg.ExperimentConfig, *, evaluates: bool, given_only: bool = False
) -> Iterator[Invalid]:
    """Yields values that contradict another value or have no effect.

    Args:
        experiment: All values.
        evaluates: Whether the mode evaluates, so that its data must have a batch size.
        given_only: Skip checks for missing values, which another mistake may have removed.
    """
    run = experiment.run
    yield from _directions(experiment)
    yield from _functions(experiment)
    yield from _sets(run)
    yield from _groups(run)
    yield from _rates(run)
    yield from _batches(run)
    yield from folding.problems(experiment)
    # Tasks of a program may do their own batching, as Model Garden's mocks do.
    programs = not origins.loading(experiment)
    for path, section in _evaluated(run):
        own = programs and getattr(section, "task", None) is not None
        yield from _data(path, section, evaluates=evaluates and not own)
    if not given_only:
        yield from _without_effect(experiment)


def _directions(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields metrics that are named twice, or with contradictory directions (higher and lower)."""
    options, run = experiment.trainer, experiment.run
    metric = spelling.metric_name(options.best_checkpoint_eval_metric or "")
    said = {metric: (options.best_checkpoint_metric_comp, "TrainerConfig")} if metric else {}
    for path, section, field in _metric_fields(run):
        order = fields.of(type(section), field).better
        metrics = [spelling.metric_name(name) for name in getattr(section, field)]
        if len(set(metrics)) < len(metrics) or "" in metrics:
            yield Invalid(path, section, field, "must name each metric once")
        for name in dict.fromkeys(metrics):
            better, where = said.setdefault(name, (order, type(section).__name__))
            if better != order:
                needs = f"names {name!r}, of which {better} is better according to {where}"
                yield Invalid(path, section, field, needs)
            elif name == metric and field != order:
                needs = f"names {name!r}, as TrainerConfig.best_checkpoint_eval_metric does"
                yield Invalid(path, section, field, needs)


def _metric_fields(run: RunConfig) -> Iterator[tuple[str, base_config.Config, str]]:
    """Yields the fields that name metrics: config path, config, field."""
    for path, section in sections.walk(run, "run"):
        for field in vars(section):
            if fields.of(type(section), field).better:
                yield path, section, field


def _functions(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields functions that do not accept their arguments or are never called."""
    run, trainer = experiment.run, experiment.trainer
    if (rule := run.evaluator.give_up) is not None:
        wrong = functions.mistake(rule)
        if not wrong and trainer.continuous_eval_timeout is None:
            wrong = "has no effect with TrainerConfig.continuous_eval_timeout = None, which waits "
            wrong += "without end"
        if wrong:
            yield Invalid("run.evaluator.give_up", rule, "name", wrong)
    called: list[tuple[str, functions.FunctionConfig, tuple[Any, ...]]] = [
        *((f"run.actions[{n}].action", one.action, ({},)) for n, one in enumerate(run.actions)),
        *((f"run.writers[{n}]", one, (0, {}, "")) for n, one in enumerate(run.writers)),
        *((f"run.stopping_rules[{n}]", one, ([],)) for n, one in enumerate(run.stopping_rules)),
    ]
    for path, function, given in called:
        if wrong := functions.mistake(function, *given):
            yield Invalid(path, function, "name", wrong)
    for n, one in enumerate(run.actions):
        if one.every and one.at != "loop":
            needs = f"has no effect with at = {one.at!r}; 'loop' uses it"
            yield Invalid(f"run.actions[{n}]", one, "every", needs)
        if one.at == "best" and not trainer.best_checkpoint_eval_metric:
            needs = "has no effect without TrainerConfig.best_checkpoint_eval_metric"
            yield Invalid(f"run.actions[{n}]", one, "at", needs)


def _sets(run: RunConfig) -> Iterator[Invalid]:
    names: set[str] = set()
    prefixes: set[str] = set()
    for index, one in enumerate(run.evaluation_sets):
        path = f"run.evaluation_sets[{index}]"
        if one.examples and one.share != 1:
            needs = f"cannot be combined with share = {one.share}: set only one"
            yield Invalid(path, one, "examples", needs)
        if one.steps and (one.examples or one.share != 1):
            needs = "cannot be combined with examples or share: set only one"
            yield Invalid(path, one, "steps", needs)
        prefix = one.prefix or f"{one.name}/"
        if prefix == TEST:
            needs = f"uses the metric prefix {TEST!r}, which the final test uses"
            yield Invalid(path, one, "name", needs)
        elif one.name in names and one.name:
            yield Invalid(path, one, "name", "is also the name of another set")
        elif prefix in prefixes and one.name:
            needs = f"uses the metric prefix {prefix!r}, which another set uses"
            yield Invalid(path, one, "prefix", needs)
        names.add(one.name)
        prefixes.add(prefix)


def _groups(run: RunConfig) -> Iterator[Invalid]:
    names: set[str] = set()
    for index, one in enumerate(run.variable_groups):
        path = f"run.variable_groups[{index}]"
        if one.name in names and one.name:
            yield Invalid(path, one, "name", "is also the name of another group")
        names.add(one.name)
        changes = one.rate_scale != 1 or one.weight_decay
        if one.trainable and not changes and not one.initializer:
            needs = (
                "has no effect without rate_scale, weight_decay, trainable = False or initializer"
            )
            yield Invalid(path, one, "pattern", needs)
        if not one.trainable and changes:
            field = "rate_scale" if one.rate_scale != 1 else "weight_decay"
            yield Invalid(path, one, field, "has no effect with trainable = False")


def _rates(run: RunConfig) -> Iterator[Invalid]:
    if run.find_rate.lowest >= run.find_rate.highest:
        needs = f"must be below highest = {run.find_rate.highest:g}"
        yield Invalid("run.find_rate", run.find_rate, "lowest", needs)


def _batches(run: RunConfig) -> Iterator[Invalid]:
    if 0 < run.find_batch.largest < run.find_batch.first:
        needs = f"must be {run.find_batch.first:,} (first) or more"
        yield Invalid("run.find_batch", run.find_batch, "largest", needs)


def _evaluated(run: RunConfig) -> Iterator[tuple[str, base_config.Config]]:
    """Yields the configs that have their own data."""
    for index, one in enumerate(run.evaluation_sets):
        yield f"run.evaluation_sets[{index}]", one
    if run.test.data is not None:
        yield "run.test", run.test


def _data(path: str, section: base_config.Config, *, evaluates: bool) -> Iterator[Invalid]:
    data, path = section.data, f"{path}.data"
    if evaluates and data.global_batch_size < 1:
        yield Invalid(path, data, "global_batch_size", "must be 1 or more")
    if data.is_training:
        yield Invalid(path, data, "is_training", "must be False, because these data are evaluated")
    if drops_remainder(data):
        needs = "has no effect, because every example is evaluated; remove it"
        yield Invalid(path, data, "drop_remainder", needs)
    if path == "run.test.data" and getattr(data, "folds", None):
        yield Invalid(path, data, "folds", "must be 0, because the test uses all of its data")


def _without_effect(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields given values that are never read."""
    run = experiment.run
    for name in ("early_stopping", "plateau"):
        section = getattr(run, name)
        for field in () if _watches(section) else dataclasses.fields(section):
            follows = field.name == "from_step" and run.epochs.stopping_from
            if getattr(section, field.name) != field.default and not follows:
                needs = f"has no effect without {type(section).__name__}.higher or lower"
                yield Invalid(f"run.{name}", section, field.name, needs)
    if run.epochs.stopping_from and not _watches(run.early_stopping):
        needs = "has no effect without EarlyStoppingConfig.higher or lower"
        yield Invalid("run.epochs", run.epochs, "stopping_from", needs)
    in_epochs = any(field.name != "boundary_shares" for field in epochs.given(experiment))
    if run.epochs.examples and not in_epochs:
        needs = "has no effect, because no length is given in epochs"
        yield Invalid("run.epochs", run.epochs, "examples", needs)
    if run.summary_seconds and not run.draws("train"):
        needs = "has no effect without TensorBoard's events of training (RunConfig.tensorboard)"
        yield Invalid("run", run, "summary_seconds", needs)
    yield from _without_best(experiment)
    if run.retention.best == 0 and experiment.trainer.max_to_keep:
        needs = "keeps nothing, which needs TrainerConfig.max_to_keep = 0, too"
        yield Invalid("run.retention", run.retention, "best", needs)
    mean = run.weight_mean
    if mean.every and not (mean.last or mean.from_step):
        needs = "has no effect without WeightMeanConfig.last or from_step"
        yield Invalid("run.weight_mean", mean, "every", needs)
    seed = getattr(getattr(experiment.task, "train_data", None), "seed", None)
    if run.data_seed >= 0 and seed is not None:
        yield Invalid("run", run, "data_seed", f"has no effect, because train_data.seed = {seed}")
    if run.test.last and run.test.data is None:
        yield Invalid("run.test", run.test, "last", "has no effect without TestConfig.data")


def _without_best(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields settings of best checkpoints if none are kept."""
    run, metric = experiment.run, "TrainerConfig.best_checkpoint_eval_metric"
    if experiment.trainer.best_checkpoint_eval_metric:
        return
    for field in ("or_higher", "or_lower"):
        if getattr(run.retention, field):
            yield Invalid("run.retention", run.retention, field, f"has no effect without {metric}")
    if _watches(run.retention):
        return
    needs = f"has no effect without {metric}, RetentionConfig.higher or lower"
    if run.retention.best != type(run.retention).best:
        yield Invalid("run.retention", run.retention, "best", needs)
    if run.epochs.best_from:
        yield Invalid("run.epochs", run.epochs, "best_from", needs)
    elif run.retention.from_step:
        yield Invalid("run.retention", run.retention, "from_step", needs)


def drops_remainder(data: Any) -> bool:
    """Returns whether evaluation data explicitly drop their last batch, not just by default."""
    return bool(getattr(data, "drop_remainder", False)) and not type(data).drop_remainder


def _watches(section: Any) -> bool:
    """Returns whether a config names a metric."""
    return bool(section.higher or section.lower)
