"""Ranges and combinations that the values of an experiment must keep to."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import tf_keras
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof
from official.modeling.optimization import optimizer_factory

from runner.configuration import epochs, official_validation, run_validation, sections
from runner.configuration.run_validation import Invalid
from runner.core import spelling

_COUNTS = (
    "summary_interval",
    "validation_interval",
    "max_to_keep",
)
_COMPUTED_WITH = (
    "learning_rate",
    "initial_learning_rate",
    "boundaries",
    "values",
    "decay_rate",
    "warmup_steps",
)


def problems(
    experiment: cfg.ExperimentConfig,
    origins: Mapping[str, str],
    *,
    trains: bool,
    evaluates: bool,
    given_only: bool = False,
) -> list[str]:
    """A line for each value that is out of its range, with the place where it was given, if it was.

    Args:
        experiment: All values.
        origins: By path (`trainer.train_steps`), the place where a value was given.
        trains: Whether the mode trains, so that what only training needs must be there.
        evaluates: Whether the mode evaluates.
        given_only: Leave out what is only missing: where a name is misspelt, one line is enough.
    """
    # One that was made in Python may be for a task that batches by itself, as official's mock does.
    loaded = "_origins" in vars(experiment)
    rows = [
        *_trainer(experiment.trainer, trains=trains),
        *(_data(experiment.task, trains=trains, evaluates=evaluates) if loaded else ()),
        *(
            official_validation.problems(experiment, trains=trains, evaluates=evaluates)
            if loaded
            else ()
        ),
        *_choices(experiment, trains=trains),
        *(_schedules(experiment.trainer) if trains else ()),
        *_combinations(experiment),
        *run_validation.problems(experiment, evaluates=evaluates, given_only=given_only),
    ]
    in_epochs = set() if not given_only else epochs.steps_given(experiment)
    rows = [row for row in rows if f"{row.path}.{row.field}" not in in_epochs]
    places = [(row, origins.get(f"{row.path}.{row.field}")) for row in rows]
    lines = [_line(row, place) for row, place in places if place or not given_only]
    if type(experiment.task) is cfg.TaskConfig and not given_only:
        lines.insert(0, "no task is set; a file needs: Experiment.task = @MyTaskConfig()")
    return lines


def _trainer(trainer: cfg.TrainerConfig, *, trains: bool) -> Iterator[Invalid]:
    def invalid(field: str, needs: str) -> Invalid:
        return Invalid("trainer", trainer, field, needs)

    for name in _COUNTS:
        if not _positive(getattr(trainer, name)):
            yield invalid(name, "must be 1 or more")
    if trainer.checkpoint_interval != -1 and not _positive(trainer.checkpoint_interval):
        yield invalid("checkpoint_interval", "must be 1 or more, or -1 for the last step alone")
    if trainer.steps_per_loop is None or trainer.steps_per_loop < 0:
        yield invalid("steps_per_loop", "must be 1 or more, or 0 for loops of about a second")
    if trains and not _positive(trainer.train_steps):
        yield invalid("train_steps", "must be 1 or more to train")
    if trainer.validation_steps != -1 and not _positive(trainer.validation_steps):
        yield invalid("validation_steps", "must be 1 or more, or -1 for all the data")
    timeout = trainer.continuous_eval_timeout
    if timeout is not None and not _positive(timeout):
        yield invalid("continuous_eval_timeout", "must be above 0, or None to wait without end")
    order = ("higher", "lower")
    if trainer.best_checkpoint_metric_comp not in order:
        meant = spelling.did_you_mean(str(trainer.best_checkpoint_metric_comp), order)
        yield invalid("best_checkpoint_metric_comp", f"must be 'higher' or 'lower'{meant}")
    if trainer.best_checkpoint_export_subdir and not trainer.best_checkpoint_eval_metric:
        needs = "has no effect without TrainerConfig.best_checkpoint_eval_metric"
        yield invalid("best_checkpoint_export_subdir", needs)


def _data(task: cfg.TaskConfig, *, trains: bool, evaluates: bool) -> Iterator[Invalid]:
    for name, used in (("train_data", trains), ("validation_data", evaluates)):
        data = getattr(task, name, None)
        if used and not _positive(getattr(data, "global_batch_size", 1)):
            yield Invalid(f"task.{name}", data, "global_batch_size", "must be 1 or more")


def _combinations(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Values that cannot be had together."""
    trainer, runtime = experiment.trainer, experiment.runtime
    for part in ("train", "eval"):
        loop, function = f"{part}_tf_while_loop", f"{part}_tf_function"
        if getattr(trainer, loop) and not getattr(trainer, function):
            needs = f"needs {loop} = False: a loop in a graph is a function"
            yield Invalid("trainer", trainer, function, needs)
    if trainer.optimizer_config.ema is not None and runtime.mixed_precision_dtype == "float16":
        needs = "does not work with OptimizationConfig.ema in official's optimizers; use 'bfloat16'"
        yield Invalid("runtime", runtime, "mixed_precision_dtype", needs)
    kind = runtime.distribution_strategy
    if runtime.tpu and kind != "tpu":
        needs = f"has no effect with RuntimeConfig.distribution_strategy = {kind!r}; 'tpu' uses it"
        yield Invalid("runtime", runtime, "tpu", needs)
    if experiment.run.logical_cpus > 1 and kind != "mirrored":
        needs = f"has no effect with RuntimeConfig.distribution_strategy = {kind!r}, but 'mirrored'"
        yield Invalid("run", experiment.run, "logical_cpus", needs)
    yield from _clipping(trainer)
    whole = "task.validation_data"
    data = getattr(experiment.task, "validation_data", None)
    if run_validation.drops_remainder(data):
        needs = "has no effect: the whole validation set counts; leave it out"
        yield Invalid(whole, data, "drop_remainder", needs)


