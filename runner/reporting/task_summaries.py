"""Transfers a task's `tf.summary` output to the run's event files."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.compat.proto import event_pb2


class Summaries:
    """Sends `tf.summary` output to a writer of the caller.

    Args:
        writer: The writer, or None to write nothing.
    """

    def __init__(self, writer: tf.summary.SummaryWriter | None = None) -> None:
        self._writer = writer or tf.summary.create_noop_writer()

    @contextlib.contextmanager
    def recording(self, due: Callable[[], tf.Tensor] | bool = True) -> Iterator[None]:
        """Makes `tf.summary` write here in the block, and forever in functions traced there.

        Args:
            due: Whether to write, as for `tf.summary.record_if`.
        """
        with self._writer.as_default(), tf.summary.record_if(due):
            yield

    def take(self) -> Sequence[event_pb2.Event]:
        """Returns the events since the last call, for the run's own file."""
        return ()


class Taken(Summaries):
    """Captures `tf.summary` output so that it can be added to the run's own file.

    TensorBoard follows one growing file in a directory, so TensorFlow must not write a second one
    there. Instead, it writes to a temporary file that is already unlinked and is emptied when read.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
            super().__init__(tf.summary.create_file_writer(scratch))
            (path,) = Path(scratch).iterdir()
            self._reader = event_file_loader.RawEventFileLoader(str(path))
            self._file = path.open("r+b")
        self.take()  # the file's version

    def take(self) -> Sequence[event_pb2.Event]:
        """Returns the events since the last call, in order."""
        self._writer.flush()
        if not os.fstat(self._file.fileno()).st_size:
            return ()
        events = [event_pb2.Event.FromString(record) for record in self._reader.Load()]
        self._file.truncate(0)  # the writer keeps its position, so the file starts with a hole
        return [event for event in events if event.HasField("summary")]
