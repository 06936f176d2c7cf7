"""Keeps a process's inputs deterministic, where TensorFlow can."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import tensorflow as tf

from runner.core import console, user_code
from runner.data import order
from runner.devices import strategy
from runner.internals import tensorflow as tf_internals

T = TypeVar("T")


class Determinism:
    """Whether a process's inputs are deterministic; given up if TensorFlow cannot make them so.

    TensorFlow refuses some random ops while a pipeline is built, and cannot rewrite some pipelines
    when an iterator is made. Steps that run later stay deterministic.

    Args:
        note: Called once with the reason, if it is given up.

    Attributes:
        lost: Why it was given up; empty while it is kept.
        placements: The training data of which every row has an identity.
        is_indexed: Whether the task's own pipeline reads its records by index.
        not_indexed: Why it does not, although the configuration asks for it.
    """

    def __init__(self, note: Callable[[str], object] = lambda _: None) -> None:
        self._note = note
        self.lost = ""
        self.placements: list[order.Placement] = []
        self.is_indexed = False
        self.not_indexed = ""

    @classmethod
    def of_evaluations(cls) -> Self:
        """One that prints a line if an evaluation loses it."""
        said = "the inputs of evaluations may differ from one to the next, because"
        return cls(lambda why: console.say(f"{said} {why}"))

    def begin(self, dataset: Any) -> Any:
        """A new iterator over inputs that `runner.data.pipeline` returned."""
        return self.spare(lambda: tf.nest.map_structure(iter, dataset))

    def spare(self, work: Callable[[], T]) -> T:
        """The result of `work`, run without determinism if that made it fail."""
        try:
            return work()
        except Exception as error:
            if not tf_internals.refuses_determinism(error):
                raise
            why = f"TensorFlow cannot make them deterministic: {user_code.summary(error)}"
        with strategy.without_determinism():
            made = work()
        if not self.lost:
            self.lost = why
            self._note(why)
        return made
