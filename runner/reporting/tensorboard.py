"""Writes TensorBoard events: points, images, and the data of its plugins."""

import contextlib
import io
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2

from runner.core import closing, files
from runner.errors import RunnerError
from runner.reporting import event_records
from runner.reporting.writers import Writers

SHARED_TAGS = {"training_loss": "loss", "validation_loss": "loss"}
"""Training and validation loss share a tag, so that TensorBoard draws them on one chart."""

_numbers = itertools.count()  # numbers this process's files


class TensorBoard:
    """A TensorBoard run: one event file.

    Args:
        folder: The run's directory. None writes nothing.
        purge_from: Hides events of earlier attempts at or after this step. None hides nothing.
        suffix: The end of the file's name.
        tags: The tags of some values. Other values use their names.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        purge_from: int | None = None,
        suffix: str = "",
        tags: Mapping[str, str] = SHARED_TAGS,
    ) -> None:
        self._tags = tags
        self._file = _EventFile(folder, suffix) if folder else None
        if purge_from is not None:
            self.purge(purge_from)

    def purge(self, step: int) -> None:
        """Hides the events written so far at `step` or later."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(event_pb2.Event(step=step, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each chart."""
        points = [
            summary_pb2.Summary.Value(tag=self._tags.get(name, name), simple_value=value)
            for name, value in values.items()
        ]
        self.add(step, summary_pb2.Summary(value=points))

    def draw(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        """Adds one image, uint8 [height, width, 1 or 3], to each chart."""
        for name, picture in pictures.items():
            value = summary_pb2.Summary.Value(tag=name, image=_image(name, picture))
            self.add(step, summary_pb2.Summary(value=[value]))

    def chart(self, step: int, charts: "Charts") -> None:
        """Adds an evaluation's output."""
        self.write(step, charts.points)
        self.draw(step, charts.pictures)
        self.add_all(charts.written)

    def graph(self, graph: tf.Graph) -> None:
        """Adds a graph, with the functions that it calls and with shapes."""
        self._add(
            event_pb2.Event(graph_def=graph.as_graph_def(add_shapes=True).SerializeToString())
        )

    def add(self, step: int, summary: summary_pb2.Summary) -> None:
        """Adds a complete summary."""
        self._add(event_pb2.Event(step=step, summary=summary))

    def add_all(self, events: Iterable[event_pb2.Event]) -> None:
        """Adds the events that a task has written."""
        for event in events:
            self.add(event.step, event.summary)

    def show(self) -> None:
        """Makes all events visible to TensorBoard before it returns."""
        if self._file:
            self._file.show()

    def flush(self) -> None:
        """Writes all events to disk before it returns."""
        if self._file:
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        if self._file:
            self._file.close()

    def _add(self, event: event_pb2.Event) -> None:
        event.wall_time = time.time()
        if self._file:
            self._file.write(event)


class _EventFile:
    """A new event file with a unique name. Several threads may write to it.

    Args:
        folder: Its directory, created if missing.
        suffix: The end of its name.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        files.make_folder(folder)
        which = f"{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self.path = folder / f"events.out.tfevents.{which}{suffix}"
        self._lock = threading.Lock()
        self._waiting = io.BytesIO()
        with files.naming(self.path):
            self._file = self.path.open("xb")
        self.write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()
        files.flush_file(folder)

    def write(self, event: event_pb2.Event) -> None:
        """Adds an event to the buffer in memory."""
        with self._lock:
            self._waiting.write(event_records.packed(event.SerializeToString()))

    def show(self) -> None:
        """Passes all buffered events to the operating system."""
        with self._lock, files.naming(self.path):
            files.check(self.path)
            self._file.write(self._waiting.getvalue())
            self._file.flush()
            self._waiting.seek(0)
            self._waiting.truncate()

    def flush(self) -> None:
        """Writes all events to disk before it returns."""
        self.show()
        with files.naming(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flushes and closes the file."""
        if not self._file.closed:
            with contextlib.closing(self._file):
                self.flush()


class Charts(NamedTuple):
    """An evaluation's additions to the charts of one data set, by chart name.

    Attributes:
        points: The metrics that are scalars.
        pictures: uint8 [height, width, 1 or 3].
        written: The task's `tf.summary` events during the evaluation.
    """

    points: Mapping[str, float]
    pictures: Mapping[str, np.ndarray]
    written: Sequence[event_pb2.Event] = ()


class Boards:
    """TensorBoard directories for evaluations: one per data set, all with the same charts.

    Args:
        folders: The directories by the set's name, which is empty for the validation data.
        purge_from: As for `TensorBoard`.
        writers: The user's own writers, which get the same points and are closed together.
        tags: As for `TensorBoard`.
    """

    def __init__(
        self,
        folders: Mapping[str, Path | None],
        *,
        purge_from: int | None = None,
        writers: Writers | None = None,
        tags: Mapping[str, str] = SHARED_TAGS,
    ) -> None:
        self._writers = writers or Writers()
        self._boards = {
            name: TensorBoard(folder, purge_from=purge_from, tags=tags)
            for name, folder in folders.items()
        }

    def write(self, step: int, charts: Mapping[str, Charts]) -> None:
        """Adds to the charts of some sets. The points are on disk when it returns."""
        for name, each in charts.items():
            self._boards[name].chart(step, each)
            self._boards[name].flush()
            self._writers.write(step, each.points, name or "validation")

    def close(self) -> None:
        """Flushes and closes the files."""
        closing.close(*self._boards.values(), self._writers)


def _image(name: str, picture: np.ndarray) -> summary_pb2.Summary.Image:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3):
        raise RunnerError(
            f"the task's image {name!r} is {picture.dtype} {list(picture.shape)}; expected "
            "uint8 [height, width, 1 or 3]"
        )
    height, width, channels = picture.shape
    return summary_pb2.Summary.Image(
        height=height,
        width=width,
        colorspace=channels,
        encoded_image_string=tf.io.encode_png(picture).numpy(),
    )
