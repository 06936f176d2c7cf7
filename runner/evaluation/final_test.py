"""Tests the best weights once at the end of a run."""

import contextlib
import functools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from runner.checkpoints import checkpoint_files, restore
from runner.config import Experiment
from runner.configuration import run_validation
from runner.core import console, layout
from runner.evaluation import evaluation_log, evaluation_sets, evaluator
from runner.evaluation.prediction import made_of
from runner.history import history, records
from runner.reporting import progress, scalars, tensorboard

Weights = Literal["best", "last"]


def build(
    config: Experiment,
    built: evaluator.Evaluator,
    folder: Path,
    *,
    best_folders: Iterable[Path],
    rows: history.History,
) -> "FinalTest | None":
    """The final test, recorded in `folder`, or None if no test data are configured."""
    if config.run.test.data is None:
        return None
    with built.strategy.scope():
        return FinalTest(config, built, folder, best_folders=best_folders, rows=rows)


class FinalTest:
    """Tests the best weights of a run and, if configured, the last ones.

    Each result is a row of history, named `test/...`, and a point in the directory `test` at the
    step of the weights. A test that is already in the history is not repeated.

    Create it inside the strategy's scope.

    Args:
        config: The experiment.
        built: The evaluator, which holds the last weights at the end.
        folder: The directory of the run, or the evaluator's own.
        best_folders: The directories of best checkpoints. The first one's checkpoint is tested.
        rows: The history in `folder`.
    """

    def __init__(
        self,
        config: Experiment,
        built: evaluator.Evaluator,
        folder: Path,
        *,
        best_folders: Iterable[Path],
        rows: history.History,
    ) -> None:
        data = config.run.test.data
        self._config = config
        self._evaluator = built
        self._dataset = evaluation_sets.dataset(config, built.task, data, "TestConfig.data")
        self._folder = folder
        self._best = next(iter(best_folders), None)
        self._rows = rows
        self._pictures = evaluation_log.drawing(config, built.task)

    def run(self, step: int, last: Path) -> dict[str, Any]:
        """Tests the last weights if configured, then the best, which remain loaded.

        If there is no best checkpoint, the last weights are tested.

        Args:
            step: The last step of the run.
            last: The last checkpoint.

        Returns:
            For JSON: the tested ones of `best` and `last`, each with `step` and `metrics`.
        """
        best = checkpoint_files.latest(self._best) if self._best else None
        if best is None:
            why = self._too_early()
            console.say(f"testing the last weights, because there is no best checkpoint{why}")
        tested: dict[str, records.Test] = {}
        if self._config.run.test.last or best is None:
            tested["last"] = self._test(step, "last", last)
        if best is not None:
            tested["best"] = self._test(step, "best", best)
        return {
            weights: {"step": row.tested, "metrics": records.plain(row.metrics)}
            for weights, row in tested.items()
        }

    @functools.cached_property
    def _data(self) -> str:
        """Identifies the test data. Empty if their files cannot be listed."""
        with contextlib.suppress(OSError):
            return made_of.digest(self._config.run.test.data)
        return ""

    def _too_early(self) -> str:
        """Explains the missing best checkpoint, if all evaluations were too early for one."""
        first = self._config.run.retention.from_step
        if first and all(row.step < first for row in self._rows.evaluations):
            return f", as there was no evaluation at step {first:,} or later"
        return ""

    def _test(self, step: int, weights: Weights, path: Path) -> records.Test:
        key = (step, weights, restore.step_of(path))
        for row in self._rows.of(records.Test):
            if (row.step, row.weights, row.tested) == key:
                if row.data and self._data not in ("", row.data):
                    console.say(
                        "TestConfig.data or its files have changed since the recorded test; to "
                        "test again, use --mode=eval --data=test with another EvaluatorConfig.name"
                    )
                return row
        self._evaluator.restore(path)
        start = time.perf_counter()
        limit = self._config.run.limit_evaluation
        logs = self._evaluator.evaluate_on(self._dataset, "TestConfig.data", limit=limit)
        seconds = round(time.perf_counter() - start, 3)
        metrics = scalars.scalars(evaluation_sets.named(logs, run_validation.TEST))
        row = records.Test(*key, metrics, seconds, time.time(), path.name, limit, self._data)
        self._rows.append(row)
        self._draw(weights, row.tested, self._charts(logs))
        console.say(
            f"tested the {weights} weights (step {row.tested:,}) in {seconds:.1f} s"
            f"{progress.limited(row)}: "
            f"{progress.values(metrics)}"
        )
        return row

    def _charts(self, logs: Mapping[str, Any]) -> tensorboard.Charts:
        return evaluation_log.charts(logs, self._pictures, self._evaluator.summaries.take())

    def _draw(self, weights: Weights, step: int, charts: tensorboard.Charts) -> None:
        folder = self._folder / (layout.TEST if weights == "best" else layout.TEST_LAST)
        board = tensorboard.TensorBoard(folder if self._config.run.draws(layout.TEST) else None)
        board.chart(step, charts)
        board.close()
