"""Optimizers and schedules of either Keras that Model Garden's configuration does not have.

The configuration holds them as Keras serializes them, as JSON. An optimizer of Keras 3 that
tf_keras has too, with the same arguments, becomes that of tf_keras. Another one updates the weights
itself.
"""

import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions
from official.modeling import optimization, performance
from official.modeling.optimization import optimizer_factory

from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals

KIND = "keras"
"""The type of such an optimizer in `OptimizerConfig`, and of such a schedule in `LrConfig`."""

_RATE = "learning_rate"
_EXCLUDED = "exclude_from_weight_decay"
# They do not affect the update. `loss_scale_factor` only undoes what Keras 3 does to the loss.
_ASIDE = ("name", "is_legacy_optimizer", "jit_compile", "loss_scale_factor")


def serialized(given: Any, excluded: Sequence[str] = ()) -> str:
    """An optimizer, without its learning rate, or a schedule, as JSON.

    Args:
        given: An object of either Keras, or of a class that derives from one.
        excluded: The names of variables that an optimizer excludes from weight decay.
    """
    try:
        config = dict(given.get_config())
    except NotImplementedError:  # a schedule of the user's without get_config
        config = {}
    config.pop(_RATE, None)
    for name in _ASIDE:
        config.pop(name, None)
    kind = type(given)
    stored = {"module": kind.__module__, "class_name": kind.__qualname__, "config": config}
    if excluded:
        stored[_EXCLUDED] = list(excluded)
    return json.dumps(stored, sort_keys=True, default=_plain)


def is_used(options: optimization.OptimizationConfig) -> bool:
    """Whether a configuration names such an optimizer or schedule."""
    return KIND in (options.optimizer.type, options.learning_rate.type)


def build(
    task: base_task.Task, config: config_definitions.ExperimentConfig
) -> tf_keras.optimizers.Optimizer:
    """The optimizer that `config` describes, with a loss scale if float16 needs one.

    Args:
        task: If it has `own_optimizer`, the compiled optimizer of its model, the classes in that
            need not be importable. `own_variables` are those of a Keras 3 model.
        config: Its optimizer or its schedule is of the type `KIND`.

    Raises:
        ConfigError: a class cannot be imported.
    """
    options, own = config.trainer.optimizer_config, getattr(task, "own_optimizer", None)
    rate = _rate(options, own)
    if options.optimizer.type == KIND:
        if options.ema is not None:
            raise ConfigError(
                "OptimizationConfig.ema works with the optimizers of Model Garden only; with "
                "another one, set use_ema in its constructor, or choose an OptimizerConfig.type"
            )
        variables = getattr(task, "own_variables", ())
        made = _optimizer(options.optimizer.keras.serialized, own, rate, variables)
    else:
        factory = optimization.OptimizerFactory(_constant(options))
        made = factory.build_optimizer(rate)
    runtime = config.runtime
    use_float16 = runtime.mixed_precision_dtype == "float16"
    return performance.configure_optimizer(
        made, use_float16=use_float16, loss_scale=runtime.loss_scale
    )


