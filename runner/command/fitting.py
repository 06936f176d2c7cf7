"""The implementation of `runner.fit`, which turns a Keras model and data in memory into a run."""

import contextlib
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from runner import config
from runner.command import (
    called_callbacks,
    execution,
    fit_arguments,
    fit_callbacks,
    fit_data,
    fit_files,
    fit_result,
    from_python,
    table,
)
from runner.configuration import task_contract
from runner.core import console, layout, schedule, signals
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
_BATCH_SIZE = 32  # in supervised.gin
_ANY_LOSS = "TrainerConfig.loss_upper_bound = 1e999"  # infinite: any finite loss, as in Keras
_FOLDS = re.compile(r"(SupervisedData|StudyConfig)\.folds\s*=\s*[1-9]")
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
        callbacks: The callbacks, some of them converted to settings.
        called: Those that are called during training.
    """

    experiment: config.Experiment
    given: sources.Given
    evaluates: bool
    model: Any
    callbacks: fit_callbacks.Converted
    called: called_callbacks.CalledCallbacks

    @property
    def mode(self) -> str:
        """The mode that trains."""
        return "train_and_eval" if self.evaluates else "train"


def fit(
    model: Any,
    data: fit_arguments.Data,
    model_dir: str | Path,
    *,
    lengths: fit_arguments.Lengths,
    keras: fit_arguments.OfKeras,
    compiled: dict[str, Any],
    gin_params: Sequence[str],
    options: dict[str, Any],
    restore_best: bool = False,
) -> fit_result.FitResult:
    """Implements `runner.fit`.

    Args:
        model: A Keras model, or a function that builds one.
        data: The data.
        model_dir: The run's directory.
        lengths: The length of the run.
        keras: Further arguments of Keras's `fit`.
        compiled: `loss`, `metrics` and `optimizer`. None keeps the model's own.
        gin_params: As for `runner.load`, applied after the bindings that the other arguments imply.
        options: Options of the mode, and actions.
        restore_best: Whether the model gets the weights of the best evaluation.
    """
    ready = prepared(
        model,
        data,
        model_dir,
        lengths=lengths,
        keras=keras,
        compiled=compiled,
        gin_params=gin_params,
        options=options,
    )
    with _shown(keras.verbose):
        outcome = started(ready, ready.mode, Path(model_dir), options)
    if ready.model is not None and outcome.evaluator is not None:
        _give_weights(ready, outcome, Path(model_dir), restore_best=restore_best)
    result = fit_result.FitResult(outcome.results, lengths._asdict())
    for table_file in ready.callbacks.tables:
        table_file.write(result)
    return result


def _give_weights(
    ready: Prepared, outcome: Outcome, model_dir: Path, *, restore_best: bool
) -> None:
    """Gives the user's model the trained weights, and writes the files that have them."""
    evaluator: Any = outcome.evaluator
    trained = getattr(evaluator.model, "network", evaluator.model)

    def give() -> None:
        if trained is not ready.model:
            copies.copy_weights(trained, ready.model)

    def give_best() -> None:
        if best := outcome.results.get("best"):
            evaluator.restore_weights(Path(model_dir, layout.BEST, f"ckpt-{best['step']}"))
            give()

    keras_optimizers.finalize(evaluator.optimizer, evaluator.model)
    give()
    converted = ready.callbacks
    chosen = converted.bests[0] if converted.bests else None
    fit_files.write_models(converted.models, ready.model, chosen, give_best)
    if restore_best or converted.restores_best:
        give_best()


