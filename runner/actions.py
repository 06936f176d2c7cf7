"""What happens after a loop or an evaluation: rows, TensorBoard, the best checkpoint, a line."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner import background, best, boards, controller, files, history, progress, records
from runner.errors import RunnerError

_TOGETHER = 0.1  # seconds; the rows of that time are handed over together


def arrays(logs: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """All of `logs`, nested names joined by "/"."""
    found: dict[str, np.ndarray] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found.update(arrays(value, f"{prefix}{name}/"))
        else:
            found[prefix + name] = np.asarray(value.numpy() if tf.is_tensor(value) else value)
    return found


def scalars(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `logs`, nested names joined by "/"; what is no scalar is left out."""
    return {
        name: float(array.reshape(()))
        for name, array in arrays(logs).items()
        if array.size == 1 and np.issubdtype(array.dtype, np.number)
    }


PACE = ("steps_per_second", "mfu", "input_wait")
"""What is in a row beside the metrics, and differs from run to run."""


class TrainingLog:
    """After a loop: a row of train.jsonl and TensorBoard's points, on the summary grid.

    TensorBoard may get more points, by the clock: another run has them elsewhere, so they are no
    rows.

    A thread reads the values and writes them, so that training goes on meanwhile: of short loops,
    those of a tenth of a second at once.

    Args:
        model_dir: The run's folder.
        resumed_at: The step that the run is at; what is newer is dropped.
        draws: Whether TensorBoard's events are written.
        draws_every: So many seconds after a point there is one more; 0: only those of the grid.
        utilization: From steps a second to `mfu`; None where that is not known.
        clock: Seconds, for tests to inject.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        resumed_at: int,
        draws: bool = True,
        draws_every: float = 0,
        utilization: Callable[[float], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path = model_dir / "train.jsonl"
        self._board = boards.TensorBoard(
            model_dir / "train" if draws else None, purge_from=resumed_at + 1
        )
        self._utilization = utilization
        self._clock = clock
        self._draws_every = draws_every if draws else 0
        self._drawn = clock() if self._draws_every else 0.0
        self._writer = background.Background()
        self._waiting: list[tuple[controller.Loop, Mapping[str, float]]] = []
        self._handed = -math.inf  # when rows were last handed over
        self._written = False  # a row that may not be on the disk yet
        self._steps, self._seconds = 0, 0.0  # since the last row
        self._drop_after(resumed_at)

    @property
    def step(self) -> int:
        """The step of the last row, 0 where there is none."""
        self._finish()
        return self._step

    @property
    def newest(self) -> dict[str, float]:
        """The values of the last row."""
        self._finish()
        return self._newest

    def write(self, loop: controller.Loop, *, input_wait: float | None = None) -> None:
        """Off the grid no row is written.

        Args:
            loop: The loop.
            input_wait: The share of its time that training waits for inputs; None while unknown.
        """
        self._steps += loop.steps
        self._seconds += loop.seconds
        if loop.summary:
            pace = self._pace(input_wait)
            self._steps, self._seconds = 0, 0.0
            self._waiting.append((loop, pace))
            if self._clock() - self._handed >= _TOGETHER:
                self._hand_over()
            self._drawn = self._clock()
        elif self._draws_every and self._clock() - self._drawn >= self._draws_every:
            self._draw(loop, self._pace(input_wait))
            self._drawn = self._clock()

    def _pace(self, input_wait: float | None) -> dict[str, float]:
        """That of the steps since the last row."""
        pace = {"steps_per_second": self._steps / self._seconds}
        if self._utilization:
            pace["mfu"] = self._utilization(pace["steps_per_second"])
        if input_wait is not None:
            pace["input_wait"] = input_wait
        return pace

    def _draw(self, loop: controller.Loop, pace: Mapping[str, float]) -> None:
        self._hand_over()  # points stay in the order of their steps
        self._writer.do(lambda: self._board.write(loop.step, {**scalars(loop.logs), **pace}))

    def do(self, work: Callable[[], None]) -> None:
        """Has the thread do something else as well; it is done when `flush` returns."""
        self._writer.do(work)

    def flush(self) -> None:
        """Every row is on the disk when this returns."""
        self._finish()
        if self._written:
            files.flush_file(self._path)
            self._written = False

    def rewind(self, step: int) -> None:
        """Forgets what is newer than `step`: it is trained again."""
        self._finish()
        self._board.purge(step + 1)
        self._drop_after(step)

    def close(self) -> None:
        """Flushes what is still to be written."""
        try:
            self._hand_over()
            self._writer.close()
        finally:
            self._board.close()

    def _finish(self) -> None:
        self._hand_over()
        self._writer.wait()

    def _hand_over(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._handed = self._clock()
            self._written = True
            self._writer.do(lambda: self._record(rows))

    def _record(self, rows: Sequence[tuple[controller.Loop, Mapping[str, float]]]) -> None:
        found = [(loop.step, scalars(loop.logs), pace) for loop, pace in rows]
        files.append_json_lines(self._path, (_row(*each) for each in found))
        for step, values, pace in found:
            self._board.write(step, {**values, **pace})
        self._step, self._newest = found[-1][:2]

    def _drop_after(self, step: int) -> None:
        newest = files.cut_json_lines(self._path, lambda row: self._step_of(row) <= step)
        self._step = int(newest["step"]) if newest else 0
        self._newest = _metrics(newest) if newest else {}

    def _step_of(self, row: Any) -> int:
        try:
            return int(row["step"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunnerError(
                f"{self._path} has a row that is none of training's ({str(row)[:80]}): remove it"
            ) from error


def _row(
    step: int, values: Mapping[str, float], pace: Mapping[str, float]
) -> dict[str, float | str]:
    rounded = {name: round(value, 4) for name, value in pace.items()}
    return {"step": step, **records.plain(values), **rounded}


Pictures = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""A task's method `pictures`: all results of one set, arrays included, to the set's pictures."""


