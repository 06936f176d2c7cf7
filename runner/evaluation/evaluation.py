"""Evaluates the weights that a trainer holds, and records the result."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from runner.core import console, schedule
from runner.evaluation import evaluation_log, evaluation_sets, evaluator
from runner.reporting import tensorboard


class Scores(NamedTuple):
    """The results of an evaluation.

    Attributes:
        logs: All results, by their names in the row.
        charts: The charts of each set, by the set's name.
        seconds: The duration.
    """

    logs: Mapping[str, Any]
    charts: Mapping[str, tensorboard.Charts]
    seconds: float


class Evaluation:
    """Evaluates an evaluator's current weights on the scheduled sets, and records one row.

    Args:
        built: The evaluator, with its weights restored or trained.
        log: Records results. Also an attribute.
        batches: The number of batches of the validation data, or -1 for all of them.
        sets: The sets to evaluate, including the validation data.
        grid: The schedule of each set. None: always evaluate all of them.
        actions: Called with each result.
        pictures: Draws the results of a set. None: no images.
    """

    def __init__(
        self,
        built: evaluator.Evaluator,
        log: evaluation_log.EvaluationLog,
        *,
        batches: int,
        sets: Sequence[evaluation_sets.EvaluationSet],
        grid: schedule.Grid | None = None,
        actions: Sequence[schedule.Action] = (),
        pictures: evaluation_log.Pictures | None = None,
    ) -> None:
        self._evaluator = built
        self.log = log
        self._batches = batches
        self._sets = tuple(sets)
        self._grid = grid
        self._actions = tuple(actions)
        self._pictures = pictures
        self._told = False

    def run(
        self,
        step: int,
        source: Path,
        *,
        before_record: Callable[[], None] = lambda: None,
        commit: Callable[[], object] | None = None,
    ) -> str | None:
        """Evaluates, calls `before_record`, and records the result as checkpoint `source`'s.

        If there is no such checkpoint, `commit` creates it once the result is among the best.

        Returns:
            The reason to stop that an action gave, or None.
        """
        return self._run(self._due(step), step, source, before_record, commit)

    def score(self, step: int) -> Scores:
        """Evaluates the sets that are scheduled at `step`, without recording the result."""
        return self._score(self._due(step))

    def score_all(self) -> Scores:
        """Evaluates all sets, without recording the result."""
        return self._score(self._sets)

    def record(
        self,
        step: int,
        source: Path,
        scores: Scores,
        *,
        commit: Callable[[], object] | None = None,
    ) -> None:
        """Records the scores of checkpoint `source`. `commit` is as for `run`."""
        logs, charts, seconds = scores
        self.log.write(step, logs, charts, seconds=seconds, source=source, commit=commit)

    def act(self, scores: Scores) -> str | None:
        """Calls the actions. Returns the first reason to stop, or None."""
        reasons = [action(scores.logs) for action in self._actions]
        return next((reason for reason in reasons if isinstance(reason, str)), None)

    def finish(
        self, step: int, source: Path, *, before_record: Callable[[], None] = lambda: None
    ) -> None:
        """Evaluates the sets without a result at `step`, if a run ended before its last step."""
        names = self.log.names(step)
        if left := [each for each in self._sets if not self._is_among(each, names)]:
            self._run(left, step, source, before_record, None)

    def _run(
        self,
        due: Sequence[evaluation_sets.EvaluationSet],
        step: int,
        source: Path,
        before_record: Callable[[], None],
        commit: Callable[[], object] | None,
    ) -> str | None:
        scores = self._score(due)
        before_record()
        self.record(step, source, scores, commit=commit)
        return self.act(scores)

    def _score(self, due: Sequence[evaluation_sets.EvaluationSet]) -> Scores:
        start = time.perf_counter()
        logs: dict[str, Any] = {}
        charts: dict[str, tensorboard.Charts] = {}
        for each in due:
            began = time.perf_counter()
            found = self._evaluate(each)
            seconds = time.perf_counter() - began
            logs.update(each.named(found))
            pictures = self._pictures if each.task is None else None
            written = self._evaluator.summaries.take()
            drawn = evaluation_log.charts(found, pictures, written)
            if each.dataset is None and self._batches > 0:  # the name that Orbit uses in training
                points = {**drawn.points, "steps_per_second": self._batches / seconds}
                drawn = drawn._replace(points=points)
            charts[each.name] = drawn
        return Scores(logs, charts, time.perf_counter() - start)

    def _due(self, step: int) -> Sequence[evaluation_sets.EvaluationSet]:
        if self._grid is None:
            return self._sets
        return [each for each in self._sets if self._grid.due(step, each.interval)]

    def _is_among(self, each: evaluation_sets.EvaluationSet, names: Collection[str]) -> bool:
        """Whether one of these names is a metric of this set."""
        prefixes = [other.prefix for other in self._sets]
        return any(evaluation_sets.prefix_of(name, prefixes) == each.prefix for name in names)

    def _evaluate(self, each: evaluation_sets.EvaluationSet) -> evaluator.Logs:
        if each.dataset is not None:
            chosen = [limit for limit in (each.batches, self.log.limited) if limit]
            return self._evaluator.evaluate_on(
                each.dataset, each.title, limit=min(chosen, default=0)
            )
        logs = self._evaluator.evaluate(tf.constant(self._batches))
        if self._evaluator.left_out and not self.log.limited and not self._told:
            self._told = True
            steps = f"TrainerConfig.validation_steps = {self._batches}"
            console.say(f"{steps} skips part of the validation data; -1 evaluates all examples")
        return logs
