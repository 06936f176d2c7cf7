"""Groups of variables, by their names, with a learning rate and an initializer of their own."""

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from runner.core import spelling
from runner.errors import ConfigError
from runner.optimizers import optimizer as optimizers
from runner.run_config import VariableGroupConfig

_REPLICA = re.compile(r"(/replica_\d+)?:\d+$")


def name_of(variable: tf.Variable) -> str:
    """A variable's name as patterns see it, the same on every replica: `dense/kernel`."""
    return _REPLICA.sub("", variable.name)


def group_of(name: str, groups: Sequence[VariableGroupConfig]) -> VariableGroupConfig | None:
    """The first group whose pattern is found in a variable's name."""
    return next((group for group in groups if re.search(group.pattern, name)), None)


def check(groups: Sequence[VariableGroupConfig], model: tf_keras.Model) -> None:
    """Raises ConfigError where a group is empty, with names that its pattern could have found."""
    names = [name_of(variable) for variable in model.trainable_variables]
    taken = {group.name for name in names if (group := group_of(name, groups))}
    for group in groups:
        if group.name in taken:
            continue
        if any(re.search(group.pattern, name) for name in names):
            why = "finds only variables of the groups before it"
        else:
            parts = {part for name in names for part in name.split("/")}
            meant = spelling.did_you_mean(group.pattern, [*names, *sorted(parts)])
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            why = f"finds no trainable variable of the model, which has {shown}{meant}"
        raise ConfigError(
            f"VariableGroupConfig.pattern = {group.pattern!r} of the group {group.name!r} {why}"
        )


def initialize(groups: Sequence[VariableGroupConfig], model: tf_keras.Model, seed: int) -> None:
    """Gives the variables of groups that have an initializer their first values.

    Args:
        groups: Of those without an initializer, variables stay as they are.
        model: Built, in the strategy's scope.
        seed: A value depends on it and on the variable's place in the model alone; not on its name,
            since Keras numbers layers on from one model to the next.

    Raises:
        ConfigError: an initializer does not suit the shape of a variable.
    """
    for place, variable in enumerate(model.trainable_variables):
        name = name_of(variable)
        group = group_of(name, groups)
        if group is None or not group.initializer:
            continue
        made = _seeded(group.initializer, zlib.crc32(f"{seed}/{place}".encode()) >> 1)
        try:
            variable.assign(made(variable.shape, dtype=variable.dtype))
        except ValueError as error:
            raise ConfigError(
                f"VariableGroupConfig.initializer = {group.initializer!r} of the group "
                f"{group.name!r} does not suit {name} of shape {variable.shape}: {error}"
            ) from error


def scale_rates(
    optimizer: tf_keras.optimizers.Optimizer, groups: Sequence[VariableGroupConfig]
) -> None:
    """Makes an optimizer apply each group's own rate, whatever kind it is of.

    The rule of the update is the optimizer's own, with the scaled rate in the place of the rate, so
    that what it decays by the rate is scaled, too. Its variables stay the same.

    Args:
        optimizer: What official's factory built; no step has been traced.
        groups: A variable of none of them keeps the rate in force.
    """
    if all(group.rate_scale == 1 for group in groups):
        return
    scales = [(re.compile(group.pattern), group.rate_scale) for group in groups]

    def scale_of(variable: tf.Variable) -> float:
        name = name_of(variable)
        return next((scale for pattern, scale in scales if pattern.search(name)), 1.0)

    legacy = optimizers.is_legacy(optimizer)
    optimizers.extend(optimizer, _Legacy if legacy else _New, scale_of=staticmethod(scale_of))


class _Legacy(tf_keras.optimizers.legacy.Optimizer):
    """Prepares what updates have in common once for each scale; updates pick theirs."""

    scale_of: Any  # Callable[[tf.Variable], float]
    _factor = 1.0

    def _decayed_lr(self, var_dtype: tf.DType) -> tf.Tensor:
        rate = super()._decayed_lr(var_dtype)
        return rate if self._factor == 1 else rate * tf.cast(self._factor, var_dtype)

    def _prepare(self, var_list: Sequence[tf.Variable]) -> dict[float, Any]:
        prepared = {}
        for scale, members in _by_scale(var_list, self.scale_of).items():
            self._factor = scale
            prepared[scale] = super()._prepare(members)
        self._factor = 1.0
        return prepared

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any) -> Any:
        return super()._resource_apply_dense(grad, var, apply_state=apply_state[self.scale_of(var)])

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Any
    ) -> Any:
        return super()._resource_apply_sparse_duplicate_indices(
            grad, var, indices, apply_state=apply_state[self.scale_of(var)]
        )


class _New(tf_keras.optimizers.Optimizer):
    """Shows an update the rate of the variable that it is about."""

    scale_of: Any  # Callable[[tf.Variable], float]
    _factor = 1.0

    @tf_keras.optimizers.Optimizer.learning_rate.getter
    def learning_rate(self) -> tf.Variable | tf.Tensor:
        """The rate in force; within an update, that of the variable's group."""
        rate = super().learning_rate
        return rate if self._factor == 1 else rate * self._factor

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Applies a gradient to a variable."""
        self._factor = self.scale_of(variable)
        super().update_step(gradient, variable)
        self._factor = 1.0

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        # Replicas wait for each other within, so the factor must not depend on who was here before.
        for scale, members in _by_scale(variables, self.scale_of).items():
            self._factor = scale
            super()._apply_weight_decay(members)
        self._factor = 1.0


def _by_scale(variables: Iterable[tf.Variable], scale_of: Any) -> dict[float, list[tf.Variable]]:
    found: dict[float, list[tf.Variable]] = {}
    for variable in variables:
        found.setdefault(scale_of(variable), []).append(variable)
    return found


def _seeded(initializer: str, seed: int) -> tf_keras.initializers.Initializer:
    made = tf_keras.initializers.get(initializer)
    config = made.get_config()
    return type(made).from_config(config | {"seed": seed}) if "seed" in config else made