def prepared(
    model: Any,
    data: fit_arguments.Data,
    model_dir: str | Path,
    *,
    lengths: fit_arguments.Lengths,
    keras: fit_arguments.OfKeras,
    compiled: Mapping[str, Any],
    gin_params: Sequence[str],
    options: Mapping[str, Any],
    **more: Any,
) -> Prepared:
    """Configures a run.

    Args:
        model: As for `fit`.
        data: As for `fit`. `examples.read` may have read them already.
        model_dir: The run's directory, or "" before it is known.
        lengths: As for `fit`.
        keras: As for `fit`.
        compiled: As for `fit`.
        gin_params: As for `fit`.
        options: As for `fit`.
        more: Further arguments of `config.load`.

    Raises:
        ConfigError: an argument or a value of the configuration is not valid.
    """
    folded = any(_FOLDS.search(each) for each in gin_params)
    model, made = _compiled(model, {k: v for k, v in compiled.items() if v is not None})
    train, validation = fit_data.read(data, keras, made)
    if folded and validation is not None:
        raise ConfigError(
            "runner.fit: with folds, a part of the training data is used for validation: omit the "
            "validation data"
        )
    evaluates = folded or validation is not None
    given = sources.Given(
        model=model,
        train=train,
        validation=validation,
        lasting=not options.get("dry_run"),
    )
    length = _length(train, lengths)
    optimizer = getattr(made, "optimizer", None)  # Keras 3 has none before `compile`
    plan = fit_callbacks.Plan(evaluates, length.interval, length.epochs, optimizer)
    converted = fit_callbacks.convert(keras.callbacks, plan)
    own = model if made is model else None
    called = called_callbacks.CalledCallbacks(converted.called, own)
    params = [
        *begun.bindings(model_dir),
        *_of_model(model, made, gin_params, converted.rate),
        *_of_data(given, lengths, gin_params),
        *_of_length(length, lengths.validation_freq, gin_params),
        _ANY_LOSS,
        *(_BEST if evaluates else ()),
        *keras.settings(),
        *converted.bindings(),
        *_of_steps(called.stepwise),
        *gin_params,
    ]
    if own is not None and not options.get("allow_config_change"):
        _check_model(own, Path(model_dir))
    both = {"trains": True, "evaluates": evaluates, **more}
    counts = length.end is None and not _sets(gin_params, "EpochsConfig.examples")
    if counts and _sets(gin_params, "SupervisedData.fold_group"):
        unsized = config.load([_GIN], [*params, "EpochsConfig.examples = 1"], **both)
        params += _of_groups(train, unsized.task.train_data)
    experiment = config.load([_GIN], params, **both)
    if own is not None and not copies.is_built(own) and copies.has_call(own):
        copies.build(own, examples.first(train))  # with random numbers of the caller, as in Keras
    return Prepared(experiment, given, evaluates, own, converted, called)


def started(ready: Prepared, mode: str, model_dir: Path, options: Mapping[str, Any]) -> Outcome:
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
    if ready.callbacks.profile_steps:
        own.setdefault("profile_steps", ready.callbacks.profile_steps)
    with signals.served() as stop, models.lent(ready.given.model):
        actions: dict[str, Any] = {name: [*own.pop(name, ())] for name in fit_arguments.ACTIONS}
        if ready.callbacks.called:
            actions["train_actions"].append(ready.called.after_loop)
            actions["eval_actions"].append(ready.called.after_evaluation)
            actions["watchers"] = [ready.called.open]
        call = Call(ready.experiment, model_dir, given=Given(task=task), stop=stop, **actions)
        chosen = from_python.options_of(table.modes()[mode], own)
        chosen.check(str(model_dir))
        outcome = execution.run(table.modes()[mode], call, chosen)
        ready.called.close()
    return outcome


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


def _of_model(model: Any, compiled: Any, own: Sequence[str], rate: Sequence[str]) -> Iterator[str]:
    """Yields the bindings for a model's optimizer, precision and fingerprint.

    Args:
        model: The model, or the function that builds it.
        compiled: A built model.
        own: The user's bindings.
        rate: Bindings that replace the compiled learning rate, or none.
    """
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
            yield from rate or compiled_optimizer.as_gin(compiled_optimizer.rate(optimizer))
        if "OptimizerConfig.type" not in set_by_user:
            averaged = _sets(own, "OptimizationConfig.ema")
            excluded = keras_internals.excluded_from_decay(optimizer, compiled)
            update = compiled_optimizer.update(optimizer, averaged=averaged, excluded=excluded)
            yield from compiled_optimizer.as_gin(update)
    mixed = {policy for policy in copies.policies(compiled) if policy.startswith("mixed_")}
    if mixed:
        yield f"RuntimeConfig.mixed_precision_dtype = {mixed.pop().removeprefix('mixed_')!r}"
    if getattr(compiled, "run_eagerly", False):
        yield "RuntimeConfig.run_eagerly = True"
    elif getattr(compiled, "jit_compile", False) is True:
        yield "RuntimeConfig.enable_xla = True"
    if compiled is model:
        yield f"SupervisedConfig.fingerprint = {copies.identity(model)!r}"


