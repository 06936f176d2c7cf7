"""Ranges and combinations that the values of our own section, `run`, must keep to."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tf_keras
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration import epochs, functions
from runner.core import spelling
from runner.run_config import RunConfig

POLICIES = ("latest", "every")
TEST = "test/"
"""Before the names of the metrics of the test at the end."""

_Bound = tuple[Callable[[Any], bool], str]
_COUNT: _Bound = (lambda value: value >= 1, "must be 1 or more")
_SIZE: _Bound = (lambda value: value >= 0, "must be 0 or more")

# By section of `run`, its fields and what they must be; false for NaN, too.
_BOUNDS: Mapping[str, Mapping[str, _Bound]] = {
    "": {
        "seed": (lambda value: 0 <= value < 2**32, "must be 0 or more, and below 2**32"),
        "logical_cpus": _COUNT,
        "intra_op_threads": _SIZE,
        "inter_op_threads": _SIZE,
        "checkpoint_seconds": _SIZE,
        "summary_seconds": _SIZE,
        "profile_every": _SIZE,
        "peak_flops": _SIZE,
        "gradient_accumulation": _COUNT,
        "rollback_rate": (lambda value: 0 < value <= 1, "must be above 0, and 1 at most"),
    },
    "early_stopping": {"patience": _COUNT, "min_delta": _SIZE, "from_step": _SIZE},
    "plateau": {
        "factor": (lambda value: 0 < value < 1, "must be above 0 and below 1"),
        "tolerance": _COUNT,
        "min_delta": _SIZE,
        "cooldown": _SIZE,
        "floor": _SIZE,
    },
    "retention": {"every": _SIZE, "best": _COUNT, "from_step": _SIZE},
    "evaluator": {
        "min_seconds": _SIZE,
        "from_step": _SIZE,
        "max_evaluations": _SIZE,
        "max_failures": _SIZE,
    },
    "epochs": {"examples": _SIZE},
}
_SET_BOUNDS: Mapping[str, _Bound] = {
    "interval": _SIZE,
    "share": (lambda value: 0 < value <= 1, "must be above 0, and 1 at most"),
    "examples": _SIZE,
}

# By section of `run`, its fields that name metrics.
_METRICS: Mapping[str, tuple[str, ...]] = {
    "early_stopping": ("higher", "lower"),
    "plateau": ("higher", "lower"),
    "retention": ("or_higher", "or_lower", "higher", "lower"),
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAMED = "must be made of letters, digits, '-', '_' and '.', a letter or a digit first"


class Invalid(NamedTuple):
    """A value that is not what it must be.

    Attributes:
        path: Of its section in the experiment.
        section: Whose field it is.
        field: Its name.
        needs: What it must be.
    """

    path: str
    section: base_config.Config
    field: str
    needs: str


def problems(
    experiment: cfg.ExperimentConfig, *, evaluates: bool, given_only: bool = False
) -> Iterator[Invalid]:
    """What is out of its range, or has no effect.

    Args:
        experiment: All values.
        evaluates: Whether the mode evaluates, so that its data must have a batch size.
        given_only: What a value would need may have been left out for another mistake.
    """
    run = experiment.run
    for name, bounds in _BOUNDS.items():
        path = f"run.{name}".removesuffix(".")
        yield from _outside(path, getattr(run, name) if name else run, bounds)
    yield from _directions(experiment)
    yield from _names(run)
    yield from _give_up(experiment)
    yield from _sets(run)
    yield from _groups(run)
    for path, section in _evaluated(run):
        yield from _data(path, section, evaluates=evaluates)
    if not given_only:
        yield from _without_effect(experiment)


def _outside(
    path: str, section: base_config.Config, bounds: Mapping[str, _Bound]
) -> Iterator[Invalid]:
    for field, (fits, needs) in bounds.items():
        value = getattr(section, field)
        if value is None or not fits(value):
            yield Invalid(path, section, field, needs)


def _directions(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Metrics that are named twice in a field, or of which here higher, there lower is better."""
    options, run = experiment.trainer, experiment.run
    metric = spelling.metric_name(options.best_checkpoint_eval_metric or "")
    said = {metric: (options.best_checkpoint_metric_comp, "TrainerConfig")} if metric else {}
    for name, fields in _METRICS.items():
        section = getattr(run, name)
        for field in fields:
            order = field.removeprefix("or_")
            metrics = [spelling.metric_name(each) for each in getattr(section, field)]
            if len(set(metrics)) < len(metrics) or "" in metrics:
                yield Invalid(f"run.{name}", section, field, "must name each metric once")
            for each in dict.fromkeys(metrics):
                better, where = said.setdefault(each, (order, type(section).__name__))
                if better != order:
                    needs = f"names {each!r}, of which by {where} {better} is better"
                    yield Invalid(f"run.{name}", section, field, needs)
                elif each == metric and field != order:
                    needs = f"names {each!r}, as TrainerConfig.best_checkpoint_eval_metric does"
                    yield Invalid(f"run.{name}", section, field, needs)


def _names(run: RunConfig) -> Iterator[Invalid]:
    """What becomes a part of a folder's name, and the policy."""
    evaluator = run.evaluator
    for path, section, field in (
        ("run.evaluator", evaluator, "name"),
        ("run.early_stopping", run.early_stopping, "source"),
        ("run.plateau", run.plateau, "source"),
    ):
        name = getattr(section, field)
        if name and not _NAME.fullmatch(name):
            yield Invalid(path, section, field, _NAMED)
    if evaluator.policy not in POLICIES:
        meant = spelling.did_you_mean(evaluator.policy, POLICIES)
        yield Invalid("run.evaluator", evaluator, "policy", f"must be 'latest' or 'every'{meant}")


