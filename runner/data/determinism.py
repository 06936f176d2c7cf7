"""Keeps a process's inputs deterministic if TensorFlow can."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import tensorflow as tf

from runner.core import console, user_code
from runner.data import order
from runner.devices import strategy
from runner.internals import tensorflow as tf_internals

T = TypeVar("T")


class Determinism:
    """Keeps a process's inputs deterministic, or gives that up if TensorFlow cannot do so.

    TensorFlow rejects some random ops while a pipeline is built, and cannot rewrite some pipelines
    when an iterator is made. Later steps stay deterministic.

    Args:
        note: Called once with the reason, if determinism is given up.

    Attributes:
        lost: Why it was given up, or "" if it was not.
        placements: The training data in which every row has an identity.
        not_indexed: Why the task's own pipeline does not read its records by index, although the
            configuration requests it.
    """

    def __init__(self, note: Callable[[str], object] = lambda _: None) -> None:
        self._note = note
        self.lost = ""
        self.placements: list[order.Placement] = []
        self.not_indexed = ""

    @classmethod
    def of_evaluations(cls) -> Self:
        """Returns one that prints a line if an evaluation loses determinism."""
        said = "the inputs of evaluations may differ from one to the next, because"
        return cls(lambda why: console.say(f"{said} {why}"))

    def begin(self, dataset: Any) -> Any:
        """Returns a new iterator over inputs that `runner.data.pipeline` returned."""
        return self.spare(lambda: tf.nest.map_structure(iter, dataset))

    def spare(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, run without determinism if that made it fail."""
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
