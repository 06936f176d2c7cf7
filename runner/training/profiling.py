"""`--profile_steps=100:102`: a TensorFlow profile of some training steps.

`RunConfig.profile_every` profiles a few steps at regular intervals, and keeps the newest profiles.

Profiles are in `train/plugins/profile/`, where TensorBoard's profile plugin expects them. The
plugin's overview page shows step times only with `TrainerConfig.train_tf_while_loop = False`,
because the plugin cannot separate the steps of a loop in the graph. Its other pages do not need
that.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orbit
import tensorflow as tf

from runner.core import files
from runner.errors import LostError
from runner.training import trainer

_AT_A_TIME = 3  # steps per profile
_KEPT = 5
_NAME = "steps-"  # prefix of the steps' numbers, for repeated profiles


class Steps(NamedTuple):
    """The steps that are profiled together.

    Attributes:
        first: The first one. The run's first step is 1.
        last: The last one.
        every: Repeats the profile at this interval of steps. 0: no repetition.
    """

    first: int
    last: int
    every: int = 0

    def after(self, step: int) -> tuple[int, int] | None:
        """The next steps to profile after `step`, or the current ones if it is one of them."""
        if self.every:
            more = max(0, -((self.last - step - 1) // self.every)) * self.every
            return self.first + more, self.last + more
        return (self.first, self.last) if step < self.last else None


def each(every: int) -> Steps:
    """A few steps up to each multiple of `every`."""
    return Steps(max(1, every - _AT_A_TIME + 1), every, every)


class Profiled(orbit.AbstractTrainer):
    """Wraps a trainer, and profiles some of its steps.

    These steps run one at a time, each under its number. Other loops end where they would anyway.
    Anything scheduled between two of the steps, such as a checkpoint, is also profiled. If the
    profiler fails, the failure is reported and training continues.

    Args:
        trainer: The trainer.
        steps: The steps to profile, unless they were done before this attempt.
        folder: A TensorBoard run directory.
        note: Called with the outcome.
    """

    def __init__(
        self,
        trainer: trainer.Trainer,
        steps: Steps,
        folder: Path,
        *,
        note: Callable[[str], None],
    ) -> None:
        self._trainer = trainer
        self._steps = steps
        self._folder = folder
        self._note = note
        self._span: tuple[int, int] | None = None  # the steps of the profile in progress
        self._over = steps.after(trainer.step) is None
        if self._over:
            note(f"nothing to profile: the run is at step {trainer.step:,}, past {steps.last:,}")

    def train(self, num_steps: tf.Tensor) -> Any:
        """Runs `num_steps` steps, or fewer if a brake ends them. See `orbit.AbstractTrainer`."""
        if self._over:
            return self._trainer.train(num_steps)
        step = self._trainer.step
        last = step + int(num_steps)
        while True:
            end = self._cut(step, last)
            logs = self._run(step, end)
            step = self._trainer.step
            if step < end or end == last:
                return logs

    def close(self) -> None:
        """Writes the profile, if training ends within its steps.

        Raises:
            LostError: the run's directory was moved, deleted or taken over.
        """
        if self._span is None:
            return
        (first, last), self._span, self._over = self._span, None, not self._steps.every
        where = self._folder / "plugins" / "profile"
        before = _there(where)
        try:
            files.check(where)
        except LostError:
            tf.profiler.experimental.stop(save=False)
            raise
        try:
            tf.test.experimental.sync_devices()
            tf.profiler.experimental.stop()
            new = _there(where) - before
            for made in new:
                files.flush_all(made)
            if self._steps.every:
                where = _keep(where, new, first, last)
        except (tf.errors.OpError, OSError) as error:
            self._note(f"the profile could not be written: {getattr(error, 'message', error)}")
        else:
            self._note(f"profiled steps {first:,} to {last:,}, in {where}")

    def _cut(self, step: int, last: int) -> int:
        """The first step at which the loop from `step` to `last` must end."""
        steps = None if self._over else self._steps.after(step)
        if steps is None:
            return last
        return min(last, max(step + 1, steps[0] - 1))

    def _run(self, step: int, end: int) -> Any:
        """Runs one loop, profiled if its first step is one to profile."""
        steps = None if self._over else self._steps.after(step)
        if steps is None or step + 1 < steps[0]:
            self.close()  # the profile may be open after a rollback
            return self._trainer.train(tf.constant(end - step, tf.int32))
        if self._span is None:
            self._start(end)
        with tf.profiler.experimental.Trace("train", step_num=end, _r=1):
            logs = self._trainer.train(tf.constant(end - step, tf.int32))
        if self._span:
            self._span = self._span[0], self._trainer.step
        if end == steps[1]:
            self.close()
        return logs

    def _start(self, step: int) -> None:
        tf.test.experimental.sync_devices()
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.OpError as error:
            self._over = True
            self._note(f"profiling failed: {error.message}")
        else:
            self._span = step, step


def _there(folder: Path) -> set[Path]:
    return {*folder.iterdir()} if folder.is_dir() else set()


def _keep(folder: Path, new: set[Path], first: int, last: int) -> Path:
    """Names a new profile after its steps, and removes all but the newest of these."""
    place = folder / f"{_NAME}{first}-{last}"
    for made in new:
        shutil.rmtree(place, ignore_errors=True)  # same steps, before a kill or a rollback
        made.rename(place)
    named = [path for path in _there(folder) if path.name.startswith(_NAME)]
    for path in sorted(named, key=lambda path: int(path.name.split("-")[1]))[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return place