def _choices(experiment: cfg.ExperimentConfig, *, trains: bool) -> Iterator[Invalid]:
    """Sections that choose one of their fields by its name in `type`."""
    optimization = "trainer.optimizer_config"
    required = (f"{optimization}.optimizer", f"{optimization}.learning_rate") if trains else ()
    for path, section in sections.walk(experiment):
        if isinstance(section, oneof.OneOfConfig) and (section.type or path in required):
            known = sorted(set(vars(section)) - {"type", *section.RESERVED_ATTR})
            if section.type not in known:
                meant = spelling.did_you_mean(section.type or "", known)
                yield Invalid(path, section, "type", f"must be one of {', '.join(known)}{meant}")
    options = experiment.trainer.optimizer_config
    optimizer, ema = options.optimizer, options.ema
    kind = optimizer_factory.LEGACY_OPTIMIZERS_CLS.get(optimizer.type)
    if isinstance(kind, str):
        needs = "is named by tf-models-official, but has no implementation there"
        yield Invalid(f"{optimization}.optimizer", optimizer, "type", needs)
    elif ema is not None and kind and not issubclass(kind, tf_keras.optimizers.legacy.Optimizer):
        needs = "does not work with OptimizationConfig.ema, which wraps Keras's old optimizers"
        yield Invalid(f"{optimization}.optimizer", optimizer, "type", needs)


def _clipping(trainer: cfg.TrainerConfig) -> Iterator[Invalid]:
    """Two ways of clipping by norm, of which Keras takes one; official gives some a default."""
    for path, section in _chosen(trainer, "optimizer"):
        norm, other = getattr(section, "clipnorm", None), getattr(section, "global_clipnorm", None)
        if norm is not None and other is not None:
            needs = (
                f"cannot be combined with global_clipnorm = {other}: give one, None for the other"
            )
            yield Invalid(path, section, "clipnorm", needs)


def _schedules(trainer: cfg.TrainerConfig) -> Iterator[Invalid]:
    """What the chosen schedule and warm-up compute with, and official leaves empty."""
    chosen = [*_chosen(trainer, "learning_rate"), *_chosen(trainer, "warmup")]
    for path, section in chosen:
        *_, choice, kind = path.split(".")
        for field in _COMPUTED_WITH:
            if getattr(section, field, 0) is None:
                yield Invalid(path, section, field, f"must be given for {choice} {kind!r}")
        for field in epochs.DECAYS:
            if (getattr(section, field, 0) or 0) < 0:
                needs = "must be 1 or more, or 0 for the run's length"
                yield Invalid(path, section, field, needs)
        boundaries, values = getattr(section, "boundaries", None), getattr(section, "values", None)
        if boundaries and values:
            count = len(boundaries) + (kind == "stepwise")
            if len(values) != count:
                yield Invalid(path, section, "values", f"must be {count}, for {boundaries}")
            if any(low >= high for low, high in pairwise(boundaries)):
                yield Invalid(path, section, "boundaries", "must ascend")


def _chosen(trainer: cfg.TrainerConfig, choice: str) -> Iterator[tuple[str, base_config.Config]]:
    """The section that is chosen as the optimizer, the schedule or the warm-up, and its path."""
    options = getattr(trainer.optimizer_config, choice)
    section = getattr(options, options.type, None) if options.type else None
    if isinstance(section, base_config.Config):
        yield f"trainer.optimizer_config.{choice}.{options.type}", section


def _line(row: Invalid, place: str | None) -> str:
    """`digits.gin:7: trainer.steps_per_loop = 0; must be 1 or more`."""
    line = f"{row.path}.{row.field} = {getattr(row.section, row.field)!r}; {row.needs}"
    return f"{place}: {line}" if place else f"{line}; set {type(row.section).__name__}.{row.field}"


def _positive(value: Any) -> bool:
    return value is not None and value > 0