def _give_up(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    rule, path = experiment.run.evaluator.give_up, "run.evaluator.give_up"
    if rule is None:
        return
    if wrong := functions.mistake(rule):
        yield Invalid(path, rule, "name", wrong)
    elif experiment.trainer.continuous_eval_timeout is None:
        needs = "has no effect with TrainerConfig.continuous_eval_timeout = None: it waits for ever"
        yield Invalid(path, rule, "name", needs)


def _sets(run: RunConfig) -> Iterator[Invalid]:
    names: set[str] = set()
    prefixes: set[str] = set()
    for index, one in enumerate(run.evaluation_sets):
        path = f"run.evaluation_sets[{index}]"
        yield from _outside(path, one, _SET_BOUNDS)
        if one.examples and one.share != 1:
            yield Invalid(
                path, one, "examples", f"leaves no room for share = {one.share}: give one"
            )
        prefix = one.prefix or f"{one.name}/"
        if not _NAME.fullmatch(one.name):
            yield Invalid(path, one, "name", _NAMED)
        elif prefix == TEST:
            yield Invalid(path, one, "name", "leaves 'test/', as of the test at the end")
        elif one.name in names:
            yield Invalid(path, one, "name", "names another set, too")
        elif prefix in prefixes:
            yield Invalid(path, one, "prefix", f"leaves {prefix!r}, as of another set")
        names.add(one.name)
        prefixes.add(prefix)


def _groups(run: RunConfig) -> Iterator[Invalid]:
    names: set[str] = set()
    for index, one in enumerate(run.variable_groups):
        path = f"run.variable_groups[{index}]"
        yield from _outside(path, one, {"rate_scale": _SIZE})
        if not _NAME.fullmatch(one.name):
            yield Invalid(path, one, "name", _NAMED)
        elif one.name in names:
            yield Invalid(path, one, "name", "names another group, too")
        names.add(one.name)
        if wrong := _pattern(one.pattern):
            yield Invalid(path, one, "pattern", wrong)
        if one.initializer and not _initializes(one.initializer):
            meant = spelling.did_you_mean(one.initializer, dir(tf_keras.initializers))
            yield Invalid(
                path, one, "initializer", f"must name one of tf_keras.initializers{meant}"
            )
        if one.rate_scale == 1 and not one.initializer:
            yield Invalid(path, one, "pattern", "has no effect without rate_scale or initializer")


def _pattern(pattern: str) -> str:
    """What is wrong with a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"must be a regular expression: {error}"
    return "" if pattern else "must be given"


def _initializes(name: str) -> bool:
    try:
        return isinstance(tf_keras.initializers.get(name), tf_keras.initializers.Initializer)
    except ValueError:
        return False


def _evaluated(run: RunConfig) -> Iterator[tuple[str, base_config.Config]]:
    """The sections that have data of their own."""
    for index, one in enumerate(run.evaluation_sets):
        yield f"run.evaluation_sets[{index}]", one
    if run.test.data is not None:
        yield "run.test", run.test


def _data(path: str, section: base_config.Config, *, evaluates: bool) -> Iterator[Invalid]:
    data, path = section.data, f"{path}.data"
    if evaluates and data.global_batch_size < 1:
        yield Invalid(path, data, "global_batch_size", "must be 1 or more")
    if data.is_training:
        yield Invalid(path, data, "is_training", "must be False: these data are evaluated")
    if drops_remainder(data):
        needs = "has no effect: every example counts; leave it out"
        yield Invalid(path, data, "drop_remainder", needs)


def _without_effect(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Values that were given and that nothing reads."""
    run = experiment.run
    for name in ("early_stopping", "plateau"):
        section = getattr(run, name)
        fields = () if _watches(section) else dataclasses.fields(section)
        for field in fields:
            follows = field.name == "from_step" and run.epochs.stopping_from
            if getattr(section, field.name) != field.default and not follows:
                needs = f"has no effect without {type(section).__name__}.higher or lower"
                yield Invalid(f"run.{name}", section, field.name, needs)
    if run.epochs.stopping_from and not _watches(run.early_stopping):
        needs = "has no effect without EarlyStoppingConfig.higher or lower"
        yield Invalid("run.epochs", run.epochs, "stopping_from", needs)
    in_epochs = [field for field in epochs.given(experiment) if not field.is_share]
    if run.epochs.examples and not in_epochs:
        needs = "has no effect: nothing is given in epochs"
        yield Invalid("run.epochs", run.epochs, "examples", needs)
    if run.summary_seconds and not run.tensorboard:
        needs = "has no effect with RunConfig.tensorboard = False"
        yield Invalid("run", run, "summary_seconds", needs)
    yield from _without_best(experiment)
    if run.test.last and run.test.data is None:
        yield Invalid("run.test", run.test, "last", "has no effect without TestConfig.data")


def _without_best(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """What was given for best checkpoints of which none is kept."""
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
    """Whether evaluation data are to lose their last batch, other than by official's default."""
    return bool(getattr(data, "drop_remainder", False)) and not type(data).drop_remainder


def _watches(section: Any) -> bool:
    """Whether a section names a metric."""
    return bool(section.higher or section.lower)
