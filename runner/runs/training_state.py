"""The weights and logs that a training run saves, restores and rolls back together."""

import dataclasses
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from runner.checkpoints import checkpoint_manager, extra_state, restore
from runner.config import Experiment
from runner.core import files
from runner.data import pipeline, windows
from runner.devices import team
from runner.history import history, records
from runner.models import learning_rate
from runner.runs import build
from runner.training import decisions, trainer, training_log


@dataclasses.dataclass
class TrainingState:
    """A trainer, its checkpoints and its logs, which are saved and restored together.

    Attributes:
        config: The experiment.
        folder: The run's directory.
        source: The checkpoint that it starts from, or None for a new run.
        trainer: Holds the weights and the inputs.
        rate_scale: The factor on the scheduled learning rate.
        store: The checkpoints.
        history: Evaluations and decisions.
        log: The training rows.
        decisions: The decisions that follow from the history.
    """

    config: Experiment
    folder: Path
    source: Path | None
    trainer: trainer.Trainer
    rate_scale: learning_rate.Scale
    store: checkpoint_manager.Checkpoints
    history: history.History
    log: training_log.TrainingLog
    decisions: decisions.Decisions
    _scale: float = 1.0
    _noted_after: bool = True  # whether changes after the newest checkpoint are recorded

    def begin(self) -> None:
        """Restores the checkpoint to start from, or initializes the weights."""
        if self.source is None:
            self.trainer.initialize()
            return
        self.trainer.constants.since = restore.step_of(self.source)
        self._restore(self.source)
        self.trainer.put_back_extra_state(self.inputs)

    def commit(self, step: int) -> None:
        """Saves everything as the checkpoint of `step`, unless it has been saved already.

        Raises:
            LostError: another process has taken over the directory.
        """
        files.check(self.store.path(step))
        self.note_rate(step)
        self._noted_after = False
        self.log.flush()
        extents = extra_state.LogExtents(self.history.extent, self.log.step)
        self.trainer.extra_state.logs.capture(extents)
        with team.current().together("commit", step):
            self.trainer.capture_extra_state()
            self.store.commit(step)

    def before_loop(self) -> None:
        """Records what code has changed since the last checkpoint, if that is of this step."""
        if not self._noted_after:
            self._noted_after = True
            self.note_rate(self.trainer.step)

    def note_rate(self, step: int) -> None:
        """Records the learning rate that other code, such as a callback, has set, if any."""
        scale = self.rate_scale
        if isinstance(scale, learning_rate.ScaledConstant) and scale.changed():
            row = (step, scale.chosen, scale.configured, time.time(), scale.included)
            self.history.append(records.RateChange(*row))

    def undo_rate(self) -> None:
        """Undoes a change of the learning rate that is not recorded yet."""
        if isinstance(self.rate_scale, learning_rate.ScaledConstant):
            self.rate_scale.assign(self._scale)

    def save(self) -> Path:
        """Saves a checkpoint of the current state, waits until it is on disk, and returns it."""
        step = self.trainer.step
        self.commit(step)
        self.store.wait()
        return self.store.path(step)

    def go_back(self, step: int) -> bool:
        """Restores the checkpoint of `step`. Returns whether that dropped evaluations."""
        dropped = self.history.drop_after(step)
        if dropped:
            self.decisions = self.decisions.again()
        path, reading = self.store.path(step), self.history.reading
        scale = self.decisions.rate_scale
        with team.current().together("go_back", step, str(path), reading, scale):
            self._restore(path)
            self.trainer.put_back_extra_state()
            self.trainer.feed(self.inputs(step))
        self.log.rewind(step)
        return bool(dropped)

    def reshuffle(self) -> None:
        """Continues with newly shuffled data instead of a replay, and records that."""
        step, seed = self.trainer.step, self.config.run.seed
        batch = windows.batch_of(step, self.history.reading.skipped)
        fresh = zlib.crc32(f"{seed} {batch}".encode())
        self.history.append(records.FreshShuffle(step, batch, fresh, time.time()))
        with team.current().together("feed", step, self.history.reading):
            self.trainer.feed(self.inputs(step))

    def repeat(self, rows: Sequence[records.Record]) -> None:
        """Takes over rows that the run has for this step, with the decisions in them."""
        before = self.history.reading
        for row in rows:
            self.history.append(row)
        self.decisions = self.decisions.again()
        self._set_rate()
        if self.history.reading != before:
            self.trainer.feed(self.inputs(self.trainer.step))

    def put_back(self, step: int) -> None:
        """Restores the checkpoint of `step`, but not the logs and inputs."""
        self._restore(self.store.path(step))
        self.trainer.put_back_extra_state()

    def decide(self, step: int) -> str | None:
        """Reads evaluators' evaluations before a checkpoint. Returns a reason to stop, or None."""
        self.decisions.before_commit(step)
        return self._decided()

    def evaluated(self) -> str | None:
        """Reads the run's own evaluations. Returns a reason to stop, or None."""
        self.decisions.evaluated()
        return self._decided()

    def rates(self, steps: Sequence[int]) -> Sequence[float]:
        """Returns the scheduled learning rates at some steps, without the drops of a plateau."""
        return learning_rate.rates(self.trainer.optimizer, steps)

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate at a step."""
        return learning_rate.current(self.trainer.optimizer, step)

    def _decided(self) -> str | None:
        scale = self.decisions.rate_scale
        if scale != self._scale:
            self.note_rate(self.trainer.step)  # the new scale applies to what a callback has set
            with team.current().together("scale", scale):
                self.rate_scale.assign(scale)
            self._scale = scale
        return self.decisions.stop_reason

    def _restore(self, path: Path) -> None:
        with self.trainer.constants.restored(restore.step_of(path)):
            self.store.restore(path)
        self._set_rate()

    def _set_rate(self) -> None:
        """Sets the learning rate that follows from the history."""
        self._scale = self.decisions.rate_scale
        if isinstance(constant := self.rate_scale, learning_rate.ScaledConstant):
            changes = {row.configured: row for row in self.history.of(records.RateChange)}
            found = changes.get(constant.configured)
            constant.chosen = found.rate if found else constant.configured
            constant.included = found.scale if found else 1.0
        self.rate_scale.assign(self._scale)

    def inputs(self, step: int = 0) -> pipeline.Inputs:
        """Returns the training inputs from `step` on."""
        run, reading = self.trainer, self.history.reading
        with run.strategy.scope():
            return build.training_inputs(self.config, run.task, step, reading, run.determinism)
