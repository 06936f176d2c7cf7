"""The schedule of a run's actions, and the result of a finished loop. Standard library only."""

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

Interval = int | Fraction
"""Steps between two events of one kind. If it is a fraction, each occurs at the nearest step."""

CONTINUOUS = "continuous"
"""Instead of seconds between two checkpoints: the next is saved once the last is written."""

Action = Callable[[Mapping[str, Any]], Any]
"""An Orbit action, called with the output of a loop or an evaluation, names to tensors. If it
returns a string, the run stops with the string as the reason."""


def passed(step: Any, interval: Interval) -> Any:
    """Returns how many multiples of an interval, above 0 and rounded half up, are at most `step`.

    `step` may also be an int64 tensor, below about 10^9 steps.
    """
    return ((2 * step + 1) * interval.denominator - 1) // (2 * interval.numerator)


def multiple(number: int, interval: Interval) -> int:
    """Returns the step of the `number`th multiple of an interval, rounded half up."""
    return (2 * number * interval.numerator + interval.denominator) // (2 * interval.denominator)


@dataclasses.dataclass(frozen=True)
class Grid:
    """A schedule of events at multiples of their interval, to the nearest step, and at the end.

    The schedule is absolute: it does not depend on the step at which a run was resumed.

    Attributes:
        end: The last step.
        loop: The longest inner loop. Loops end on its multiples. 0 makes loops of about a second.
        summary: The interval of training rows.
        checkpoint: The interval of checkpoints.
        evaluations: The intervals of evaluations.
        evaluations_commit: Whether a checkpoint is saved before each evaluation.
        seconds: Time without a checkpoint after which an extra one is saved, off the schedule. 0
            disables it. It does not change training: broken training is left for the schedule to
            detect.
        continuous: Whether an extra checkpoint is saved as soon as the last one is written.
        actions: The intervals of actions.
        epoch: The number of steps in an epoch, or 0 if epochs are not used. Loops end with epochs.
    """

    end: int
    loop: int
    summary: Interval
    checkpoint: Interval
    evaluations: tuple[Interval, ...] = ()
    evaluations_commit: bool = True
    seconds: float = 0
    continuous: bool = False
    actions: tuple[int, ...] = ()
    epoch: Interval = 0

    def due(self, step: int, interval: Interval) -> bool:
        """Returns whether an event with this interval happens at `step`."""
        return step in (0, self.end) or passed(step, interval) > passed(step - 1, interval)

    def epochs(self, step: int) -> int:
        """Returns how many epochs have ended at `step` or before it."""
        return passed(step, self.epoch) if self.epoch else 0

    def evaluates(self, step: int) -> bool:
        """Returns whether any evaluation happens at `step`."""
        return any(self.due(step, interval) for interval in self.evaluations)

    def commits(self, step: int) -> bool:
        """Returns whether a checkpoint is scheduled at `step`. Signals and actions may add more."""
        evaluates = self.evaluations_commit and self.evaluates(step)
        return evaluates or self.due(step, self.checkpoint)

    def describe_commits(self) -> str:
        """Describes when checkpoints are saved."""
        evaluations = [each for each in self.evaluations if each < self.end]
        finer = any(each % self.checkpoint for each in evaluations)
        commits = evaluations if self.evaluations_commit else []
        every = sorted({each for each in (self.checkpoint, *commits) if each < self.end})
        told = [n for n in every if not any(n % less == 0 for less in every if less < n)]
        steps = " and ".join(f"every {_shown(n)}" for n in told)
        when = f"{steps} steps and at the end" if told else "at the end only"
        if finer and not self.evaluations_commit:
            when += ", and after an evaluation that is among the best"
        elif finer:
            when += ", because each evaluation saves one (RunConfig.evaluations_commit)"
        if self.continuous:
            return f"{when}, and whenever the last one is written"
        return f"{when}, and {self.seconds:g} s after the last one" if self.seconds else when

    def next(self, step: int, longest: int) -> int:
        """Returns where the loop that starts at `step` ends: the nearest step with any event.

        Args:
            step: The step.
            longest: The maximum number of steps in a loop if `loop` is 0.
        """
        intervals = [self.summary, self.checkpoint, *self.evaluations, *self.actions]
        intervals += [self.epoch] if self.epoch else []
        cut = step - step % self.loop + self.loop if self.loop else step + longest
        return min(self.end, cut, *(multiple(passed(step, n) + 1, n) for n in intervals))

    def evaluations_after(self, step: int) -> int:
        """Returns how many evaluations are left after `step`."""
        if not self.evaluations:
            return 0
        most = min(self.evaluations)
        at_end = passed(self.end, most) == passed(self.end - 1, most)  # not already by the interval
        return passed(self.end, most) - passed(step, most) + (at_end and step < self.end)


def _shown(interval: Interval) -> str:
    """Formats `1,000`, or `22.5` for a fraction."""
    return f"{int(interval):,}" if interval.denominator == 1 else f"{float(interval):,.1f}"


@dataclasses.dataclass(frozen=True)
class Loop:
    """A finished inner loop.

    Attributes:
        step: The training step after it.
        steps: The number of steps it ran.
        seconds: How long they took.
        logs: The trainer's output. Reading a value waits for it.
        summary: Whether a training row is due.
    """

    step: int
    steps: int
    seconds: float
    logs: Mapping[str, Any]
    summary: bool
