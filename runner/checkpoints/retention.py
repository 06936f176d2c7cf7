"""Selects the checkpoints that may be removed. No TensorFlow."""

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Keep:
    """Keeps the newest `last` checkpoints, and forever those at multiples of `every`.

    Unscheduled checkpoints, such as those that a signal requested, do not displace scheduled ones.
    A stopped run can therefore roll back as far as one that was not stopped.

    Attributes:
        last: How many of the newest checkpoints, and of the newest scheduled ones, to keep. 0 keeps
            one until the run has ended.
        every: Keeps steps 0, `every`, 2 * `every` and so on forever. 0 keeps none.
        is_due: Whether a checkpoint is scheduled at a step.
        needed: Selects the saved steps that the end of the run needs.
    """

    last: int
    every: int = 0
    is_due: Callable[[int], bool] = lambda _: True
    needed: Callable[[Sequence[int]], Sequence[int]] = lambda _: ()

    def removable(self, steps: Sequence[int]) -> list[int]:
        """The saved `steps` that may be removed, in their order."""
        due, last = [step for step in steps if self.is_due(step)], max(self.last, 1)
        stay = {*steps[-last:], *due[-last:], *self.needed(sorted(steps))}
        return [step for step in steps if step not in stay and not self._is_for_ever(step)]

    def removable_at_end(self, steps: Sequence[int]) -> list[int]:
        """The steps that may be removed after the run, if its best ones are kept elsewhere."""
        return [] if self.last else [step for step in steps if not self._is_for_ever(step)]

    def _is_for_ever(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0