def charts(results: Mapping[str, Any], pictures: Pictures | None) -> boards.Charts:
    """What the results of one set add to its charts."""
    return boards.Charts(scalars(results), pictures(arrays(results)) if pictures else {})


class EvaluationLog:
    """After an evaluation: a row of history, TensorBoard's points, the best checkpoint, a line.

    Args:
        rows: The history to add to.
        boards: Where the points go.
        keeper: The folders of the best checkpoints.
        line: What a person sees.
        home: The folder whose checkpoints are recorded by their names; others, by their paths.
    """

    def __init__(
        self,
        rows: history.History,
        boards: boards.Boards,
        keeper: best.BestCheckpoints,
        line: progress.Progress,
        *,
        home: Path,
    ) -> None:
        self._rows = rows
        self._boards = boards
        self._best = keeper
        self._line = line
        self._home = home.resolve()

    def write(
        self,
        step: int,
        logs: Mapping[str, Any],
        charts: Mapping[str, boards.Charts],
        *,
        seconds: float,
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> None:
        """Records the evaluation of checkpoint `source`, which is whole on disk or can be made.

        Args:
            step: The checkpoint's.
            logs: All results, by the names that they have in the row.
            charts: Of each set, by its name.
            seconds: How long it took.
            source: The checkpoint.
            commit: Makes it, if it is among the best and not there.
        """
        name = checkpoint_name(source, self._home)
        row = records.Row(step, scalars(logs), round(seconds, 3), time.time(), name)
        self._rows.append(row)
        self._boards.write(step, charts)
        self._line.evaluated(row, self.catch_up(source, commit))

    def names(self, step: int) -> set[str]:
        """The names of the metrics that were recorded for `step`, which is the newest of all."""
        newest = itertools.takewhile(lambda row: row.step == step, reversed(self._rows.rows))
        return {name for row in newest for name in row.metrics}

    def catch_up(
        self, source: Path, commit: Callable[[], object] | None = None
    ) -> records.Row | None:
        """Makes the best checkpoint's folder follow from the rows, as after a kill in between.

        Args:
            source: A checkpoint beside which the best one may lie.
            commit: Makes it, if it is among the best and not there.

        Returns:
            The best evaluation, None while there is none.
        """
        return self._best.update(self._rows.rows, source, commit)


def checkpoint_name(path: Path, home: Path) -> str:
    """What a row calls a checkpoint: its name, or its path where it is outside of `home`."""
    path = path.resolve()
    return path.name if path.is_relative_to(home.resolve()) else str(path)


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if name not in ("step", *PACE)}
