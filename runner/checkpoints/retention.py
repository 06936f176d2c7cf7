"""Which checkpoints may go. No TensorFlow."""

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Keep:
    """Keeps the last `last` checkpoints, and those at multiples of `every` for ever.

    Extra ones, which a signal requested between steps of the grid, do not displace any on the grid:
    a run that was stopped can roll back as far as one that was not.

    Attributes:
        last: How many of the newest, and of the newest that are due; of 0, one is kept until the
            run has ended.
        every: Keeps steps 0, `every`, 2 * `every` and so on for ever; 0 keeps none.
        is_due: Whether a commit falls due at a step.
        needed: Those of some committed steps that the end of the run needs.
    """

    last: int
    every: int = 0
    is_due: Callable[[int], bool] = lambda _: True
    needed: Callable[[Sequence[int]], Sequence[int]] = lambda _: ()

    def removable(self, steps: Sequence[int]) -> list[int]:
        """Which of the committed `steps` may go, in their order."""
        due, last = [step for step in steps if self.is_due(step)], max(self.last, 1)
        stay = {*steps[-last:], *due[-last:], *self.needed(sorted(steps))}
        return [step for step in steps if step not in stay and not self._is_for_ever(step)]

    def removable_at_end(self, steps: Sequence[int]) -> list[int]:
        """Which may go once the run has ended, if its best ones are kept elsewhere."""
        return [] if self.last else [step for step in steps if not self._is_for_ever(step)]

    def _is_for_ever(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0
