"""The implementation of `runner.fit`, which turns a Keras model and data in memory into a run."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import config
from runner.checkpoints import load_model
from runner.command import execution, fit_arguments, fit_result, from_python, table
from runner.configuration import task_contract
from runner.core import layout, signals
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.models import (
    compiled_optimizer,
    copies,
    differences,
    examples,
    keras_optimizers,
    models,
    sources,
)
from runner.run_directory import begun
from runner.runs.call import Call, Given, Outcome

_GIN = "supervised.gin"  # it names the task, which the runner does not import
_INTERVALS = ("validation", "checkpoint", "summary")
_BEST = (
    "TrainerConfig.best_checkpoint_eval_metric = 'validation_loss'",
    "TrainerConfig.best_checkpoint_metric_comp = 'lower'",
)


class Prepared(NamedTuple):
    """A run that is configured and can start.

    Attributes:
        experiment: Its configuration.
        given: The model and the data.
        evaluates: Whether it evaluates.
        model: The user's model, which receives the trained weights. None for a function.
    """

    experiment: config.Experiment
    given: sources.Given
    evaluates: bool
    model: Any


def fit(
    model: Any,
    train: Any,
    validation: Any,
    model_dir: str | Path,
    *,
    lengths: dict[str, Any],
    compiled: dict[str, Any],
    gin_params: Sequence[str],
    options: dict[str, Any],
    restore_best: bool = False,
) -> fit_result.FitResult:
    """Implements `runner.fit`.

    Args:
        model: A Keras model, or a function that builds one.
        train: The training data.
        validation: The evaluation data, or None.
        model_dir: The run's directory.
        lengths: `train_steps`, `epochs` and `batch_size`, as given.
        compiled: `loss`, `metrics` and `optimizer`. None keeps the model's own.
        gin_params: As for `runner.load`, applied after the bindings that the other arguments imply.
        options: Options of the mode, and actions.
        restore_best: Whether the model gets the weights of the best evaluation.
    """
    ready = prepared(
        model,
        train,
        validation,
        model_dir,
        lengths=lengths,
        compiled=compiled,
        gin_params=gin_params,
        options=options,
    )
    mode = "train_and_eval" if ready.evaluates else "train"
    outcome = started(ready, mode, Path(model_dir), options)
    if restore_best and outcome.results["best"]:
        if ready.model is not None:
            best = load_model.load(Path(model_dir), layout.BEST, ready.model)
            _give_weights(best, ready.model)
    elif ready.model is not None and outcome.evaluator is not None:
        trained = outcome.evaluator.model
        keras_optimizers.finalize(outcome.evaluator.optimizer, trained)
        _give_weights(getattr(trained, "network", trained), ready.model)
    return fit_result.FitResult(outcome.results, {**lengths, "restore_best": restore_best})


def _give_weights(trained: Any, model: Any) -> None:
    """Gives the caller's model the trained weights, unless it was trained itself."""
    if trained is not model:
        copies.copy_weights(trained, model)


def prepared(
    model: Any,
    train: Any,
    validation: Any,
    model_dir: str | Path,
    *,
    lengths: dict[str, Any],
    compiled: dict[str, Any],
    gin_params: Sequence[str],
    options: Mapping[str, Any],
    **more: Any,
) -> Prepared:
    """Configures a run.

    Args:
        model: As for `fit`.
        train: As for `fit`. `examples.read` may have read them already.
        validation: The same.
        model_dir: The run's directory, or "" before it is known.
        lengths: As for `fit`.
        compiled: As for `fit`.
        gin_params: As for `fit`.
        options: As for `fit`.
        more: Further arguments of `config.load`.

    Raises:
        ConfigError: an argument or a value of the configuration is not valid.
    """
    folded = any(re.search(r"SupervisedData\.folds\s*=\s*[1-9]", each) for each in gin_params)
    if folded and validation is not None:
        raise ConfigError(
            "runner.fit: with SupervisedData.folds, a part of the training data is used for "
            "validation: omit the validation data"
        )
    evaluates = folded or validation is not None
    model, made = _compiled(model, {k: v for k, v in compiled.items() if v is not None})
    given = sources.Given(
        model=model,
        train=read(train, "train"),
        validation=None if validation is None else read(validation, "validation"),
        lasting=not options.get("dry_run"),
    )
    params = [
        *begun.bindings(model_dir),
        *_of_model(model, made, gin_params),
        *_of_data(given, lengths, gin_params),
        *(_BEST if evaluates else ()),
        *gin_params,
    ]
    if made is model and not options.get("allow_config_change"):
        _check_model(model, Path(model_dir))
    experiment = config.load([_GIN], params, trains=True, evaluates=evaluates, **more)
    return Prepared(experiment, given, evaluates, model if made is model else None)


def read(data: Any, name: str) -> examples.Examples:
    """Reads the data of an argument, unless they have been read.

    Raises:
        ConfigError: a model cannot learn from them.
    """
    return data if isinstance(data, examples.Arrays) else examples.read(data, f"runner.fit: {name}")


def started(ready: Prepared, mode: str, model_dir: Path, options: dict[str, Any]) -> Outcome:
    """Runs a mode.

    Args:
        ready: The run.
        mode: The name of the mode.
        model_dir: The run's directory.
        options: Options of the mode, and actions.
    """
    task: Any = task_contract.build_task(ready.experiment.task, str(model_dir))
    task.given = ready.given
    own = dict(options)
    with signals.served() as stop, models.lent(ready.given.model):
        actions = {name: own.pop(name) for name in fit_arguments.ACTIONS if name in own}
        call = Call(ready.experiment, model_dir, given=Given(task=task), stop=stop, **actions)
        chosen = from_python.options_of(table.modes()[mode], own)
        chosen.check(str(model_dir))
        return execution.run(table.modes()[mode], call, chosen)


