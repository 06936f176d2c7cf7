"""`--profile_steps=100:102`: a TensorFlow profile of some training steps.

It lies in `train/plugins/profile/`, where TensorBoard's profile plugin looks for it. That plugin
tells steps apart where no loop runs in the graph: its overview has their times only with
`TrainerConfig.train_tf_while_loop = False`; its other pages need nothing of the kind.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orbit
import tensorflow as tf

from runner import trainer


class Profiled(orbit.AbstractTrainer):
    """A trainer that trains as another does, and profiles the steps of a range.

    These are run one at a time, each under its number; the loops before and after end where they
    would without. What falls due between two of the steps, such as a checkpoint, is profiled, too.
    A profiler that fails is noted, and training goes on.

    Args:
        trainer: Trains.
        steps: The first and the last step to profile; the run's first step is 1. Of steps that
            were done before this start there is no profile.
        folder: A run of TensorBoard's.
        note: Told what became of the profile.
    """

    def __init__(
        self,
        trainer: trainer.Trainer,
        steps: tuple[int, int],
        folder: Path,
        *,
        note: Callable[[str], None],
    ) -> None:
        self._trainer = trainer
        self._first, self._last = steps
        self._folder = folder
        self._note = note
        self._span: tuple[int, int] | None = None  # the steps in the profile that is going on
        self._over = trainer.step >= self._last
        if self._over:
            note(f"nothing is profiled: the run is at step {trainer.step:,}, past {self._last:,}")

    def train(self, num_steps: tf.Tensor) -> Any:
        """Runs `num_steps` steps, fewer if a brake ends them; see `orbit.AbstractTrainer`."""
        if self._over:
            return self._trainer.train(num_steps)
        logs = None
        step = self._trainer.step
        for end in self._ends(step, step + int(num_steps)):
            logs = self._run(step, end)
            step = self._trainer.step
            if step < end:
                break
        return logs

    def close(self) -> None:
        """Writes what was profiled, if training ends within the range."""
        if self._span is None:
            return
        (first, last), self._span, self._over = self._span, None, True
        try:
            tf.test.experimental.sync_devices()
            tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            self._note(f"the profile is not written: {error.message}")
        else:
            where = self._folder / "plugins" / "profile"
            self._note(f"profiled steps {first:,} to {last:,}, in {where}")

    def _ends(self, step: int, end: int) -> Iterator[int]:
        """Where to interrupt the loop from `step` to `end`, and `end`."""
        cuts = range(max(step + 1, self._first - 1), min(end, self._last + 1))
        yield from itertools.takewhile(lambda _: not self._over, cuts)
        yield end

    def _run(self, step: int, end: int) -> Any:
        """One loop, profiled if its first step is in the range."""
        if self._over or not self._first <= step + 1 <= self._last:
            self.close()  # a rollback has left the range
            return self._trainer.train(tf.constant(end - step, tf.int32))
        if self._span is None:
            self._start(end)
        with tf.profiler.experimental.Trace("train", step_num=end, _r=1):
            logs = self._trainer.train(tf.constant(end - step, tf.int32))
        if self._span:
            self._span = self._span[0], self._trainer.step
        if end == self._last:
            self.close()
        return logs

    def _start(self, step: int) -> None:
        tf.test.experimental.sync_devices()
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.OpError as error:
            self._over = True
            self._note(f"nothing is profiled: {error.message}")
        else:
            self._span = step, step
