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

    def __init__(self, numbers, chance, places=("state",), only=""):
        self._numbers, self._chance = frozenset(numbers), chance
        self._places, self._only = places, only
        self._count = self._execution = 0
        self._place, self._armed, self._variable = "", "", ""
        self._lock = threading.Lock()
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
        variables = [
            each
            for each in rechecks._variables
            if each.shape.num_elements() and self._only in each.name
        ]

        def execute():
            with tf.control_dependencies([tf.numpy_function(self._begin, [], [])]):
                result = step()
            chosen = tf.numpy_function(lambda: self._chosen(variables), [], tf.int64)
            for number, variable in enumerate(variables):
                value = variable.read_value()
                flipped = tf.numpy_function(
                    self._flipped_if, [chosen == number, value], value.dtype
                )
                variable.assign(tf.ensure_shape(flipped, value.shape))
            return result

        result, counts = whole(rechecks, execute)
        with tf.control_dependencies([tf.numpy_function(self._end, [counts], [])]):
            return result, tf.identity(counts)

    def _begin(self):
        """Before each of the two executions of a step."""
        if self._execution == 0:
            is_struck = self._count in self._numbers
            self._count += 1
            self._place = self._chance.choice(self._places) if is_struck else ""
            self._struck = self._chance.choice((1, 2))
            self._variable = ""
        self._execution += 1
        self._armed = self._place if self._execution == self._struck else ""

    def _chosen(self, variables):
        """The number of the variable to flip a bit in after an execution, or -1."""
        is_struck, self._armed = self._armed == "state", ""
        if not is_struck:
            return np.int64(-1)
        number = self._chance.randrange(len(variables))
        self._variable = variables[number].name.partition(":")[0]
        return np.int64(number)

    def _flipped_if(self, is_struck, value):
        return self._flipped(value) if is_struck else value

    def _end(self, counts):
        """After both executions."""
        if self._place:
            self.done.append(Flip(self._place, self._variable, bool(counts.any())))
        self._execution = 0

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