def _check_model(model: Any, model_dir: Path) -> None:
    """Checks that the run in a directory was trained with this model.

    Raises:
        ConfigError: if it was trained with another model.
    """
    path = model_dir / layout.MODEL
    text, _ = copies.text_or_reason(model)
    if text is None or not begun.has_checkpoints(model_dir) or not path.is_file():
        return
    before = path.read_text(encoding="utf-8")
    if not copies.has_model(before):
        return
    if copies.fingerprint(before) != copies.fingerprint(text):
        raise ConfigError(
            f"runner.fit: the model changed since the run in {model_dir} was trained: "
            f"{differences.between(before, text)}\n"
            "pass the same model again, or choose another {model_dir}; {allow_config_change} "
            "continues with the changed one, if its weights fit",
            model_dir=None,
            allow_config_change=True,
        )


def _compiled(model: Any, changed: dict[str, Any]) -> tuple[Any, Any]:
    """Compiles a model, or a function that builds one, and returns it with a built model."""
    if copies.is_model(model):
        copies.compile_with(model, changed)
        return model, model
    if not callable(model):
        copies.library(model, "runner.fit")

    @functools.wraps(model)
    def build() -> Any:
        made = model()
        copies.library(made, "runner.fit")
        copies.compile_with(made, changed)
        return made

    return build, build()


def _of_model(model: Any, compiled: Any, own: Sequence[str]) -> Iterator[str]:
    """Yields the bindings for a model's optimizer, precision and fingerprint."""
    copies.library(compiled, "runner.fit")
    set_by_user = {name for name in ("OptimizerConfig.type", "LrConfig.type") if _sets(own, name)}
    optimizer = getattr(compiled, "optimizer", None)
    if set_by_user != {"OptimizerConfig.type", "LrConfig.type"}:
        if optimizer is None:
            raise ConfigError(
                "runner.fit: the model has no optimizer: compile it, or set OptimizerConfig.type "
                "and LrConfig.type in gin_params"
            )
        if "LrConfig.type" not in set_by_user:
            yield from compiled_optimizer.as_gin(compiled_optimizer.rate(optimizer))
        if "OptimizerConfig.type" not in set_by_user:
            averaged = _sets(own, "OptimizationConfig.ema")
            excluded = keras_internals.excluded_from_decay(optimizer, compiled)
            update = compiled_optimizer.update(optimizer, averaged=averaged, excluded=excluded)
            yield from compiled_optimizer.as_gin(update)
    mixed = {policy for policy in copies.policies(compiled) if policy.startswith("mixed_")}
    if mixed:
        yield f"RuntimeConfig.mixed_precision_dtype = {mixed.pop().removeprefix('mixed_')!r}"
    if compiled is model:
        yield f"SupervisedConfig.fingerprint = {copies.identity(model)!r}"


def _of_data(given: Any, lengths: dict[str, Any], own: Sequence[str]) -> Iterator[str]:
    """Yields the bindings that the data and the training length imply."""
    steps, epochs, size = lengths["train_steps"], lengths["epochs"], lengths["batch_size"]
    if (steps is None) == (epochs is None):
        raise ConfigError("runner.fit: pass either train_steps or epochs")
    for part, found in (("train", given.train), ("validation", given.validation)):
        if found is None:
            continue
        streams = not isinstance(found, examples.Arrays)
        yield f"{part}/SupervisedData.fingerprint = {examples.fingerprint(found)!r}"
        if size or streams:
            yield f"{part}/SupervisedData.global_batch_size = {size or examples.batch_size(found)}"
        if streams and part == "validation":
            _check_end(found, own)
        if not streams and part == "train":  # for epochs
            yield f"{part}/SupervisedData.num_examples = {found.size}"
    if steps is not None:
        yield f"TrainerConfig.train_steps = {steps}"
        every = max(1, steps // 10)
        yield from (f"TrainerConfig.{each}_interval = {every}" for each in _INTERVALS)
    elif isinstance(given.train, examples.Arrays):
        yield f"EpochsConfig.train = {epochs}"
        yield from (f"EpochsConfig.{each}_interval = 1" for each in _INTERVALS)
        yield from (f"TrainerConfig.{each}_interval = 0" for each in _INTERVALS)
    else:
        length = int(given.train.cardinality())
        if length < 1:
            raise ConfigError(
                "runner.fit: the number of batches in the tf.data.Dataset is not known: pass "
                "train_steps instead of epochs"
            )
        yield f"TrainerConfig.train_steps = {epochs * length}"
        yield from (f"TrainerConfig.{each}_interval = {length}" for each in _INTERVALS)


def _check_end(validation: Any, own: Sequence[str]) -> None:
    if validation.cardinality() == -1 and not _sets(own, "TrainerConfig.validation_steps"):
        raise ConfigError(
            "runner.fit: the validation data are endless: remove repeat(), or set "
            "TrainerConfig.validation_steps, the number of batches, in gin_params"
        )


def _sets(params: Sequence[str], name: str) -> bool:
    return any(re.match(rf"\s*([\w.]+\.)?{re.escape(name)}\s*=", each) for each in params)
