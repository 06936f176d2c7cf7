"""Reads the inputs of a resumed run up to the batch to continue with, and shows the progress."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from runner.core import console, text
from runner.data import pipeline

_TURN = 0.5  # seconds, after which a replay looks for a signal
_SHORTEST = 1e-6  # seconds


class InputReplay:
    """What is left to read before training continues.

    Args:
        inputs: The training inputs.

    Attributes:
        batches: The number of batches to draw and drop.
        records: The number of records that the inputs skip before they map any.
    """

    def __init__(self, inputs: pipeline.Inputs) -> None:
        self.batches = inputs.behind
        self.records = inputs.records

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return not self.batches and not self.records

    def run(self, draw: Callable[[], Any], *, is_halted: Callable[[], bool]) -> None:
        """Draws and drops the batches.

        Args:
            draw: Draws a batch, also in a graph.
            is_halted: Whether to end early. The other batches then stay to be dropped.
        """

        @tf.function(autograph=False)
        def drop(count: tf.Tensor) -> None:
            def turn(number: tf.Tensor) -> tuple[tf.Tensor]:
                draw()
                return (number + 1,)

            tf.while_loop(lambda number: number < count, turn, (0,))

        total, size, start = self.batches, 1, time.perf_counter()
        shown = start
        while self.batches and not is_halted():
            began, count = time.perf_counter(), min(size, self.batches)
            drop(tf.constant(count))
            self.batches -= count
            now = time.perf_counter()
            size = max(1, int(count * _TURN / max(now - began, _SHORTEST)))
            if now > shown + console.STDERR.pause and self.batches:
                shown, done = now, total - self.batches
                left = text.duration((now - start) / done * self.batches)
                said = f"replaying the inputs: {done:,} of {total:,} batches, {left} left"
                console.show(said, done / total)

    @contextlib.contextmanager
    def skipping(self) -> Iterator[None]:
        """A context for drawing the first batch, which first skips the records."""
        if not self.records:
            yield
            return
        drawn, start = threading.Event(), time.perf_counter()

        def show() -> None:
            while not drawn.wait(console.STDERR.pause):
                passed = text.duration(time.perf_counter() - start)
                console.show(f"skipping {self.records:,} records of the inputs: {passed} so far")

        thread = threading.Thread(target=show, daemon=True, name="showing skipped records")
        thread.start()
        try:
            yield
        finally:
            drawn.set()
            thread.join()
        self.records = 0
