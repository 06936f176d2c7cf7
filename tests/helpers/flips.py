"""Flips single bits of what a training step computes, in its first or in its second execution."""

import threading
from typing import NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
import tf_keras
import toy
from official.core import task_factory

from runner.training import recheck

PLACES = ("activations", "gradients", "state")


class Flip(NamedTuple):
    """A flip that was done.

    Attributes:
        place: One of `PLACES`.
        variable: The name of the variable, if it is one.
        is_found: Whether the executions of the step differed.
    """

    place: str
    variable: str
    is_found: bool


class Flips:
    """A context in which one bit is flipped in some of the repeated steps.

    Args:
        numbers: The repeated steps with a flip, counted from 0.
        chance: Draws the execution, the place and the bit.
        places: The places to draw from. All but `state` need a task with `Struck`.
        only: A part of the names of the variables to draw from.

    Attributes:
        done: The flips.
    """

    _armed = ""
    _lock = threading.Lock()

    def __init__(self, numbers, chance, places=("state",), only=""):
        self._numbers, self._chance = frozenset(numbers), chance
        self._places, self._only = places, only
        self._count = 0
        self.done = []

    def __enter__(self):
        whole = recheck.Recheck.run
        self._patch = mock.patch.object(
            recheck.Recheck, "run", lambda rechecks, step: self._run(whole, rechecks, step)
        )
        self._patch.start()
        Struck.flips = self
        return self

    def __exit__(self, *_):
        self._patch.stop()
        Struck.flips = None

    def strike(self, place, value):
        """`value`, with one flipped bit if it is its turn."""
        with self._lock:
            if self._armed != place:
                return value
            self._armed = ""
        return self._flipped(value)

    def _run(self, whole, rechecks, step):
        is_struck = self._count in self._numbers
        self._count += 1
        if not is_struck:
            return whole(rechecks, step)
        place, struck = self._chance.choice(self._places), ""
        turns = self._chance.sample((True, False), 2)

        def execute():
            nonlocal struck
            self._armed = place if turns.pop() else ""
            result = step()
            if self._armed == "state":
                struck = self._flip_state(rechecks._variables)
            self._armed = ""
            return result

        result, differences = whole(rechecks, execute)
        self.done.append(Flip(place, struck, bool(differences)))
        return result, differences

    def _flip_state(self, variables):
        variable = self._chance.choice(
            [each for each in variables if each.shape.num_elements() and self._only in each.name]
        )
        value = self._flipped(np.array(variable.read_value()))
        variable.assign(tf.constant(value, variable.dtype))
        return variable.name.partition(":")[0]

    def _flipped(self, value):
        changed = np.array(value, copy=True)
        flat = changed.reshape(-1)
        if flat.dtype == bool:
            flat[self._chance.randrange(flat.size)] ^= True
        else:
            raw = flat.view(np.uint8)
            raw[self._chance.randrange(raw.size)] ^= 1 << self._chance.randrange(8)
        return changed


@tf_keras.utils.register_keras_serializable("flips")
class Struck(tf_keras.layers.Layer):
    """Passes activations and gradients on, with a flipped bit if one is due."""

    flips = None

    def call(self, values):
        @tf.custom_gradient
        def pass_on(values):
            return _struck("activations", values), lambda grads: _struck("gradients", grads)

        return pass_on(values)


def _struck(place, values):
    def strike(array):
        return Struck.flips.strike(place, array) if Struck.flips else array

    result = tf.numpy_function(strike, [values], values.dtype)
    return tf.ensure_shape(result, values.shape)


class FlipsConfig(toy.ToyConfig):
    pass


@task_factory.register_task_cls(FlipsConfig)
class FlipsTask(toy.ToyTask):
    """The toy task, with a layer between its two that flips bits."""

    def build_model(self):
        points = tf_keras.Input((4,))
        x = Struck()(tf_keras.layers.Dense(8, activation="relu")(points))
        x = tf_keras.layers.Dropout(self.task_config.dropout)(x)
        return tf_keras.Model(points, tf_keras.layers.Dense(3, dtype="float32")(x))
