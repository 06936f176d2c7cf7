"""A run that trains: its state, evaluations and displays, driven by a controller."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.checkpoints import extra_state
from runner.config import Experiment
from runner.configuration import limits, multitask, schedules
from runner.core import closing, console, files, layout, schedule, text
from runner.devices import strategy, team
from runner.errors import CorruptionError
from runner.evaluation import evaluation, final_test, weight_mean
from runner.history import history, policies, records
from runner.reporting import epoch_times, overview, progress, tensorboard
from runner.run_directory import spent
from runner.runs import build, training_state
from runner.storage import display_names
from runner.training import divergence, profiling, reproducibility


@dataclasses.dataclass
class TrainingRun:
    """A run that trains, at its newest checkpoint or at the start. See `runner.runs.open_run`.

    `runner.training.controller` drives it.

    Attributes:
        state: The state that is saved and restored.
        policies: The schedules, and the rule for the best evaluation.
        guard: Detects broken training.
        evaluation: Evaluates and records.
        weight_mean: Takes the mean of several checkpoints at the end, or None without evaluations.
        final_test: The test at the end, None if there is none.
        boards: TensorBoard's directories of evaluations.
        line: The live line.
        epoch_times: The durations of epochs.
        costs: Parameters, FLOPs, and how to compute the share of the devices' peak.
        pruning: Model Garden's actions for a task that prunes its model.
        profiled: Trains and profiles, None without profiling.
        beat: Called with the step after each loop.
        spent: The time accounting of this attempt.
        before_loop: Called before each loop.
    """

    state: training_state.TrainingState
    policies: policies.Policies
    guard: divergence.Divergence
    evaluation: evaluation.Evaluation
    weight_mean: weight_mean.WeightMean | None
    final_test: final_test.FinalTest | None
    boards: tensorboard.Boards
    line: progress.Progress
    epoch_times: epoch_times.EpochTimes
    costs: build.Costs
    pruning: Sequence[schedule.Action]
    profiled: profiling.Profiled | None
    beat: Callable[[int], object]
    spent: spent.Spent
    before_loop: Callable[[], object] = lambda: None

    @property
    def step(self) -> int:
        """The number of completed steps. Waits for them."""
        return self.state.trainer.step

    @property
    def devices(self) -> list[str]:
        """The names of the devices that TensorFlow sees, and the strategy that uses them."""
        names = [device.name for device in tf.config.list_logical_devices()]
        return [*names, strategy.name(self.state.trainer.strategy)]

    @functools.cached_property
    def exactness(self) -> reproducibility.Exactness:
        """Whether a resume from the step at which this attempt starts is bit-exact."""
        config, trainer = self.state.config, self.state.trainer
        return reproducibility.of(
            multitask.train_data(config.task),
            trainer.training_graph,
            placed=trainer.places_inputs,
            inputs_saved=trainer.saves_inputs,
            deterministic=config.run.deterministic,
            lost=trainer.determinism.lost,
            reshuffled=history.reshuffled(self.state.history.of(records.FreshShuffle)),
        )

    @property
    def newest(self) -> dict[str, float]:
        """The metrics of the newest training row and of the newest evaluation."""
        evaluations = self.state.history.evaluations
        return {**self.state.log.newest, **(evaluations[-1].metrics if evaluations else {})}

    def train(self, steps: int) -> Mapping[str, Any]:
        """Runs `steps` steps, or fewer if a signal or a broken loss ends them."""
        self.state.before_loop()
        self.before_loop()  # a resume calls it again, so what it changes is recorded later
        trainer = self.profiled or self.state.trainer
        return trainer.train(tf.constant(steps, tf.int32))

    def after_loop(self, loop: schedule.Loop) -> None:
        """Writes the training row and the live line."""
        stall = self.state.trainer.input_stall
        times = self.epoch_times.after(loop)
        self.state.log.write(loop, input_wait=stall.share, times=times)
        if complaint := stall.complaint():
            console.say(complaint)
        loss, rate = loop.logs["training_loss"], loop.logs["learning_rate"]
        self.line.training(
            loop.step,
            loop.steps,
            loop.seconds,
            lambda: float(loss),
            rate=lambda: float(rate),
            epoch_seconds=self.epoch_times.last,
        )
        self.spent.trained(loop, input_wait=stall.share)
        self.beat(loop.step)

    def broken(self, loop: schedule.Loop, *, variables: bool) -> str | None:
        """Returns the reason if training broke, else None."""
        return self.state.trainer.corruption or self.guard.broken(loop, variables=variables)

    def recover(self, reason: str) -> int:
        """Rolls back to the checkpoint that `Divergence.roll_back` chooses, and returns its step.

        Raises:
            DivergedError: no trial is left, or there is no checkpoint.
            CorruptionError: a repeated step gave other bits, and the run has to end.
        """
        with self.spent.on("rollback"):
            broke = self.step
            found = self.state.trainer.corruption
            step = self._corrupted(found) if found else self.guard.roll_back(reason)
            self.spent.rolled_back(broke, to=step)
            dropped = self.state.go_back(step)
            self.epoch_times.rewind()
            if dropped:
                self.evaluation.log.catch_up(self.state.store.path(step))
        console.say(f"{reason}: rolled back to step {step:,}")
        return step

    def _corrupted(self, reason: str) -> int:
        """Records a corruption, and returns the step of the checkpoint before it."""
        state, broke = self.state, self.step
        target = state.store.way_back()
        again = any(row.found == broke for row in state.history.of(records.Corruption))
        state.history.append(records.Corruption(target or 0, broke, reason, time.time()))
        if target is None:
            raise CorruptionError(f"{reason}; there is no checkpoint before it")
        if again or state.config.run.on_corruption == "stop":
            raise CorruptionError(
                f"{reason}; rerunning the command continues from step {target:,}, preferably "
                "on other hardware (RunConfig.on_corruption)"
            )
        state.store.discard_after(target)
        return target

    def decide(self, step: int) -> str | None:
        """Reads evaluators' evaluations, just before the checkpoint of `step` is saved."""
        return self.state.decide(step)

    def commit(self, step: int) -> None:
        """Saves the state as the checkpoint of `step`, unless it has been saved already."""
        with self.spent.on("checkpoint"):
            self.state.commit(step)

    def wait(self) -> None:
        """Waits until every checkpoint is on disk."""
        with self.spent.on("checkpoint"):
            self.state.store.wait()

    @property
    def writing_cost(self) -> float | None:
        """Seconds of training that the last write took at most, or None while it is written."""
        return self.state.store.writing_cost

    def has_evaluated(self, step: int) -> bool:
        """Returns whether the evaluation of `step` is already in the history."""
        return self.state.history.has(step)

    def evaluate(self, step: int) -> str | None:
        """Runs and records the due evaluations. Returns a reason to stop, or None."""
        store = self.state.store
        with self.spent.on("evaluation"):
            reason = self.evaluation.run(
                step, store.path(step), before_record=self.wait, commit=self._save
            )
        decided = self.state.evaluated()
        return reason or decided

    def finish(self, step: int) -> None:
        """Runs the evaluations that were not due at `step`, if the run has stopped early."""
        with self.spent.on("evaluation"):
            path = self.state.store.path(step)
            self.evaluation.finish(step, path, before_record=self.wait)

    def take_mean(self, step: int) -> dict[str, Any]:
        """Evaluates the mean of the weights of several checkpoints, if configured."""
        if self.weight_mean is None:
            return {}
        with self.spent.on("evaluation"):
            return self.weight_mean.run(step)

    def test(self, step: int) -> dict[str, Any]:
        """Tests the configured weights, after the run has ended at `step`."""
        if self.final_test is None or not self.state.config.run.test.at_end:
            return {}
        with self.spent.on("evaluation"):
            return self.final_test.run(step, self.state.store.path(step))

    def keep_best_alone(self) -> None:
        """Removes the last checkpoints of a run that has ended, if it keeps only the best."""
        keeps_best = self.state.config.run.retention.best > 0
        best = self.state.store.end(keeps_best=keeps_best)
        again = "rerunning the command, or a longer run, would train"
        if best and keeps_best:
            console.say(
                f"only the best checkpoint is kept (TrainerConfig.max_to_keep = 0): {again} from "
                f"step {max(best):,}"
            )
        elif best:
            console.say(f"no checkpoint is kept (RetentionConfig.best = 0): {again} from the start")

    def _save(self) -> Path:
        """Saves a checkpoint, and returns it once it is on disk."""
        with self.spent.on("checkpoint"):
            return self.state.save()

    def catch_up(self) -> None:
        """Shows earlier evaluations, and keeps the best if a kill came before that."""
        if self.state.source:
            best = self.evaluation.log.catch_up(self.state.source)
            for newest in self.state.history.evaluations[-1:]:
                self.line.resumed(newest, best)

    def report(self, failure: str = "") -> None:
        """Prints what will be trained, from which step, and whether a resume would be bit-exact.

        Args:
            failure: How the previous attempt was killed or failed.
        """
        files.write_json(self.state.folder / layout.OVERVIEW, self.costs.view.as_dict())
        console.say(overview.render(self.costs.view, width=console.STDERR.width))
        for line in self._announcements(failure):
            console.say(line)

    def _announcements(self, failure: str) -> Iterator[str]:
        state, config, trainer = self.state, self.state.config, self.state.trainer
        source = display_names.of(state.source) if state.source else ""
        if self.costs.utilization:
            yield str(self.costs.utilization.peak)
        if not self.policies.grid.evaluations and (others := self._left_to_evaluators()):
            yield f"not done by this mode, but left to evaluators: {', '.join(others)}"
        if source and self.step >= self.policies.grid.end:
            longer = (
                "EpochsConfig.train" if config.run.epochs.train else "TrainerConfig.train_steps"
            )
            yield (
                f"already finished at step {self.step:,} ({source}); to train longer, raise "
                f"{longer}"
            )
        else:
            begins = f"resumed at step {self.step:,} from {source}"
            begins = begins if source else f"new run in {display_names.of(state.folder)}"
            yield f"{begins}; {failure}" if failure else begins
        if state.source and extra_state.is_model_gardens(state.source):
            yield (
                f"{source} was written by Model Garden, which does not save the position in the "
                "training data or the random number generators. The data continue at batch "
                f"{self.step + 1:,} in this runner's order"
            )
        commits = self.policies.grid.describe_commits()
        decides = bool(self.policies.best_folders and self.policies.grid.evaluations)
        yield f"checkpoints {commits}; {_kept(config, decides=decides)}"
        yield strategy.describe(trainer.strategy, trainer.model)
        yield from limits.describe(
            config, trains=True, evaluates=bool(self.policies.grid.evaluations)
        )
        yield from schedules.complaints(config, state.rates)
        yield "".join(self.exactness)
        pace = state.log.pace_before
        most = f" for up to {text.duration(self.step / pace)}" if pace and self.step > pace else ""
        if left := trainer.replay.batches:
            yield (
                f"replaying {left:,} batches of inputs before the first step{most} "
                "(RunConfig.inputs = 'indexed' avoids this for new runs on TFRecords, and "
                "RunConfig.resume_inputs = 'fresh_shuffle' skips it, but is not bit-exact)"
            )
        if left := trainer.replay.records:
            yield f"skipping {left:,} records before the first map of the inputs{most}"
        if why := trainer.determinism.not_indexed:
            yield f"RunConfig.inputs = 'indexed' has no effect: {why}"
        if team.current().size > 1:
            yield "with another number of workers: the same batches, but maybe not bit-exact"

    def _left_to_evaluators(self) -> list[str]:
        """Lists the configured work that a run without evaluations does not do."""
        run = self.state.config.run
        left = [f"the set {each.name!r}" for each in run.evaluation_sets]
        left += [f"{folder}/" for folder in self.policies.best_folders]
        actions = [each for each in run.actions if each.at in ("best", "evaluation")]
        left += [f"the action {each.action.name} at {each.at!r}" for each in actions]
        return [*left, "the test"] if run.test.data is not None and run.test.at_end else left

    def close(self) -> None:
        """Flushes buffered data and releases resources."""
        closing.close(self.profiled, self.state.log, self.line, self.boards, self.state.store)


def _kept(config: Experiment, *, decides: bool) -> str:
    """Describes which checkpoints are kept in addition to the best, or if there is no best."""
    if newest := config.trainer.max_to_keep:
        kept = "keeps the newest" if newest == 1 else f"keeps the newest {newest}"
    elif not decides:
        kept = "keeps only the best, or else the newest, after the end"
    else:
        kept = f"keeps {'only the best' if config.run.retention.best else 'none'} after the end"
    return f"{kept}, and those for the mean of weights" if weight_mean.is_wanted(config) else kept
