"""When things fall due in a run, and what a finished loop is. Standard library only."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

Action = Callable[[Mapping[str, Any]], Any]
"""Orbit's action: called with the output of a loop or of an evaluation, names to tensors. One that
returns a string stops the run, with the string as the reason."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """When things fall due: at multiples of their interval and at the end.

    The grid is absolute: it does not move with the step at which a run was resumed.

    Attributes:
        end: The last step.
        loop: The longest inner loop; loops end on its multiples. 0: they take about a second.
        summary: Training rows.
        checkpoint: Commits.
        evaluations: The intervals of evaluations.
        evaluations_commit: Whether each evaluation commits first.
        seconds: Time without a commit after which there is an extra one, off the grid; 0 for none.
            It does not change what is trained: broken training is left for the grid to detect.
        actions: The intervals of actions.
    """

    end: int
    loop: int
    summary: int
    checkpoint: int
    evaluations: tuple[int, ...] = ()
    evaluations_commit: bool = True
    seconds: float = 0
    actions: tuple[int, ...] = ()

    def due(self, step: int, interval: int) -> bool:
        """Whether something with this interval falls due at `step`."""
        return step % interval == 0 or step == self.end

    def evaluates(self, step: int) -> bool:
        """Whether any evaluation falls due at `step`."""
        return any(self.due(step, interval) for interval in self.evaluations)

    def commits(self, step: int) -> bool:
        """Whether a commit falls due at `step`; a signal or an action may ask for one anywhere."""
        evaluates = self.evaluations_commit and self.evaluates(step)
        return evaluates or self.due(step, self.checkpoint)

    def describe_commits(self) -> str:
        """When commits fall due, in words."""
        evaluations = [each for each in self.evaluations if each < self.end]
        finer = any(each % self.checkpoint for each in evaluations)
        commits = evaluations if self.evaluations_commit else []
        every = sorted({each for each in (self.checkpoint, *commits) if each < self.end})
        told = [n for n in every if not any(n % less == 0 for less in every if less < n)]
        steps = " and ".join(f"every {n:,}" for n in told)
        when = f"{steps} steps and at the end" if told else "at the end alone"
        if finer and not self.evaluations_commit:
            when += ", and where an evaluation is among the best"
        elif finer:
            when += ", since each evaluation commits first"
        return f"{when}, and after {self.seconds:g} s without one" if self.seconds else when

    def next(self, step: int, longest: int) -> int:
        """Where the loop that starts at `step` ends: the nearest step at which anything is due.

        Args:
            step: The step.
            longest: The maximum number of steps in a loop if `loop` is 0.
        """
        intervals = (self.summary, self.checkpoint, *self.evaluations, *self.actions)
        cut = step - step % self.loop + self.loop if self.loop else step + longest
        return min(self.end, cut, *(step - step % n + n for n in intervals))

    def evaluations_after(self, step: int) -> int:
        """How many evaluations are still to come after `step`."""
        if not self.evaluations:
            return 0
        most = min(self.evaluations)
        return math.ceil(self.end / most) - step // most


@dataclasses.dataclass(frozen=True)
class Loop:
    """A finished inner loop.

    Attributes:
        step: The training step after it.
        steps: How many steps it ran.
        seconds: How long they took.
        logs: What the trainer returned; reading a value waits for it.
        summary: Whether a training row falls due.
    """

    step: int
    steps: int
    seconds: float
    logs: Mapping[str, Any]
    summary: bool
