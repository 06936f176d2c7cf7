"""Turns callbacks of Keras's `fit` into settings of the run where these have the same effect.

A run repeats its settings when it is resumed. The other callbacks are called as in Keras, see
`runner.command.called_callbacks`.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tf_keras

from runner.command import fit_files
from runner.core import console, schedule
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.models import compiled_optimizer

_ONCE = ("EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler")  # a run has one of each
_HIGHER = ("acc", "accuracy", "auc", "precision", "recall", "f1_score", "iou", "r2_score")
_LIBRARIES = ("keras", "tf_keras")
_MOST_RATES = 50  # a schedule in the graph compares each step with each boundary


class Plan(NamedTuple):
    """The run that the callbacks belong to.

    Attributes:
        evaluates: Whether it has validation data.
        interval: The steps of an epoch.
        epochs: The number of epochs, rounded up.
        optimizer: The compiled optimizer, or None.
    """

    evaluates: bool
    interval: schedule.Interval
    epochs: int
    optimizer: Any


@dataclasses.dataclass
class Converted:
    """The settings that callbacks became.

    Attributes:
        params: Bindings.
        rate: Bindings of the learning rate, which replace those of the compiled optimizer.
        bests: Metrics that decide which weights are the best, and whether higher is better.
        restores_best: Whether the model gets the best weights in the end.
        profile_steps: The steps to profile.
        models: The files to write the model to in the end.
        tables: The files to write the history to in the end.
        called: The callbacks to call, as in Keras.
    """

    params: list[str] = dataclasses.field(default_factory=list)
    rate: list[str] = dataclasses.field(default_factory=list)
    bests: list[tuple[str, bool]] = dataclasses.field(default_factory=list)
    restores_best: bool = False
    profile_steps: tuple[int, int] | None = None
    models: list[fit_files.ModelFile] = dataclasses.field(default_factory=list)
    tables: list[fit_files.Table] = dataclasses.field(default_factory=list)
    called: list[Any] = dataclasses.field(default_factory=list)

    def bindings(self) -> list[str]:
        """Returns all bindings except `rate`."""
        if not self.bests:
            return self.params
        (name, higher), *more = dict.fromkeys(self.bests)
        found = [
            *self.params,
            f"TrainerConfig.best_checkpoint_eval_metric = {name!r}",
            f"TrainerConfig.best_checkpoint_metric_comp = {'higher' if higher else 'lower'!r}",
        ]
        for side in (True, False):
            if names := tuple(name for name, higher in more if higher is side):
                found.append(f"RetentionConfig.{'higher' if side else 'lower'} = {names!r}")
        return found


class _Done(NamedTuple):
    """How a callback was converted, for the log.

    Attributes:
        became: Its settings, or what the runner does in its place.
        left_out: Its arguments that have no effect.
    """

    became: Sequence[str]
    left_out: Sequence[str] = ()


class _NoEquivalentError(Exception):
    """A callback has no equivalent for the reason given, and is called."""


def convert(callbacks: Any, plan: Plan) -> Converted:
    """Converts callbacks, and prints a line for each of Keras's.

    Args:
        callbacks: The argument of `fit`: a list of callbacks of tf_keras or Keras 3, or one.
        plan: The run.

    Raises:
        ConfigError: one is not a callback, or has values that a run cannot have.
    """
    made, seen = Converted(), set()
    for callback in _listed(callbacks):
        name = type(callback).__name__
        function = _SETTINGS.get(name) if _is_of_keras(callback) else None
        if function is None:
            made.called.append(callback)
            continue
        try:
            if name in _ONCE and name in seen:
                raise _NoEquivalentError(f"a run has the settings of one {name}")
            done = function(callback, plan, made)
            seen.add(name)
            console.say(f"callbacks: {name} became {', '.join(done.became)}{_without(done)}")
        except _NoEquivalentError as why:
            made.called.append(_directed(callback))
            console.say(f"callbacks: {name} is called as in Keras, because {why}")
    return made


def _listed(given: Any) -> list[Any]:
    """The callbacks one by one.

    Raises:
        ConfigError: one is something else.
    """
    given = getattr(given, "callbacks", given)  # of a CallbackList
    found = list(given) if isinstance(given, list | tuple) else [given]
    for callback in found:
        if inspect.isclass(callback) or not hasattr(callback, "set_model"):
            name = getattr(callback, "__name__", type(callback).__name__)
            instead = f"{name}()" if inspect.isclass(callback) else f"train_actions=[{name}]"
            raise ConfigError(
                f"runner.fit: callbacks: expected objects of Keras's Callback, got {name}. "
                f"Did you mean {instead}?"
            )
    return found


def _is_of_keras(callback: Any) -> bool:
    """Whether its class is Keras's own rather than derived from it."""
    return type(callback).__module__.partition(".")[0] in _LIBRARIES


