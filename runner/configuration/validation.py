"""Validates the ranges and combinations of an experiment's values."""

import glob
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import tf_keras
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof
from official.modeling.optimization import optimizer_factory

from runner.configuration import (
    epochs,
    fields,
    multitask,
    origins,
    run_validation,
    sections,
)
from runner.configuration.origins import Invalid
from runner.core import spelling
from runner.errors import ConfigError

_OFFICIAL_TASKS = ("official.vision.", "official.nlp.")
_MADE_UP = "dummy"  # with this input_path, official.nlp's tasks generate data
_RATES = ("learning_rate", "initial_learning_rate", "end_learning_rate", "warmup_learning_rate")
_COMPUTED_WITH = (
    "learning_rate",
    "initial_learning_rate",
    "boundaries",
    "values",
    "decay_rate",
    "warmup_steps",
)


def problems(
    experiment: cfg.ExperimentConfig, *, trains: bool, evaluates: bool, given_only: bool = False
) -> list[str]:
    """Returns a line for each invalid value, with the location where it was set, if any.

    Args:
        experiment: All values.
        trains: Whether the mode trains, so that values needed for training are required.
        evaluates: Whether the mode evaluates.
        given_only: Do not report missing values. If a name is misspelt, one line is enough.
    """
    places = origins.of(experiment)
    rows = [*_ranges(experiment), *_trainer(experiment.trainer, trains=trains)]
    # An experiment made in Python may have a task that does its own batching, like Model Garden's
    # mock.
    if origins.loading(experiment):
        rows += _data(experiment.task, trains=trains, evaluates=evaluates)
    rows += _choices(experiment, trains=trains)
    rows += _schedules(experiment.trainer) if trains else ()
    rows += _combinations(experiment)
    rows += multitask.problems(experiment)
    rows += run_validation.problems(experiment, evaluates=evaluates, given_only=given_only)
    if given_only:
        in_epochs = epochs.steps_given(experiment)
        rows = [row for row in rows if row.origin in places and row.origin not in in_epochs]
    lines = [row.line(places.get(row.origin)) for row in rows]
    if not given_only:
        lines += of_data(experiment, trains=trains, evaluates=evaluates)
    if type(experiment.task) is cfg.TaskConfig and not given_only:
        lines.insert(0, "no task is set; a file needs: Experiment.task = @MyTaskConfig()")
    return lines


def of_section(section: base_config.Config, places: Mapping[str, str]) -> list[str]:
    """Returns a line for each value that its field does not allow, with its location."""
    name = type(section).__name__
    rows = _ranges(section, name)
    return [row.line(places.get(row.origin.removeprefix(f"{name}."))) for row in rows]


def of_data(experiment: cfg.ExperimentConfig, *, trains: bool, evaluates: bool) -> list[str]:
    """Returns the mistakes that the `check` methods of the data's configurations report."""
    task, run = experiment.task, experiment.run
    used = [getattr(task, "train_data", None)] if trains else []
    if evaluates:
        sets = [each.data for each in run.evaluation_sets]
        used += [getattr(task, "validation_data", None), *sets, run.test.data]
    found = []
    for data in used:
        try:
            getattr(data, "check", lambda: None)()
        except ConfigError as error:
            found.append(str(error))
    return found


def _ranges(root: base_config.Config, where: str = "") -> Iterator[Invalid]:
    """Yields values that their field does not allow."""
    for path, section in sections.walk(root, where):
        for name, value in vars(section).items():
            allowed = fields.of(type(section), name).allowed
            if allowed and (mistake := allowed.mistake(value)):
                yield Invalid(path, section, name, mistake)


def _trainer(trainer: cfg.TrainerConfig, *, trains: bool) -> Iterator[Invalid]:
    if trains and not _positive(trainer.train_steps):
        yield Invalid("trainer", trainer, "train_steps", "must be 1 or more to train")
    if trainer.best_checkpoint_export_subdir and not trainer.best_checkpoint_eval_metric:
        needs = "has no effect without TrainerConfig.best_checkpoint_eval_metric"
        yield Invalid("trainer", trainer, "best_checkpoint_export_subdir", needs)


def _data(task: cfg.TaskConfig, *, trains: bool, evaluates: bool) -> Iterator[Invalid]:
    """Yields missing values of the data and of Model Garden's tasks, but not of users' tasks."""
    is_official = type(task).__module__.startswith(_OFFICIAL_TASKS)
    for name, used in (("train_data", trains), ("validation_data", evaluates)):
        data = getattr(task, name, None)
        if used and not _positive(getattr(data, "global_batch_size", 1)):
            yield Invalid(f"task.{name}", data, "global_batch_size", "must be 1 or more")
        if (
            used
            and is_official
            and isinstance(data, cfg.DataConfig)
            and not _is_made_up(task, data)
        ):
            yield from _source(f"task.{name}", data)
    model = getattr(task, "model", None)
    if is_official and getattr(model, "num_classes", None) == 0:
        yield Invalid("task.model", model, "num_classes", "must be 1 or more")


