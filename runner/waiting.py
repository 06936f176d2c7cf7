"""How much of its time training waits for inputs, found by timing some of its steps.

The clock is Python's, called from the graph: TensorFlow's refuses to run where ops are
deterministic. That makes a short step longer, so most are not timed. Those that are have a loop of
their own: a switch in the one loop takes a tenth of a small network's step, used or not.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_FIRST = 10.0  # seconds from the start of training to the first sample, which takes a new graph
_EVERY = 10.0  # from the end of one sample to the next
_STEPS = 100  # of a sample
_MUCH = 0.1  # the share of waiting that is worth a word


class Waits:
    """Says which steps are to be timed, and what they tell.

    Attributes:
        share: Of the time of the last sample, the part that went in waiting; None before the first.

    Args:
        advice: What may help where training waits much.
    """

    def __init__(self, advice: str) -> None:
        self.share: float | None = None
        self._advice = advice
        self._told = False
        self._due: float | None = None
        self._left = 0  # steps of the present sample
        self._asked: list[float] = []
        self._came: list[float] = []

    def steps(self, most: int) -> int:
        """How many steps from here on are to be timed, at most `most`; mostly none."""
        now = time.perf_counter()
        if self._due is None:
            self._due = now + _FIRST
        if not self._left and now >= self._due:
            self._left, self._asked, self._came = _STEPS, [], []
        return min(most, self._left)

    def timed(self, draw: Callable[[], Any]) -> Any:
        """The batch that `draw` returns, timed."""
        with tf.control_dependencies([tf.numpy_function(self._asks, [], tf.int32)]):
            batch = draw()
        tensors = tf.nest.flatten(batch, expand_composites=True)
        with tf.control_dependencies([tensor for tensor in tensors if tf.is_tensor(tensor)]):
            tf.numpy_function(self._has, [], tf.int32)
        return batch

    def complaint(self) -> str | None:
        """Once, if training waits much: how much, and what may help."""
        if self._told or self.share is None or self.share <= _MUCH:
            return None
        self._told = True
        return f"training waits for its inputs {self.share:.0%} of the time: {self._advice}"

    def _asks(self) -> np.int32:
        self._asked.append(time.perf_counter())
        return np.int32(0)

    def _has(self) -> np.int32:
        self._came.append(time.perf_counter())
        self._left -= 1
        if self._left == 0:
            self._due = self._came[-1] + _EVERY
            self.share = self._waited()
        return np.int32(0)

    def _waited(self) -> float:
        """The share of the sample; at its start, buffers may be fuller than usual."""
        first = _STEPS // 4
        asked, came = self._asked[first + 1 :], self._came[first + 1 :]
        return (sum(came) - sum(asked)) / (came[-1] - self._came[first])