def _of_data(given: Any, lengths: fit_arguments.Lengths, own: Sequence[str]) -> Iterator[str]:
    """Yields the bindings that the data and their batches imply."""
    size = lengths.batch_size
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


def _of_groups(train: Any, data: Any) -> Iterator[str]:
    """Yields the binding for the number of training examples in a fold of groups."""
    chosen = examples.of_fold(train, data, "train")
    if isinstance(chosen, examples.Arrays):
        yield f"EpochsConfig.examples = {chosen.size}"


class _Length(NamedTuple):
    """How long a run is, and how long the epochs after which it evaluates and saves.

    Attributes:
        interval: The steps of an epoch.
        end: The steps of the run, or None if it is given as epochs of arrays.
        given: The number of epochs as given, or 0.
    """

    interval: schedule.Interval
    end: int | None
    given: float = 0

    @property
    def epochs(self) -> int:
        """The number of epochs, rounded up."""
        return math.ceil(self.given or (self.end or 0) / self.interval)


def _length(train: examples.Examples, lengths: fit_arguments.Lengths) -> _Length:
    """Derives the length of a run. An epoch is a tenth of a run of `train_steps`."""
    steps, epochs = lengths.train_steps, lengths.epochs or 0
    if steps is not None:
        return _Length(max(1, steps // 10), steps)
    if lengths.steps_per_epoch:
        return _Length(lengths.steps_per_epoch, round(epochs * lengths.steps_per_epoch))
    if isinstance(train, examples.Arrays):
        return _Length(Fraction(train.size, lengths.batch_size or _BATCH_SIZE), None, epochs)
    length = examples.length(train)
    if length < 1:
        raise ConfigError(
            "runner.fit: the number of batches in an epoch is not known: pass steps_per_epoch, or "
            "train_steps instead of epochs"
        )
    return _Length(length, round(epochs * length))


def _of_length(length: _Length, every: int, own: Sequence[str]) -> Iterator[str]:
    """Yields the bindings for a run's length and intervals, which must not contradict the user's.

    Args:
        length: The length.
        every: The number of epochs between evaluations.
        own: The user's bindings.
    """
    in_epochs = length.end is None
    if in_epochs:
        yield f"EpochsConfig.train = {length.given}"
    else:
        yield f"TrainerConfig.train_steps = {length.end}"
    for name, n in {"validation": every, "checkpoint": 1, "summary": 1}.items():
        steps, epochs = f"TrainerConfig.{name}_interval", f"EpochsConfig.{name}_interval"
        if _sets(own, steps):
            yield f"{epochs} = 0"
        elif in_epochs or _sets(own, epochs):
            yield f"{steps} = 0"
            yield f"{epochs} = {n}"
        else:
            yield f"{steps} = {n * length.interval}"


def _of_steps(stepwise: Sequence[str]) -> Iterator[str]:
    """Yields the binding for methods of callbacks that are called at each step."""
    if stepwise:
        console.say(
            f"callbacks: TrainerConfig.steps_per_loop = 1, because {', '.join(stepwise)} must be "
            "called at each step"
        )
        yield "TrainerConfig.steps_per_loop = 1"


def _shown(verbose: Any) -> contextlib.AbstractContextManager[None]:
    """A context in which progress is shown as for Keras's `verbose`."""
    if not verbose:
        return console.STDERR.without_progress()
    return contextlib.nullcontext()


def _check_end(validation: Any, own: Sequence[str]) -> None:
    if examples.length(validation) == -1 and not _sets(own, "TrainerConfig.validation_steps"):
        raise ConfigError(
            "runner.fit: the validation data are endless: remove repeat(), or set "
            "TrainerConfig.validation_steps, the number of batches, in gin_params"
        )


def _sets(params: Sequence[str], name: str) -> bool:
    return any(re.match(rf"\s*([\w.]+\.)?{re.escape(name)}\s*=", each) for each in params)
