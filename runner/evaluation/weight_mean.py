"""The mean of the weights of several checkpoints (SWA), which is written, evaluated and kept."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.checkpoints import averages, checkpoint_files
from runner.config import Experiment
from runner.core import console, files, layout, schedule
from runner.evaluation import evaluation, evaluator, statistics
from runner.history import history, records
from runner.reporting import progress, scalars


def write(
    built: evaluator.Evaluator,
    sources: Sequence[Path],
    target: Path,
    *,
    inputs: Callable[[], Any],
    batches: int,
) -> None:
    """Writes the mean of several checkpoints, and loads it from there into `built`.

    Args:
        built: Evaluates the mean afterwards.
        sources: Checkpoints of one run, oldest first.
        target: The path of the new checkpoint, which holds only weights.
        inputs: Creates training data, for statistics of batch normalization.
        batches: The number of batches used for these statistics.

    Raises:
        ConfigError: the checkpoints do not hold the same weights.
        RunnerError: the training data ended.
    """
    averages.mean(sources, target)
    built.restore_weights(target)
    if statistics.recompute(built, inputs, batches):
        items = getattr(built.model, "checkpoint_items", {})
        made = tf.train.Checkpoint(model=built.model, global_step=built.global_step, **items)
        averages.in_place(target, made.write)
        built.restore_weights(target)


def is_wanted(config: Experiment) -> bool:
    """Whether a run is configured to end with a mean."""
    return bool(config.run.weight_mean.last or config.run.weight_mean.from_step)


def chosen(config: Experiment, grid: schedule.Grid, steps: Sequence[int]) -> list[int]:
    """Selects the saved `steps` that a run averages. Empty if it computes no mean.

    Checkpoints that were saved because of a signal are ignored, as an undisturbed run lacks them.
    """
    options = config.run.weight_mean
    if not is_wanted(config):
        return []
    due = [step for step in steps if options.counts(step) and grid.commits(step)]
    return due[-options.last :] if options.last else due


@dataclasses.dataclass
class WeightMean:
    """The mean of the weights of a run that has ended, in the directory `mean`, with its scores.

    Attributes:
        config: The experiment.
        grid: The schedule of checkpoints.
        built: Holds the last weights at the end.
        folder: The run's directory.
        rows: Its history, which gets the result.
        evaluated: Evaluates the loaded weights.
        inputs: As for `write`.
    """

    config: Experiment
    grid: schedule.Grid
    built: evaluator.Evaluator
    folder: Path
    rows: history.History
    evaluated: evaluation.Evaluation
    inputs: Callable[[], Any]

    def run(self, step: int) -> dict[str, Any]:
        """Computes the configured mean, unless the history already has it.

        Args:
            step: The last step of the run, whose weights are loaded again afterwards.

        Returns:
            For JSON: the steps, and the metrics. Empty if there is no mean.
        """
        steps = chosen(self.config, self.grid, checkpoint_files.steps(self.folder))
        if len(steps) < 2:
            if is_wanted(self.config):
                console.say(
                    f"no mean of weights: two checkpoints are needed, but there are {len(steps)} "
                    "(WeightMeanConfig)"
                )
            return {}
        for row in self.rows.of(records.Mean):
            if (row.step, list(row.steps)) == (step, steps):
                return _results(row)
        names = [self.folder / checkpoint_files.name_of(each) for each in steps]
        target = self.folder / layout.MEAN / checkpoint_files.name_of(step)
        batches = self.config.run.weight_mean.batches
        write(self.built, names, target, inputs=self.inputs, batches=batches)
        logs, _, seconds = self.evaluated.score_all()
        row = records.Mean(
            step,
            tuple(steps),
            scalars.scalars(logs),
            round(seconds, 3),
            time.time(),
            f"{layout.MEAN}/{target.name}",
            self.config.run.limit_evaluation,
        )
        _keep(row, target)
        self.rows.append(row)
        console.say(
            f"evaluated the mean of {len(steps)} checkpoints (steps {steps[0]:,} to "
            f"{steps[-1]:,}) in {seconds:.1f} s{progress.limited(row)}: "
            f"{progress.values(row.metrics)}"
        )
        self.built.restore(self.folder / checkpoint_files.name_of(step))
        return _results(row)


def _keep(row: records.Mean, target: Path) -> None:
    """Makes the directory name this mean, and removes any other."""
    checkpoint_files.list_committed(target.parent, [target.name])
    info = {**records.plain(row.metrics), "steps": list(row.steps), "checkpoint": target.name}
    files.write_json(target.parent / layout.INFO, info)
    for path in checkpoint_files.there(target.parent):
        if path != target:
            checkpoint_files.remove(path)


def _results(row: records.Mean) -> dict[str, Any]:
    return {"steps": list(row.steps), "metrics": records.plain(row.metrics)}
