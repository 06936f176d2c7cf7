"""What happens after a loop or an evaluation: rows, TensorBoard, the best checkpoint, a line."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import event_file_writer

from runner import best, controller, files, history, progress

# Train and validation loss share a tag, so that TensorBoard draws them on one chart.
_TAGS = {"training_loss": "loss", "validation_loss": "loss"}


def scalars(logs: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of `logs`, nested names joined by "/"; what is no scalar is left out."""
    numbers: dict[str, float] = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            numbers.update(scalars(value, f"{prefix}{name}/"))
            continue
        array = np.asarray(value.numpy() if tf.is_tensor(value) else value)
        if array.size == 1 and np.issubdtype(array.dtype, np.number):
            numbers[prefix + name] = float(array.reshape(()))
    return numbers


class TensorBoard:
    """Scalars for TensorBoard, written by its own thread.

    Args:
        folder: Becomes a run of TensorBoard's; None writes nothing.
        purge_from: What an earlier start wrote at this step or later is hidden; None hides nothing.
    """

    def __init__(self, folder: Path | None, *, purge_from: int | None = None) -> None:
        self._writer = event_file_writer.EventFileWriter(str(folder)) if folder else None
        if purge_from is not None:
            self.purge(purge_from)

    def purge(self, step: int) -> None:
        """Hides what was written at `step` or later until now."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(event_pb2.Event(step=step, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each chart."""
        points = [
            summary_pb2.Summary.Value(tag=_TAGS.get(name, name), simple_value=value)
            for name, value in values.items()
        ]
        self._add(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=points)))

    def flush(self) -> None:
        """Everything written is on disk when this returns."""
        if self._writer:
            self._writer.flush()

    def close(self) -> None:
        """Flushes, and ends the thread."""
        if self._writer:
            self._writer.close()

    def _add(self, event: event_pb2.Event) -> None:
        event.wall_time = time.time()
        if self._writer:
            self._writer.add_event(event)


class TrainingLog:
    """After a loop: a row of train.jsonl and TensorBoard's points, on the summary grid."""

    def __init__(self, model_dir: Path, *, resumed_at: int, draws: bool = True) -> None:
        self._path = model_dir / "train.jsonl"
        self._board = TensorBoard(model_dir / "train" if draws else None, purge_from=resumed_at + 1)
        self.newest: dict[str, float] = {}
        self._drop_after(resumed_at)

    def write(self, loop: controller.Loop) -> None:
        """Does nothing off the grid."""
        if not loop.summary:
            return
        values = scalars(loop.logs)
        rate = loop.steps / loop.seconds
        row = {"step": loop.step, **history.plain(values), "steps_per_second": round(rate, 3)}
        files.append_json_line(self._path, row)
        self._board.write(loop.step, {**values, "steps_per_second": rate})
        self.newest = values

    def rewind(self, step: int) -> None:
        """Forgets what is newer than `step`: it is trained again."""
        self._board.purge(step + 1)
        self._drop_after(step)

    def close(self) -> None:
        """Flushes TensorBoard's points."""
        self._board.close()

    def _drop_after(self, step: int) -> None:
        rows = list(files.read_json_lines(self._path))
        kept = [row for row in rows if row["step"] <= step]
        if len(kept) < len(rows):
            files.write_json_lines(self._path, kept)
        self.newest = _metrics(kept[-1]) if kept else {}


class Boards:
    """TensorBoard's folders of an evaluation: one a set of data, all with the same charts.

    Args:
        folders: By the set's name, which is empty for the validation data.
        purge_from: As `TensorBoard`'s.
    """

    def __init__(
        self, folders: Mapping[str, Path | None], *, purge_from: int | None = None
    ) -> None:
        self._boards = {
            name: TensorBoard(folder, purge_from=purge_from) for name, folder in folders.items()
        }

    def write(self, step: int, points: Mapping[str, Mapping[str, float]]) -> None:
        """Adds the points of some sets; they are on disk when this returns."""
        for name, values in points.items():
            self._boards[name].write(step, values)
            self._boards[name].flush()

    def close(self) -> None:
        """Flushes, and ends the threads."""
        for board in self._boards.values():
            board.close()


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
        boards: Boards,
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
        points: Mapping[str, Mapping[str, float]],
        *,
        seconds: float,
        source: Path,
    ) -> None:
        """Records the evaluation of checkpoint `source`, which is whole on disk.

        Args:
            step: The checkpoint's.
            logs: All results, by the names that they have in the row.
            points: The results of each set by its name, as its charts are named.
            seconds: How long it took.
            source: The checkpoint.
        """
        row = history.Row(
            step, scalars(logs), round(seconds, 3), time.time(), checkpoint_name(source, self._home)
        )
        self._rows.append(row)
        self._boards.write(step, points)
        self._line.evaluated(row, self.catch_up(source))

    def names(self, step: int) -> set[str]:
        """The names of the metrics that were recorded for `step`."""
        return {name for row in self._rows.rows if row.step == step for name in row.metrics}

    def catch_up(self, source: Path) -> history.Row | None:
        """Makes the best checkpoint's folder follow from the rows, as after a kill in between.

        Args:
            source: A checkpoint beside which the best one may lie.

        Returns:
            The best evaluation, None while there is none.
        """
        return self._best.update(self._rows.rows, source)


def checkpoint_name(path: Path, home: Path) -> str:
    """What a row calls a checkpoint: its name, or its path where it is outside of `home`."""
    path = path.resolve()
    return path.name if path.is_relative_to(home.resolve()) else str(path)


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in row.items()
        if name not in ("step", "steps_per_second")
    }
