"""Adafactor, which Model Garden's configuration names without an implementation.

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018. Model
Garden's fields and defaults are those of T5X and Optax, and this class follows their reading of the
paper. The learning rate is the scheduled one (not relative to the step), matrices are factored by
their two largest dimensions if both have `min_dim_size_to_factor`, and `beta1` averages updates.
"""

import contextlib
import copy
import dataclasses
import re
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling import optimization
from official.modeling.optimization import optimizer_factory
from official.modeling.optimization.configs import optimizer_config

_NAME = "runner_adafactor"  # Model Garden's factory has a placeholder under "adafactor"


@dataclasses.dataclass
class _Choice(optimization.OptimizerConfig):
    """Model Garden's choice of an optimizer, with the registered Adafactor as the chosen one."""

    type: str = _NAME
    runner_adafactor: optimizer_config.AdafactorConfig = dataclasses.field(
        default_factory=optimizer_config.AdafactorConfig
    )


class Adafactor(tf_keras.optimizers.legacy.Optimizer):
    """Adaptive learning rates from a row and a column of second moments for each matrix.

    Args:
        learning_rate: The learning rate, or its schedule.
        factored: Whether matrices have only a row and a column, instead of a moment per weight.
        multiply_by_parameter_scale: Whether a variable's root mean square (at least `epsilon2`)
            multiplies its learning rate.
        beta1: The decay of the mean of updates. None: no mean.
        decay_rate: Moments decay by 1 - t ** -decay_rate.
        step_offset: The step at which t starts.
        clipping_threshold: The largest root mean square of an update.
        min_dim_size_to_factor: The smallest dimension that is factored.
        epsilon1: Added to squared gradients.
        epsilon2: The smallest scale of a variable.
        weight_decay: Weights decay by this times the learning rate. None: no decay.
        include_in_weight_decay: A pattern in the names of variables that decay. None: all.
        name: The optimizer's name.
        **more: Arguments of all legacy optimizers, such as `clipnorm`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        *,
        factored: bool = True,
        multiply_by_parameter_scale: bool = True,
        beta1: float | None = None,
        decay_rate: float = 0.8,
        step_offset: int = 0,
        clipping_threshold: float = 1.0,
        min_dim_size_to_factor: int = 128,
        epsilon1: float = 1e-30,
        epsilon2: float = 1e-3,
        weight_decay: float | None = None,
        include_in_weight_decay: str | None = None,
        name: str = "Adafactor",
        **more: Any,
    ) -> None:
        super().__init__(name, **more)
        self._set_hyper("learning_rate", learning_rate)
        self._options: dict[str, Any] = {
            "factored": factored,
            "multiply_by_parameter_scale": multiply_by_parameter_scale,
            "beta1": beta1,
            "decay_rate": decay_rate,
            "step_offset": step_offset,
            "clipping_threshold": clipping_threshold,
            "min_dim_size_to_factor": min_dim_size_to_factor,
            "epsilon1": epsilon1,
            "epsilon2": epsilon2,
            "weight_decay": weight_decay,
            "include_in_weight_decay": include_in_weight_decay,
        }

    def get_config(self) -> dict[str, Any]:
        """The optimizer's Keras configuration."""
        rate = self._serialize_hyperparameter("learning_rate")
        return {**super().get_config(), "learning_rate": rate, **self._options}

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for variable in var_list:
            if self._options["beta1"] is not None:
                self.add_slot(variable, "m")
            if axes := self._axes(variable):
                for name, axis in zip(("row", "column"), axes, strict=True):
                    shape = [size for place, size in enumerate(variable.shape) if place != axis]
                    self.add_slot(variable, name, "zeros", shape)
            else:
                self.add_slot(variable, "v")

    def _axes(self, variable: tf.Variable) -> tuple[int, int] | None:
        """The two largest dimensions, averaged for a row and a column. None if not factored."""
        by_size = sorted(range(len(variable.shape)), key=lambda axis: variable.shape[axis])
        least = self._options["min_dim_size_to_factor"]
        if not self._options["factored"] or len(by_size) < 2:
            return None
        second, first = by_size[-2:]
        return (first, second) if variable.shape[second] >= least else None

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: Any) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        step = tf.maximum(self.iterations - self._options["step_offset"], 0)
        step = tf.cast(step + 1, var_dtype)
        apply_state[var_device, var_dtype]["decay"] = 1 - step ** -self._options["decay_rate"]

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None
    ) -> tf.Operation:
        return self._updated(grad, var, apply_state)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Any = None
    ) -> tf.Operation:
        dense = tf.scatter_nd(indices[:, tf.newaxis], grad, tf.shape(var, indices.dtype))
        return self._updated(dense, var, apply_state)

    def _updated(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any) -> tf.Operation:
        options, known = self._options, apply_state[var.device, var.dtype.base_dtype]
        rate, update = known["lr_t"], self._scaled(grad, var, known["decay"])
        update /= tf.maximum(1.0, _rms(update) / options["clipping_threshold"])
        if options["multiply_by_parameter_scale"]:
            update *= tf.maximum(_rms(var), options["epsilon2"])
        update *= rate
        if options["beta1"] is not None:
            update = _averaged(self.get_slot(var, "m"), update, options["beta1"])
        pattern = options["include_in_weight_decay"]
        if options["weight_decay"] and (pattern is None or re.search(pattern, var.name)):
            update += rate * options["weight_decay"] * var
        return var.assign_sub(update, use_locking=self._use_locking)

    def _scaled(self, grad: tf.Tensor, var: tf.Variable, decay: tf.Tensor) -> tf.Tensor:
        """The gradient divided by the root of its second moment."""
        square, axes = tf.square(grad) + self._options["epsilon1"], self._axes(var)
        if axes is None:
            return grad * tf.math.rsqrt(_averaged(self.get_slot(var, "v"), square, decay))
        row, column = (
            tf.expand_dims(
                _averaged(self.get_slot(var, name), tf.reduce_mean(square, axis), decay), axis
            )
            for name, axis in zip(("row", "column"), axes, strict=True)
        )
        mean = tf.reduce_mean(row, axes[1], keepdims=True)
        return grad * tf.math.rsqrt(row / mean) * tf.math.rsqrt(column)


def _averaged(slot: tf.Variable, value: tf.Tensor, decay: tf.Tensor | float) -> tf.Tensor:
    return slot.assign(decay * slot + (1 - decay) * value)


def _rms(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(x)))


def converted(options: optimization.OptimizationConfig) -> optimization.OptimizationConfig:
    """Options with which Model Garden's factory builds this optimizer, if they choose Adafactor."""
    optimizer = vars(options)["optimizer"]
    if vars(optimizer)["type"] != "adafactor":
        return options
    choice = _Choice()
    choice.__dict__[_NAME] = vars(optimizer)["adafactor"]  # not a copy, as it may count its reads
    made = copy.copy(options)
    made.__dict__["optimizer"] = choice
    return made


def _register() -> None:
    for is_legacy in (True, False):
        with contextlib.suppress(ValueError):  # it is already registered
            optimizer_factory.register_optimizer_cls(_NAME, Adafactor, is_legacy)


_register()
