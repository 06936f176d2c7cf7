"""Transfers a task's `tf.summary` output to the run's event files."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from tensorboard.compat.proto import event_pb2

from runner.reporting import event_records


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
    The writer keeps its position, so the emptied file begins with a hole.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
            super().__init__(tf.summary.create_file_writer(scratch))
            (path,) = Path(scratch).iterdir()
            self._file = path.open("r+b", buffering=0)
        self._read = 0  # bytes
        self.take()  # the file's version

    def take(self) -> Sequence[event_pb2.Event]:
        """Returns the events since the last call, in order."""
        self._writer.flush()
        self._file.seek(self._read)
        content = self._file.read()
        self._file.truncate(0)
        self._read += len(content)
        events = map(event_pb2.Event.FromString, event_records.read(content))
        return [event for event in events if event.HasField("summary")]