def _is_made_up(task: cfg.TaskConfig, data: cfg.DataConfig) -> bool:
    return data.input_path == _MADE_UP and type(task).__module__.startswith(_OFFICIAL_TASKS[1])


def _source(path: str, data: cfg.DataConfig) -> Iterator[Invalid]:
    """Checks the data's source, as far as this machine can tell."""
    if data.tfds_name:
        if not data.tfds_split:
            yield Invalid(path, data, "tfds_split", "must be given with tfds_name")
    elif not data.input_path:
        yield Invalid(path, data, "input_path", "must be given, or tfds_name and tfds_split")
    elif isinstance(data.input_path, str):
        for pattern in data.input_path.split(","):
            if "://" not in pattern and not glob.glob(pattern):  # noqa: PTH207, may be absolute
                yield Invalid(path, data, "input_path", f"there is no file {pattern}")


def _combinations(experiment: cfg.ExperimentConfig) -> Iterator[Invalid]:
    """Yields values that exclude each other."""
    trainer, runtime = experiment.trainer, experiment.runtime
    for part in ("train", "eval"):
        loop, function = f"{part}_tf_while_loop", f"{part}_tf_function"
        if getattr(trainer, loop) and not getattr(trainer, function):
            needs = f"needs {loop} = False, because a loop in a graph is a function"
            yield Invalid("trainer", trainer, function, needs)
    if trainer.optimizer_config.ema is not None and runtime.mixed_precision_dtype == "float16":
        needs = (
            "does not work with OptimizationConfig.ema in Model Garden's optimizers; use 'bfloat16'"
        )
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
        needs = "has no effect, because the whole validation set is evaluated; remove it"
        yield Invalid(whole, data, "drop_remainder", needs)


def _choices(experiment: cfg.ExperimentConfig, *, trains: bool) -> Iterator[Invalid]:
    """Checks configs that select one of their fields by name in `type`."""
    optimization = "trainer.optimizer_config"
    brought = getattr(experiment.task, "brings_optimizer", False)  # see runs.compiled_model
    required = (
        (f"{optimization}.optimizer", f"{optimization}.learning_rate")
        if trains and not brought
        else ()
    )
    for path, section in sections.walk(experiment):
        if isinstance(section, oneof.OneOfConfig) and (section.type or path in required):
            known = sorted(set(vars(section)) - {"type", *section.RESERVED_ATTR})
            if section.type not in known:
                meant = spelling.did_you_mean(section.type or "", known)
                yield Invalid(path, section, "type", f"must be one of {', '.join(known)}{meant}")
    options = experiment.trainer.optimizer_config
    optimizer, ema = options.optimizer, options.ema
    kind = optimizer_factory.LEGACY_OPTIMIZERS_CLS.get(optimizer.type)
    if optimizer.type == "adafactor":  # that of `runner.models.adafactor`
        return
    if isinstance(kind, str):
        needs = "is named by tf-models-official, but has no implementation there"
        yield Invalid(f"{optimization}.optimizer", optimizer, "type", needs)
    elif ema is not None and kind and not issubclass(kind, tf_keras.optimizers.legacy.Optimizer):
        needs = "does not work with OptimizationConfig.ema, which wraps Keras's old optimizers"
        yield Invalid(f"{optimization}.optimizer", optimizer, "type", needs)


def _clipping(trainer: cfg.TrainerConfig) -> Iterator[Invalid]:
    """Yields optimizers that clip by two kinds of norm, because Keras supports only one.

    Model Garden sets a default for some optimizers.
    """
    for path, section in _chosen(trainer, "optimizer"):
        norm, other = getattr(section, "clipnorm", None), getattr(section, "global_clipnorm", None)
        if norm is not None and other is not None:
            needs = (
                f"cannot be combined with global_clipnorm = {other}: set one, and the other to None"
            )
            yield Invalid(path, section, "clipnorm", needs)


def _schedules(trainer: cfg.TrainerConfig) -> Iterator[Invalid]:
    """Yields values that the chosen schedule and warm-up need and Model Garden leaves empty."""
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
        for field in _RATES:
            if (getattr(section, field, 0) or 0) < 0:
                yield Invalid(path, section, field, "must be 0 or more")
        boundaries, values = getattr(section, "boundaries", None), getattr(section, "values", None)
        if boundaries and values:
            count = len(boundaries) + (kind == "stepwise")
            if len(values) != count:
                yield Invalid(path, section, "values", f"must be {count}, for {boundaries}")
            if any(low >= high for low, high in pairwise(boundaries)):
                yield Invalid(path, section, "boundaries", "must ascend")


def _chosen(trainer: cfg.TrainerConfig, choice: str) -> Iterator[tuple[str, base_config.Config]]:
    """Yields the selected config of the optimizer, schedule or warm-up, and its path."""
    options = getattr(trainer.optimizer_config, choice)
    section = getattr(options, options.type, None) if options.type else None
    if isinstance(section, base_config.Config):
        yield f"trainer.optimizer_config.{choice}.{options.type}", section


def _positive(value: Any) -> bool:
    return value is not None and value > 0
