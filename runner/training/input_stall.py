"""Input stall: the share of its time that training waits for inputs, from timing some steps.

The clock is Python's, called from the graph, because TensorFlow's clock does not run if ops must be
deterministic. It lengthens short steps, so only some steps are timed, in a separate loop. A switch
in a shared loop would cost a tenth of a small network's step.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_FIRST = 10.0  # seconds from the start of training to the first sample, which needs a new graph
_EVERY = 10.0  # seconds from the end of one sample to the next
_STEPS = 100  # steps in a sample
_MUCH = 0.1  # the share of waiting above which a warning is printed
_COSTLY = 60.0  # seconds that the whole run must lose for a warning
_IDLE = 0.2  # below this share of idle processor time, the machine is simply busy


class InputStall:
    """Chooses the steps to time, and evaluates their times.

    Attributes:
        share: The share of the last sample's time spent waiting. None before the first sample.

    Args:
        advice: Suggestions if training waits a lot.
        steps: The number of steps of the whole run.
    """

    def __init__(self, advice: str, steps: int) -> None:
        self.share: float | None = None
        self._advice = advice
        self._steps = steps
        self._told = False
        self._lost = 0.0  # seconds per step
        self._processors = processor_times()
        self._idle = 1.0
        self._due: float | None = None
        self._left = 0  # steps left in the current sample
        self._asked: list[float] = []
        self._came: list[float] = []

    def steps(self, most: int) -> int:
        """How many of the next steps to time, at most `most`. Usually none."""
        now = time.perf_counter()
        if self._due is None:
            self._due = now + _FIRST
        if not self._left and now >= self._due:
            self._left, self._asked, self._came = _STEPS, [], []
        return min(most, self._left)

    def timed(self, draw: Callable[[], Any]) -> Any:
        """Times `draw` and returns its batch."""
        with tf.control_dependencies([tf.numpy_function(self._asks, [], tf.int32)]):
            batch = draw()
        tensors = tf.nest.flatten(batch, expand_composites=True)
        with tf.control_dependencies([tensor for tensor in tensors if tf.is_tensor(tensor)]):
            tf.numpy_function(self._has, [], tf.int32)
        return batch

    def complaint(self) -> str | None:
        """Reports the waiting, and a suggestion, once if idle processors could avoid it."""
        lost = self._lost * self._steps
        if self._told or self.share is None or self.share <= _MUCH:
            return None
        if lost < _COSTLY or self._idle < _IDLE:
            return None
        self._told = True
        return (
            f"training waits for inputs {self.share:.0%} of the time ({lost / 60:.0f} min over the "
            f"whole run): {self._advice}"
        )

    def _asks(self) -> np.int32:
        self._asked.append(time.perf_counter())
        return np.int32(0)

    def _has(self) -> np.int32:
        self._came.append(time.perf_counter())
        self._left -= 1
        if self._left == 0:
            self._due = self._came[-1] + _EVERY
            self._take_stock()
        return np.int32(0)

    def _take_stock(self) -> None:
        """Evaluates the sample without its start, when buffers may be fuller than usual."""
        first = _STEPS // 4
        asked, came = self._asked[first + 1 :], self._came[first + 1 :]
        waited = sum(came) - sum(asked)
        self.share = waited / (came[-1] - self._came[first])
        self._lost = waited / len(came)
        before, self._processors = self._processors, processor_times()
        idle, total = (now - then for now, then in zip(self._processors, before, strict=True))
        self._idle = idle / total if total > 0 else 1.0


def processor_times() -> tuple[float, float]:
    """The processors' idle and total time since boot, in seconds * HZ. Zeros if unknown."""
    try:
        _, *times = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0, 0.0
    user, nice, system, idle, waiting, *rest = map(float, times[:8])  # guests' times are included
    return idle + waiting, user + nice + system + idle + waiting + sum(rest)
