"""The log of evaluations: a row of history, TensorBoard's points, the best checkpoint."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from official.core import base_task
from tensorboard.compat.proto import event_pb2

from runner.checkpoints import best
from runner.config import Experiment
from runner.core import layout
from runner.history import history, records
from runner.reporting import progress, scalars, tensorboard
from runner.storage import display_names

Pictures = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""A task's method `pictures`, which maps all results of one set, arrays included, to images."""


def drawing(config: Experiment, task: base_task.Task) -> Pictures | None:
    """The task's method `pictures`, or None if it has none or drawing is off."""
    return getattr(task, "pictures", None) if config.run.draws("pictures") else None


def charts(
    results: Mapping[str, Any], pictures: Pictures | None, written: Sequence[event_pb2.Event]
) -> tensorboard.Charts:
    """Builds a set's charts from its results and from the summaries its task wrote."""
    drawn = pictures(scalars.arrays(results)) if pictures else {}
    return tensorboard.Charts(scalars.scalars(results), drawn, written)


class EvaluationLog:
    """Writes a row of history, TensorBoard's points, the best checkpoint and a line.

    Args:
        rows: The history to add to.
        boards: Receive the points.
        keeper: The directories of the best checkpoints.
        line: The progress line for the user.
        home: The directory whose checkpoints are recorded by name. Others are recorded by path.
        limited: The number of batches evaluated in each set. 0: all. Also an attribute.
    """

    def __init__(
        self,
        rows: history.History,
        boards: tensorboard.Boards,
        keeper: best.BestCheckpoints,
        line: progress.Progress,
        *,
        home: Path,
        limited: int = 0,
    ) -> None:
        self._rows = rows
        self._boards = boards
        self._best = keeper
        self._line = line
        self._home = home.resolve()
        self.limited = limited

    def write(
        self,
        step: int,
        logs: Mapping[str, Any],
        charts: Mapping[str, tensorboard.Charts],
        *,
        seconds: float,
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> None:
        """Records the evaluation of checkpoint `source`, which is whole on disk or can be created.

        Args:
            step: The checkpoint's step.
            logs: All results, by their names in the row.
            charts: The charts of each set, by the set's name.
            seconds: The duration of the evaluation.
            source: The checkpoint.
            commit: Creates it, if it is among the best and does not exist.
        """
        name = checkpoint_name(source, self._home)
        metrics, taken = scalars.scalars(logs), round(seconds, 3)
        row = records.Evaluation(step, metrics, taken, time.time(), name, self.limited)
        self._boards.write(step, charts)  # first: a row without its points would never get them
        self._rows.append(row)
        self._line.evaluated(row, self.catch_up(source, commit))

    def names(self, step: int) -> set[str]:
        """The names of the metrics that were recorded for `step`, which is the newest of all."""
        newest = itertools.takewhile(lambda row: row.step == step, reversed(self._rows.evaluations))
        return {name for row in newest for name in row.metrics}

    def catch_up(
        self, source: Path, commit: Callable[[], object] | None = None
    ) -> records.Evaluation | None:
        """Updates the best checkpoint's directory from the rows, for example after a kill.

        Args:
            source: A checkpoint whose directory may also contain the best one.
            commit: Creates it, if it is among the best and does not exist.

        Returns:
            The best evaluation, or None if there is none yet.
        """
        return self._best.update(self._rows.evaluations, source, commit)


def checkpoint_name(path: Path, home: Path) -> str:
    """A checkpoint's name in rows. A path if it is outside `home`, or a mean of several."""
    path = path.resolve()
    is_mean = path.parent.name.partition("-")[0] == layout.MEAN
    is_own = path.is_relative_to(home.resolve()) and not is_mean
    return path.name if is_own else display_names.of(path)
