"""Which checkpoints may go. No TensorFlow."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Keep:
    """The last `last` checkpoints stay, and for ever those of every so many steps.

    Attributes:
        last: How many of the newest; at least 1.
        every: Of these steps: 0, `every`, 2 * `every` and so on. The start, where it was committed,
            is on the grid as anywhere else: it is where every path through the weights begins.
            0 keeps none for that.
    """

    last: int
    every: int = 0

    def removable(self, steps: Sequence[int]) -> list[int]:
        """Which of the committed `steps` may go, in their order: the oldest first."""
        return [step for step in steps[: -self.last] if not self._on_grid(step)]

    def _on_grid(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0
