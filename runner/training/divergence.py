"""Broken training: a loss or a weight that is not finite, or a loss above its bound.

Broken state is never saved. Model Garden's `TrainerConfig.recovery_max_trials` is the policy: 0
stops the run, and a larger number allows that many rollbacks. A rollback skips the batches that
broke training. It is a row of history, so every later attempt repeats it exactly.

A rollback goes to the newest intact scheduled checkpoint, so a stopped run rolls back exactly like
one that was not stopped. If no scheduled checkpoint is intact, it goes to the newest other one,
such as one that was saved because of a signal.
"""

import math
import time
from collections.abc import Iterator

from runner.checkpoints import checkpoint_manager
from runner.core import console, schedule, text
from runner.data import windows
from runner.errors import DivergedError
from runner.history import history, records
from runner.training import example_losses, trainer

_SHOWN = 16  # maximum number of examples to show


class Divergence:
    """Detects broken training, and chooses the checkpoint to go back to.

    Args:
        trainer: The trainer whose state is checked.
        store: Its checkpoints.
        rows: The history, where rollbacks are written and read.
    """

    def __init__(
        self,
        trainer: trainer.Trainer,
        store: checkpoint_manager.Checkpoints,
        rows: history.History,
    ) -> None:
        self._trainer = trainer
        self._store = store
        self._rows = rows
        self._trials = trainer.config.trainer.recovery_max_trials
        self._rate = trainer.config.run.rollback_rate

    def broken(self, loop: schedule.Loop, *, variables: bool) -> str | None:
        """Describes what broke, or returns None. `variables`: also check them."""
        if not self._trainer.is_sound:
            return self._broken_loss(float(loop.logs["training_loss"]))
        broken = self._trainer.not_finite() if variables else []
        return f"not finite: {text.some(broken)}" if broken else None

    def roll_back(self, reason: str) -> int:
        """Records a rollback, and returns the step of the checkpoint to go back to.

        Raises:
            DivergedError: no rollback is left, or there is no checkpoint.
        """
        broke = self._trainer.broke_at
        for line in self._examples(broke):
            console.say(line)
        target = self._store.way_back()
        said = f"{reason}, at step {broke}"
        if target is None:
            raise DivergedError(f"{said}; there is no checkpoint to roll back to")
        if len(self._rows.rollbacks) >= self._trials:
            after = f" after {text.counted(self._trials, 'rollback')}" if self._trials > 0 else ""
            raise DivergedError(
                f"{said}{after}; the last good checkpoint is {self._store.path(target)}"
            )
        window = self._window(target, broke)
        self._store.discard_after(target)  # first: an attempt in between reaches this point again
        self._rows.append(records.Rollback(target, broke, window, self._rate, reason, time.time()))
        return target

    def _examples(self, broke: int) -> Iterator[str]:
        """Lists the examples of the batch that broke training, if they are known."""
        identities = example_losses.examples_of(self._trainer, broke, self._rows.reading.skipped)
        if identities:
            yield f"step {broke:,} was trained on:"
            yield from (f"  {identity}" for identity in identities[:_SHOWN])
        if len(identities) > _SHOWN:
            yield (
                f"  and {len(identities) - _SHOWN} more (to sort them by loss, use --mode=replay "
                f"--steps={broke}:{broke})"
            )

    def _broken_loss(self, mean: float) -> str:
        """Describes the problem with a step's loss, based on the mean that includes it."""
        if not math.isfinite(mean):
            return f"the training loss is {mean:g}"
        bound = self._trainer.config.trainer.loss_upper_bound
        return f"a step's loss is above TrainerConfig.loss_upper_bound = {bound:g} (mean {mean:g})"

    def _window(self, target: int, broke: int) -> windows.Window:
        """The batches to skip.

        A loss that breaks identifies its batch. But the step before may have broken the weights, so
        each further rollback to the same checkpoint skips twice as many steps. If weights broke but
        the loss did not, any step since the checkpoint may be the cause.
        """
        skipped = self._rows.reading.skipped
        again = sum(rollback.step == target for rollback in self._rows.rollbacks)
        loss_broke = not self._trainer.is_sound
        first = max(target, broke - 2**again) if loss_broke else target
        return windows.batch_of(first, skipped), windows.batch_of(broke - 1, skipped) + 1
