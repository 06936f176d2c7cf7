"""The test at the end of a run: the best weights, once."""

import time
from pathlib import Path
from typing import Any, Literal

from runner.checkpoints import checkpoint_files, checkpoint_manager
from runner.configuration import run_validation
from runner.core import console, layout
from runner.evaluation import evaluation_log, evaluation_sets, evaluator
from runner.history import history, records
from runner.reporting import progress, scalars, tensorboard

Weights = Literal["best", "last"]


class FinalTest:
    """Tests the best weights of a run, and the last ones where that is asked for.

    Each result is a row of history, named `test/...`, and a point in the folder `test` at the step
    of the weights. A test that history has already is not done again.

    Args:
        built: The evaluator.
        dataset: The test data, distributed.
        folder: The run's, or the evaluator's own.
        best: The folder of the best checkpoint, None where none is kept.
        best_from: Evaluations before this step are not best.
        rows: The history in `folder`.
        last: Whether the last weights are tested, too.
        draws: Whether results go to TensorBoard.
        pictures: Draws the results; None draws nothing.
    """

    def __init__(
        self,
        built: evaluator.Evaluator,
        dataset: Any,
        folder: Path,
        *,
        best: Path | None,
        best_from: int,
        rows: history.History,
        last: bool,
        draws: bool = True,
        pictures: evaluation_log.Pictures | None = None,
    ) -> None:
        self._evaluator = built
        self._dataset = dataset
        self._folder = folder
        self._best = best
        self._best_from = best_from
        self._rows = rows
        self._last = last
        self._draws = draws
        self._pictures = pictures

    def run(self, step: int, last: Path) -> dict[str, Any]:
        """Tests the last weights if asked to, then the best; these are the present ones after.

        Without a best checkpoint the last weights are tested.

        Args:
            step: Where the run ended.
            last: The last checkpoint.

        Returns:
            For JSON: `best` and `last`, what was tested of them, each with `step` and `metrics`.
        """
        best = checkpoint_files.latest(self._best) if self._best else None
        if best is None:
            why = self._too_early()
            console.say(f"there is no best checkpoint{why}: the last weights are tested")
        tested: dict[str, records.Test] = {}
        if self._last or best is None:
            tested["last"] = self._test(step, "last", last)
        if best is not None:
            tested["best"] = self._test(step, "best", best)
        return {
            weights: {"step": row.tested, "metrics": records.plain(row.metrics)}
            for weights, row in tested.items()
        }

    def _too_early(self) -> str:
        """Why there is no best checkpoint, where all evaluations came too early for one."""
        if self._best_from and all(row.step < self._best_from for row in self._rows.evaluations):
            return f", as no evaluation came at step {self._best_from:,} or later"
        return ""

    def _test(self, step: int, weights: Weights, path: Path) -> records.Test:
        key = (step, weights, checkpoint_manager.step_of(path))
        for row in self._rows.of(records.Test):
            if (row.step, row.weights, row.tested) == key:
                return row
        self._evaluator.restore(path)
        start = time.perf_counter()
        logs = self._evaluator.evaluate_on(self._dataset, "TestConfig.data")
        seconds = round(time.perf_counter() - start, 3)
        metrics = scalars.scalars(evaluation_sets.named(logs, run_validation.TEST))
        row = records.Test(*key, metrics, seconds, time.time(), path.name)
        self._rows.append(row)
        self._draw(weights, row.tested, evaluation_log.charts(logs, self._pictures))
        console.say(
            f"tested the {weights} weights, of step {row.tested:,}, in {seconds:.1f} s: "
            f"{progress.values(metrics)}"
        )
        return row

    def _draw(self, weights: Weights, step: int, charts: tensorboard.Charts) -> None:
        folder = self._folder / (layout.TEST if weights == "best" else layout.TEST_LAST)
        board = tensorboard.TensorBoard(folder if self._draws else None)
        board.write(step, charts.points)
        board.draw(step, charts.pictures)
        board.close()