def _without(done: _Done) -> str:
    return f"; without effect: {', '.join(done.left_out)}" if done.left_out else ""


def _early_stopping(callback: Any, plan: Plan, made: Converted) -> _Done:
    metric, higher = _watched(callback, plan)
    if callback.baseline is not None:
        raise _NoEquivalentError(f"no setting is like baseline={callback.baseline!r}")
    found = [
        f"EarlyStoppingConfig.{'higher' if higher else 'lower'} = ({metric!r},)",
        f"EarlyStoppingConfig.patience = {max(callback.patience, 1)}",
    ]
    if callback.min_delta:
        found.append(f"EarlyStoppingConfig.min_delta = {_plain(abs(callback.min_delta))}")
    start = getattr(callback, "start_from_epoch", 0)
    first = schedule.multiple(start + 1, plan.interval)  # Keras counts epochs from 0
    if start:
        found.append(f"EarlyStoppingConfig.from_step = {first}")
    made.params += found
    if not callback.restore_best_weights:
        return _Done(found)
    made.restores_best = True
    made.bests.insert(0, (metric, higher))
    if start:
        made.params.append(f"RetentionConfig.from_step = {first}")
    return _Done([*found, "the best weights in the model"])


def _reduce_on_plateau(callback: Any, plan: Plan, made: Converted) -> _Done:
    metric, higher = _watched(callback, plan)
    found = [
        f"PlateauConfig.{'higher' if higher else 'lower'} = ({metric!r},)",
        f"PlateauConfig.factor = {_plain(callback.factor)}",
        f"PlateauConfig.tolerance = {max(callback.patience, 1)}",
        f"PlateauConfig.min_delta = {_plain(abs(callback.min_delta))}",
    ]
    if callback.cooldown > 1:  # Keras already counts the last evaluation of a cooldown
        found.append(f"PlateauConfig.cooldown = {callback.cooldown - 1}")
    if callback.min_lr:
        found.append(f"PlateauConfig.floor = {_plain(callback.min_lr)}")
    made.params += found
    return _Done(found)


def _model_checkpoint(callback: Any, plan: Plan, made: Converted) -> _Done:
    found, left_out, best = [], [], None
    if getattr(callback, "initial_value_threshold", None) is not None:
        left_out.append(f"initial_value_threshold={callback.initial_value_threshold}")
    if isinstance(callback.save_freq, int):
        found += [
            f"TrainerConfig.checkpoint_interval = {callback.save_freq}",
            "EpochsConfig.checkpoint_interval = 0",
        ]
    made.params += found
    kept = "checkpoints in model_dir"
    if callback.save_best_only and plan.evaluates:
        try:
            metric, higher = _watched(callback, plan)
            best = (metric, higher)
            made.bests.append(best)
            kept = f"checkpoints in model_dir, the best by {metric} ({_side(higher)} is better)"
        except _NoEquivalentError:
            left_out.append(f"monitor={callback.monitor!r} (no validation metric)")
    became, path = [kept, *found[:1]], str(callback.filepath)
    if "{" in path:  # a file for each epoch
        left_out.append(f"filepath={path!r}")
    else:
        made.models.append(fit_files.ModelFile(path, callback.save_weights_only, best))
        became.append(f"{path} (written when the run has ended)")
    return _Done(became, left_out)


def _learning_rate_scheduler(callback: Any, plan: Plan, made: Converted) -> _Done:
    if plan.optimizer is None:
        raise _NoEquivalentError("the model is compiled without an optimizer")
    given = compiled_optimizer.rate(plan.optimizer)
    if given["learning_rate.type"] != "constant":
        raise ConfigError(
            "runner.fit: LearningRateScheduler needs an optimizer with a constant learning rate, "
            "not with a schedule: remove one of them"
        )
    rates = _rates(callback.schedule, given["learning_rate.constant.learning_rate"], plan.epochs)
    changes = [n for n in range(1, len(rates)) if rates[n] != rates[n - 1]]
    if len(changes) > _MOST_RATES:
        made.called.append(_Rates(rates))
        return _Done([f"{len(changes) + 1} learning rates, computed in advance"])
    values: dict[str, Any]
    if not changes:
        values = {
            "learning_rate.type": "constant",
            "learning_rate.constant.learning_rate": rates[0],
        }
        became = f"ConstantLrConfig.learning_rate = {rates[0]}"
    else:
        # The first step of an epoch has the new rate, and a boundary itself the one before it.
        boundaries = [schedule.multiple(n, plan.interval) - 1 for n in changes]
        values = {
            "learning_rate.type": "stepwise",
            "learning_rate.stepwise.boundaries": boundaries,
            "learning_rate.stepwise.values": [rates[0], *(rates[n] for n in changes)],
        }
        became = f"StepwiseLrConfig with {len(changes) + 1} rates, computed in advance"
    made.rate += compiled_optimizer.as_gin(values)
    return _Done([became])


