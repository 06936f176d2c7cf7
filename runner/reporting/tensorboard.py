"""TensorBoard's events: points, pictures, and what its plugins read."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import event_file_writer

from runner.core import closing
from runner.errors import RunnerError
from runner.reporting.writers import Writers

# Train and validation loss share a tag, so that TensorBoard draws them on one chart.
_TAGS = {"training_loss": "loss", "validation_loss": "loss"}


class TensorBoard:
    """A TensorBoard run, written by its own thread.

    Args:
        folder: The run's folder; None writes nothing.
        purge_from: Hides what an earlier start wrote at this step or later; None hides nothing.
        suffix: The end of the file's name.
    """

    def __init__(
        self, folder: Path | None, *, purge_from: int | None = None, suffix: str = ""
    ) -> None:
        self._writer = (
            event_file_writer.EventFileWriter(str(folder), filename_suffix=suffix)
            if folder
            else None
        )
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
        self.add(step, summary_pb2.Summary(value=points))

    def draw(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        """Adds one picture, uint8 [height, width, 1 or 3], to each chart."""
        for name, picture in pictures.items():
            value = summary_pb2.Summary.Value(tag=name, image=_image(name, picture))
            self.add(step, summary_pb2.Summary(value=[value]))

    def add(self, step: int, summary: summary_pb2.Summary) -> None:
        """Adds a finished summary."""
        self._add(event_pb2.Event(step=step, summary=summary))

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


class Charts(NamedTuple):
    """What an evaluation adds to the charts of one set of data, by their names.

    Attributes:
        points: The metrics that are scalars.
        pictures: uint8 [height, width, 1 or 3].
    """

    points: Mapping[str, float]
    pictures: Mapping[str, np.ndarray]


class Boards:
    """TensorBoard's folders for evaluations: one per set of data, all with the same charts.

    Args:
        folders: By the set's name, which is empty for the validation data.
        purge_from: As `TensorBoard`'s.
        writers: The user's own writers, which get the same points; closed with these.
    """

    def __init__(
        self,
        folders: Mapping[str, Path | None],
        *,
        purge_from: int | None = None,
        writers: Writers | None = None,
    ) -> None:
        self._writers = writers or Writers()
        self._boards = {
            name: TensorBoard(folder, purge_from=purge_from) for name, folder in folders.items()
        }

    def write(self, step: int, charts: Mapping[str, Charts]) -> None:
        """Adds to the charts of some sets; the points are on disk when this returns."""
        for name, each in charts.items():
            self._boards[name].write(step, each.points)
            self._boards[name].draw(step, each.pictures)
            self._boards[name].flush()
            self._writers.write(step, each.points, name or "validation")

    def close(self) -> None:
        """Flushes, and ends the threads."""
        closing.close(*self._boards.values(), self._writers)


def _image(name: str, picture: np.ndarray) -> summary_pb2.Summary.Image:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3):
        raise RunnerError(
            f"the task's picture {name!r} is {picture.dtype} {list(picture.shape)}; expected "
            "uint8 [height, width, 1 or 3]"
        )
    height, width, channels = picture.shape
    return summary_pb2.Summary.Image(
        height=height,
        width=width,
        colorspace=channels,
        encoded_image_string=tf.io.encode_png(picture).numpy(),
    )