def finalize(optimizer: Any, model: tf_keras.Model) -> None:
    """Gives a trained model the averages of its weights, if the optimizer has `use_ema`.

    Keras does so at the end of `fit`.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(inner, "use_ema", False):
        inner.finalize_variable_values(model.trainable_variables)


class Keras3Optimizer(tf_keras.optimizers.Optimizer):
    """An optimizer of Keras 3 that updates TensorFlow's variables.

    Args:
        optimizer: Created in the strategy's scope, with a constant learning rate.
        learning_rate: The rate, or a schedule of tf_keras.
        variables: The variables of Keras 3 behind TensorFlow's, whose names some optimizers use.
    """

    def __init__(self, optimizer: Any, learning_rate: Any, variables: Sequence[Any]) -> None:
        super().__init__(name=optimizer.name, jit_compile=False)
        self._inner = lambda: optimizer  # hidden, or tf_keras would track it
        keras_internals.build_learning_rate(self, learning_rate)
        self._iterations = keras3_internals.iterations(optimizer)
        self._values: list[tf.Variable] = []
        named = {each.value.ref(): each for each in variables}
        self._named = lambda each: named.get(each.ref(), each) if hasattr(each, "ref") else each

    @property
    def use_ema(self) -> bool:
        """Whether it averages weights."""
        return bool(self._inner().use_ema)

    @use_ema.setter
    def use_ema(self, _: bool) -> None:  # tf_keras sets it in its constructor
        pass

    @property
    def variables(self) -> Callable[[], list[tf.Variable]]:
        """Its state: counters, learning rates and slots."""
        return lambda: [*keras_internals.rate_variables(self), *self._values]

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates the slots of these variables."""
        if self._inner().built:
            return
        self._inner().build([self._named(each) for each in var_list])
        self._values = [each.value for each in self._inner().variables]

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None, **_: Any
    ) -> tf.Variable:
        """Updates the variables from their gradients in a replica, which are summed first."""
        del name
        pairs = [(grad, self._named(each)) for grad, each in grads_and_vars]
        with tf.init_scope():
            self.build([each for _, each in pairs])
        rate = keras_internals.current_learning_rate(self)
        keras3_internals.set_learning_rate(self._inner(), rate)
        self._inner().apply_gradients(pairs)
        return self._iterations

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Overwrites variables with their averages."""
        self._inner().finalize_variable_values([self._named(each) for each in var_list])

    def get_config(self) -> dict[str, Any]:
        """The configuration of the optimizer of Keras 3."""
        config: dict[str, Any] = self._inner().get_config()
        return config


def _rate(options: optimization.OptimizationConfig, own: Any) -> Any:
    """The learning rate or its schedule, after the warm-up that is configured."""
    if options.learning_rate.type != KIND:
        return optimization.OptimizerFactory(_known(options)).build_learning_rate()
    stored = json.loads(options.learning_rate.keras.serialized)
    schedule = keras_internals.schedule(own) if own is not None else None
    if schedule is None or type(schedule).__qualname__ != stored["class_name"]:
        schedule = _class(stored, "schedules")(**stored["config"])
    if not isinstance(schedule, tf_keras.optimizers.schedules.LearningRateSchedule):
        schedule = _Schedule(schedule)
    kind = options.warmup.type
    if kind is None:
        return schedule
    return optimizer_factory.WARMUP_CLS[kind](schedule, **options.warmup.get().as_dict())


def _optimizer(text: str, own: Any, rate: Any, variables: Sequence[Any]) -> Any:
    stored = json.loads(text)
    kind: Any = type(own) if type(own).__qualname__ == stored["class_name"] else None
    kind = kind or _class(stored, "")
    config = {name: value for name, value in stored["config"].items() if name not in _ASIDE}
    excluded = stored.get(_EXCLUDED, ())
    if issubclass(kind, tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer):
        made = kind.from_config({**config, _RATE: rate})
    elif (same := _same_in_tf_keras(kind, config)) is not None:
        made = same.from_config({**_set(config), _RATE: rate})
    else:
        made = Keras3Optimizer(kind.from_config({**config, _RATE: 0.0}), rate, variables)
    if excluded:
        inner = made._inner() if isinstance(made, Keras3Optimizer) else made
        inner.exclude_from_weight_decay(var_names=[f"^{name}$" for name in excluded])
    return made


def _same_in_tf_keras(kind: type, config: Mapping[str, Any]) -> Any:
    """The class of tf_keras that updates as one of Keras 3 does with these arguments, or None."""
    found = getattr(tf_keras.optimizers, kind.__name__, None)
    if found is None or not kind.__module__.startswith("keras."):
        return None
    # Its averages start at the initial weights, and its Nadam counts each variable as a step.
    if config.get("use_ema") or found is tf_keras.optimizers.Nadam:
        return None
    known = found().get_config()
    return found if _set(config).keys() <= known.keys() else None


def _set(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Keras 3 that are set, or that tf_keras has as well."""
    accumulation = "gradient_accumulation_steps"  # Keras 3 only
    return {name: value for name, value in config.items() if name != accumulation or value}


def _class(stored: Mapping[str, Any], what: str) -> Any:
    """Imports a class: of a library, or of the user's module or script.

    Raises:
        ConfigError: it cannot be imported.
    """
    place = f"{stored['module']}.{stored['class_name']}"
    try:
        module = importlib.import_module(stored["module"])
        return functools.reduce(getattr, stored["class_name"].split("."), module)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the model's optimizer needs {what and 'the schedule '}{place}, which cannot be "
            "imported: define it at the top of a module, or run the script that trains the model"
        ) from error


class _Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of Keras 3, for optimizers of tf_keras."""

    def __init__(self, schedule: Any) -> None:
        super().__init__()
        self._schedule = schedule

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate at `step`."""
        return tf.cast(self._schedule(step), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """The schedule's Keras configuration."""
        return {"schedule": self._schedule}


def _known(options: optimization.OptimizationConfig) -> optimization.OptimizationConfig:
    """The options with an optimizer that Model Garden's factory knows."""
    return _replaced(options, "optimizer", "sgd")


def _constant(options: optimization.OptimizationConfig) -> optimization.OptimizationConfig:
    """The options with a learning rate that Model Garden's factory knows."""
    return _replaced(options, "learning_rate", "constant")


def _replaced(
    options: optimization.OptimizationConfig, choice: str, kind: str
) -> optimization.OptimizationConfig:
    values = options.as_dict()
    if values[choice]["type"] == KIND:
        values[choice]["type"] = kind
    for name in ("optimizer", "learning_rate"):
        values[name].pop(KIND, None)
    return optimization.OptimizationConfig(values)


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if hasattr(value, "item") else str(value)