class _Rates(tf_keras.callbacks.Callback):
    """Sets the learning rate of each epoch."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self._rates = rates

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the rate."""
        del logs
        self.model.optimizer.learning_rate = self._rates[epoch]


def _rates(function: Callable[..., Any], rate: float, epochs: int) -> list[float]:
    """The learning rate of each epoch.

    Raises:
        _NoEquivalentError: the function cannot be called in advance.
    """
    takes_rate = _takes_two(function)
    rates: list[float] = []
    for epoch in range(epochs):
        try:
            rate = float(function(epoch, rate) if takes_rate else function(epoch))
        except Exception as error:  # the user's code may raise anything
            raise _NoEquivalentError(
                f"its function cannot be called before training: {error!r}"
            ) from error
        rates.append(rate)
    return rates


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(0, 0.1)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _tensorboard(callback: Any, plan: Plan, made: Converted) -> _Done:
    del plan
    left_out = [f"log_dir={str(callback.log_dir)!r}"]
    for name in ("histogram_freq", "embeddings_freq", "write_images"):
        if getattr(callback, name, 0):
            left_out.append(f"{name}={getattr(callback, name)!r}")
    if isinstance(callback.update_freq, int) and callback.update_freq > 1:
        left_out.append(f"update_freq={callback.update_freq} (TrainerConfig.summary_interval)")
    became = ["the events in model_dir"]
    first, last = keras_internals.profiled_batches(callback)
    if last and last >= first > 0:
        made.profile_steps = (first, last)
        became.append(f"profile_steps = ({first}, {last})")
    return _Done(became, left_out)


def _csv_logger(callback: Any, plan: Plan, made: Converted) -> _Done:
    del plan
    path = str(callback.filename)
    made.tables.append(fit_files.Table(path, callback.sep))
    made.params.append("RunConfig.loggers = ('csv',)")
    return _Done(
        ["RunConfig.loggers = ('csv',)", f"{path} (written when the run has ended)"],
        ["append=True"] if callback.append else [],
    )


def _always(what: str) -> Callable[[Any, Plan, Converted], _Done]:
    return lambda *_: _Done([what])


_SETTINGS: dict[str, Callable[[Any, Plan, Converted], _Done]] = {
    "EarlyStopping": _early_stopping,
    "ReduceLROnPlateau": _reduce_on_plateau,
    "ModelCheckpoint": _model_checkpoint,
    "LearningRateScheduler": _learning_rate_scheduler,
    "TensorBoard": _tensorboard,
    "CSVLogger": _csv_logger,
    "TerminateOnNaN": _always("the check that every loss is finite, which each run makes"),
    "BackupAndRestore": _always("the checkpoints of the run: repeating the call resumes it"),
    "ProgbarLogger": _always("the progress on stderr"),
}


def _watched(callback: Any, plan: Plan) -> tuple[str, bool]:
    """The runner's name of the metric that a callback monitors, and whether higher is better.

    Raises:
        _NoEquivalentError: no evaluation has it.
    """
    name = callback.monitor
    if not name.startswith("val_") or not plan.evaluates:
        has = "is not a validation metric" if plan.evaluates else "has no validation data"
        raise _NoEquivalentError(f"monitor={name!r} {has}")
    metric = name.removeprefix("val_")
    return ("validation_loss" if metric == "loss" else metric), _is_higher(callback)


def _is_higher(callback: Any) -> bool:
    """Whether a callback considers higher values of its metric better."""
    mode = getattr(callback, "mode", "auto")
    if mode in ("min", "max"):
        return bool(mode == "max")
    chosen = getattr(getattr(callback, "monitor_op", None), "__name__", "")
    if chosen in ("greater", "less"):
        return bool(chosen == "greater")
    return bool(callback.monitor.lower().endswith(_HIGHER))


def _directed(callback: Any) -> Any:
    """The callback with its `mode` chosen, which Keras 3 infers from a compiled model."""
    if getattr(callback, "mode", "") == "auto" and hasattr(callback, "monitor"):
        callback.mode = "max" if _is_higher(callback) else "min"
    return callback


def _side(higher: bool) -> str:
    return "higher" if higher else "lower"


def _plain(value: Any) -> float:
    return float(value)
