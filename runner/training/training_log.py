"""The log of training loops: rows of train.jsonl and TensorBoard's points."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.core import background, files, layout, schedule
from runner.errors import RunnerError
from runner.history import records
from runner.reporting import scalars, task_summaries, tensorboard
from runner.reporting.writers import Writers

_TOGETHER = 0.1  # seconds: rows within this time are handed off together


class TrainingLog:
    """Writes rows of train.jsonl and TensorBoard's points after loops, on the summary schedule.

    TensorBoard may get extra points at time intervals. Their steps differ between runs, so they are
    not rows.

    A thread reads and writes the values while training continues. Those of short loops are
    batched, a tenth of a second at a time.

    Args:
        model_dir: The run's directory.
        resumed_at: The current step of the run. Newer rows are dropped.
        draws: Whether TensorBoard's events are written.
        writes: Whether rows are written.
        draws_every: Seconds after a point until an extra one. 0: only scheduled points.
        utilization: Maps steps per second to `mfu`. None if that is unknown.
        writers: The user's own writers, which get every row.
        tags: As for TensorBoard.
        summaries: The output of `tf.summary` in the task's steps.
        graph: The training step's graph, to be drawn. None: none.
        clock: Returns seconds. Tests inject it.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        resumed_at: int,
        draws: bool = True,
        writes: bool = True,
        draws_every: float = 0,
        utilization: Callable[[float], float] | None = None,
        writers: Writers | None = None,
        tags: Mapping[str, str] = tensorboard.SHARED_TAGS,
        summaries: task_summaries.Summaries | None = None,
        graph: tf.Graph | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path = model_dir / layout.TRAINING_ROWS
        self._board = tensorboard.TensorBoard(
            model_dir / layout.TRAIN if draws else None, purge_from=resumed_at + 1, tags=tags
        )
        if graph and draws:
            self._board.graph(graph)
        self._summaries = summaries or task_summaries.Summaries()
        self._writes = writes
        self._utilization = utilization
        self._writers = writers or Writers()
        self._clock = clock
        self._draws_every = draws_every if draws else 0
        self._drawn = clock() if self._draws_every else 0.0
        self._writer = background.Background()
        self._waiting: list[tuple[schedule.Loop, Mapping[str, float]]] = []
        self._handed = -math.inf  # when rows were last handed off
        self._written = self._drew = False  # whether rows and points may not be on disk yet
        self._steps, self._seconds = 0, 0.0  # since the last row
        self._drop_after(resumed_at)

    pace_before: float | None
    """The steps per second of the last row before this attempt. None if there is none."""

    @property
    def step(self) -> int:
        """The step of the last row, or 0 if there is none."""
        self._finish()
        return self._step

    @property
    def newest(self) -> dict[str, float]:
        """The values of the last row."""
        self._finish()
        return self._newest

    def write(
        self,
        loop: schedule.Loop,
        *,
        input_wait: float | None = None,
        times: Mapping[str, float] | None = None,
    ) -> None:
        """Records a loop. Adds a row only on the schedule.

        Args:
            loop: The loop.
            input_wait: The share of its time that training waits for inputs. None while unknown.
            times: Further times for its row, if it has one.
        """
        self._steps += loop.steps
        self._seconds += loop.seconds
        if loop.summary:
            pace = {**self._pace(input_wait), **(times or {})}
            self._steps, self._seconds = 0, 0.0
            self._waiting.append((loop, pace))
            if self._clock() - self._handed >= _TOGETHER:
                self._hand_over()
            self._drawn = self._clock()
        elif self._draws_every and self._clock() - self._drawn >= self._draws_every:
            self._draw(loop, self._pace(input_wait))
            self._drawn = self._clock()

    def _pace(self, input_wait: float | None) -> dict[str, float]:
        """The throughput since the last row."""
        pace = {"steps_per_second": self._steps / self._seconds}
        if self._utilization:
            pace["mfu"] = self._utilization(pace["steps_per_second"])
        if input_wait is not None:
            pace["input_wait"] = input_wait
        return pace

    def _draw(self, loop: schedule.Loop, pace: Mapping[str, float]) -> None:
        self._hand_over()  # points stay in the order of their steps
        self._drew = True
        self._writer.do(lambda: self._draw_now(loop, pace))

    def _draw_now(self, loop: schedule.Loop, pace: Mapping[str, float]) -> None:
        self._board.write(loop.step, {**scalars.scalars(loop.logs), **pace})
        self._board.show()

    def do(self, work: Callable[[], None]) -> None:
        """Queues other work for the thread. It is done when `flush` returns."""
        self._writer.do(work)

    def flush(self) -> None:
        """Waits until every row and every point of TensorBoard is on disk."""
        self._finish()
        self._add_summaries()
        if self._written:
            files.flush_file(self._path)
            self._written = False
        if self._drew:
            self._board.flush()
            self._drew = False

    def rewind(self, step: int) -> None:
        """Drops everything newer than `step`, because it will be trained again."""
        self._finish()
        self._board.purge(step + 1)
        self._drop_after(step)

    def close(self) -> None:
        """Flushes pending rows and points."""
        try:
            self._hand_over()
            self._writer.close()
            self._add_summaries()
        finally:
            self._board.close()

    def _finish(self) -> None:
        self._hand_over()
        self._writer.wait()

    def _hand_over(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._handed = self._clock()
            self._written, self._drew = self._writes, True
            self._writer.do(lambda: self._record(rows))

    def _record(self, rows: Sequence[tuple[schedule.Loop, Mapping[str, float]]]) -> None:
        found = [(loop.step, scalars.scalars(loop.logs), pace) for loop, pace in rows]
        if self._writes:
            files.append_json_lines(self._path, (_row(*each) for each in found))
            self._step = found[-1][0]
        for step, values, pace in found:
            self._board.write(step, {**values, **pace})
            self._writers.write(step, {**values, **pace}, "train")
        self._board.add_all(self._summaries.take())
        self._board.show()
        self._newest = found[-1][1]

    def _add_summaries(self) -> None:
        if events := self._summaries.take():
            self._board.add_all(events)
            self._drew = True

    def _drop_after(self, step: int) -> None:
        newest = files.cut_json_lines(self._path, lambda row: _step_of(row, self._path) <= step)
        self._step = int(newest["step"]) if newest else 0
        self._newest = _metrics(newest) if newest else {}
        pace = newest.get("steps_per_second") if newest else None
        self.pace_before = pace if isinstance(pace, int | float) and pace > 0 else None


def newest_step(model_dir: Path) -> int:
    """Returns the step of the newest training row, or 0 without one.

    Incomplete lines at the end of the file are removed.

    Raises:
        RunnerError: a line is not a training row.
    """
    path = model_dir / layout.TRAINING_ROWS
    newest = files.cut_json_lines(path, lambda row: _step_of(row, path) >= 0)
    return int(newest["step"]) if newest else 0


def _step_of(row: Any, path: Path) -> int:
    try:
        return int(row["step"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunnerError(
            f"{path} has a row that is not a training row ({str(row)[:80]}): remove it"
        ) from error


def _row(
    step: int, values: Mapping[str, float], pace: Mapping[str, float]
) -> dict[str, float | str]:
    rounded = {name: round(value, 4) for name, value in pace.items()}
    return {"step": step, **records.plain(values), **rounded}


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value) for name, value in row.items() if name not in ("step", *records.PACE)
    }
