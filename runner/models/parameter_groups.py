"""Groups of variables, chosen by name.

A group is frozen, or has its own learning rate, weight decay or initializer.
"""

import re
import zlib
from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from runner.core import spelling, text
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.models import optimizer as optimizers
from runner.run_config import VariableGroupConfig


def name_of(variable: tf.Variable) -> str:
    """A variable's name for patterns, which is the same on every replica: `dense/kernel`."""
    return tf_internals.replica_name(variable.name)


def group_of(name: str, groups: Sequence[VariableGroupConfig]) -> VariableGroupConfig | None:
    """The first group whose pattern matches somewhere in a variable's name."""
    return next((group for group in groups if re.search(group.pattern, name)), None)


def freeze(groups: Sequence[VariableGroupConfig], model: tf_keras.Model) -> list[tf.Variable]:
    """Freezes groups that are not trainable. Call it before the optimizer sees the variables.

    Returns:
        The variables that were trainable before, in order. Empty if no group is frozen.

    Raises:
        ConfigError: the model has no variables yet, or nothing is left to train.
    """
    if all(group.trainable for group in groups):
        return []
    if not getattr(model, "built", True):
        raise ConfigError(
            "VariableGroupConfig.trainable = False requires that build_model returns a built model"
        )
    before = list(model.trainable_variables)
    keras_internals.freeze(model, lambda variable: _is_frozen(variable, groups))
    if before and not model.trainable_variables:
        names = ", ".join(repr(group.name) for group in groups if not group.trainable)
        raise ConfigError(
            f"VariableGroupConfig.trainable = False of {names} leaves nothing to train: all "
            f"{len(before)} trainable variables are frozen"
        )
    return before


def check_frozen(groups: Sequence[VariableGroupConfig], model: tf_keras.Model) -> None:
    """Raises ConfigError if a variable to be frozen is trainable."""
    for variable in model.trainable_variables:
        if _is_frozen(variable, groups):
            raise ConfigError(
                f"VariableGroupConfig.trainable = False: {name_of(variable)} cannot be frozen; it "
                "must be in a Keras layer, of a model that build_model returns built"
            )


def _is_frozen(variable: tf.Variable, groups: Sequence[VariableGroupConfig]) -> bool:
    group = group_of(name_of(variable), groups)
    return group is not None and not group.trainable


def check(groups: Sequence[VariableGroupConfig], variables: Sequence[tf.Variable]) -> None:
    """Raises ConfigError if a group has none of the variables, suggesting similar names."""
    names = [name_of(variable) for variable in variables]
    taken = {group.name for name in names if (group := group_of(name, groups))}
    for group in groups:
        if group.name in taken:
            continue
        if any(re.search(group.pattern, name) for name in names):
            why = "matches only variables of the groups before it"
        else:
            parts = {part for name in names for part in name.split("/")}
            meant = spelling.did_you_mean(group.pattern, [*names, *sorted(parts)])
            there = text.some(names, 8)
            why = f"matches no trainable variable of the model, which has {there}{meant}"
        raise ConfigError(
            f"VariableGroupConfig.pattern = {group.pattern!r} of the group {group.name!r} {why}"
        )


def initialize(
    groups: Sequence[VariableGroupConfig], variables: Sequence[tf.Variable], seed: int
) -> None:
    """Initializes the variables of groups that have an initializer.

    Args:
        groups: Groups without an initializer leave their variables unchanged.
        variables: The model's variables, frozen ones included, in the strategy's scope.
        seed: Values depend on it and on the variable's position, not on its name, because Keras
            continues to number layers from one model to the next.

    Raises:
        ConfigError: an initializer does not suit the shape of a variable.
    """
    for place, variable in enumerate(variables):
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


def change_updates(
    optimizer: tf_keras.optimizers.Optimizer, groups: Sequence[VariableGroupConfig]
) -> None:
    """Makes an optimizer of any kind apply each group's own learning rate and weight decay.

    Args:
        optimizer: Built by Model Garden's factory, before any step is traced.
        groups: A variable in none of them keeps the current learning rate.
    """
    if all(group.rate_scale == 1 and not group.weight_decay for group in groups):
        return

    def scale(variable: tf.Variable) -> float:
        group = group_of(name_of(variable), groups)
        return group.rate_scale if group else 1.0

    def decay(variable: tf.Variable) -> float:
        group = group_of(name_of(variable), groups)
        return group.weight_decay if group else 0.0

    keras_internals.change_updates(optimizers.innermost(optimizer), scale, decay)


def _seeded(initializer: str, seed: int) -> tf_keras.initializers.Initializer:
    made = tf_keras.initializers.get(initializer)
    config = made.get_config()
    return type(made).from_config(config | {"seed": seed}) if "seed" in config else made
