"""The inner loop: training steps in one graph, and the brake that ends it."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Brake:
    """Ends a loop in a graph. Create it outside the strategy's scope.

    Attributes:
        length: The number of steps in a loop.
        free: Cleared by `halt`, from any thread.
        sound: Cleared by a step whose loss is not finite or exceeds its bound.
    """

    def __init__(self) -> None:
        with tf.device("cpu:0"):
            self.length = tf.Variable(0, trainable=False, name="length")
            self.free = tf.Variable(True, trainable=False, name="free")
            self.sound = tf.Variable(True, trainable=False, name="sound")

    def halt(self) -> None:
        """Ends the loop after the current step."""
        self.free.assign(False)

    def released(self) -> tf.Tensor:
        """Whether training may continue."""
        return self.sound & self.free


def whole_loop(
    draw: Callable[[], Any], step: Callable[[Any], tf.Tensor], brake: Brake
) -> tf.Tensor:
    """Runs exactly `brake.length` steps in any case, like the other workers.

    Args:
        draw: Returns the next batch, as for `loop`.
        step: Trains on a batch, as for `loop`.
        brake: Has the length.

    Returns:
        The number, from 1, of the first step whose loss was not sound, or 0. An int32.
    """

    def turn(done: tf.Tensor, broke: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.name_scope(""):
            sound = step(draw())
        return done + 1, tf.where(sound | (broke > 0), broke, done + 1)

    start, length = (tf.constant(0), tf.constant(0)), tf.identity(brake.length)
    _, broke = tf.while_loop(lambda *_: True, turn, start, maximum_iterations=length)
    return broke


def loop(draw: Callable[[], Any], step: Callable[[Any], tf.Tensor], brake: Brake) -> tf.Tensor:
    """Runs `brake.length` steps, or fewer if the brake ends them, in a graph without AutoGraph.

    (Drawing a batch while a step runs gains nothing on a busy CPU.)

    Args:
        draw: Returns the next batch.
        step: Trains on a batch. Returns whether its loss is sound.
        brake: Ends the loop.

    Returns:
        `brake.sound` at the end.
    """

    def goes_on(sound: tf.Tensor) -> tf.Tensor:
        return sound & brake.free

    def turn(_: tf.Tensor) -> tuple[tf.Tensor]:
        with tf.name_scope(""):  # else traced names begin with "while/"
            return (step(draw()),)

    start, length = tf.identity(brake.sound), tf.identity(brake.length)
    (sound,) = tf.while_loop(goes_on, turn, (start,), maximum_iterations=length)
    brake.sound.assign(sound)
    return sound
