"""Measures the cost of a long history: loading it, and recording one more evaluation."""

import io
import json
import statistics
import time
from pathlib import Path

import numpy as np

from runner import config
from runner.checkpoints import best
from runner.core import console
from runner.evaluation import evaluation_log
from runner.history import best_evaluation, history, records
from runner.reporting import progress, tensorboard
from runner.training import decisions

_METRICS = ("accuracy", "macro_f1", "top_5_accuracy", "calibration_error", "validation_loss")
_INTERVAL = 100  # steps
_RECORDED = 50  # evaluations in a round


class LongHistory:
    """A run's history and what is computed from it: decisions and the best checkpoint.

    Times are CPU seconds, because the time to wait for the disk does not depend on the length.

    Args:
        folder: The run's directory.
        length: The number of evaluations.
    """

    def __init__(self, folder: Path, length: int) -> None:
        folder.mkdir()
        self.length = length
        self._folder = folder
        self._random = np.random.default_rng(0)
        self._step = 0
        lines = [json.dumps(self._row().as_dict()) + "\n" for _ in range(length)]
        (folder / "history.jsonl").write_text("".join(lines))
        self._rows = history.History(folder / "history.jsonl")
        accuracy = {"higher": ("accuracy",)}
        watching = {"early_stopping": {**accuracy, "patience": 10**9}, "plateau": accuracy}
        experiment = config.Experiment()
        experiment.override({"run": watching})
        self._decisions = decisions.Decisions(experiment, folder, self._rows)
        self._log = evaluation_log.EvaluationLog(
            self._rows,
            tensorboard.Boards({"": folder / "validation"}),
            best.BestCheckpoints(
                [best.BestCheckpoint(folder / "best", best_evaluation.BestRule("accuracy"))]
            ),
            progress.Progress(screen=console.Console(io.StringIO())),
            home=folder,
        )
        self.record()

    def open(self) -> float:
        """Returns the seconds to load the history into memory."""
        start = time.process_time()
        history.History(self._folder / "history.jsonl")
        return time.process_time() - start

    def record(self) -> float:
        """Returns the seconds to record one evaluation and update what is computed from it."""
        seconds = []
        for _ in range(_RECORDED):
            row = self._row()
            newest = self._folder / row.checkpoint
            for end in ("data-00000-of-00001", "index"):
                Path(f"{newest}.{end}").touch()
            charts = {"": tensorboard.Charts(row.metrics, {})}
            start = time.process_time()
            self._log.write(row.step, row.metrics, charts, seconds=row.seconds, source=newest)
            self._decisions.evaluated()
            seconds.append(time.process_time() - start)
            for file in self._folder.glob(f"{newest.name}.*"):
                file.unlink()
        return statistics.median(seconds)

    def _row(self) -> records.Evaluation:
        self._step += _INTERVAL
        values = dict(zip(_METRICS, self._random.random(len(_METRICS)).tolist(), strict=True))
        return records.Evaluation(self._step, values, 0.125, time.time(), f"ckpt-{self._step}")
