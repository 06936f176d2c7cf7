"""What a task writes with `tf.summary`, on its way into the run's event files."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.compat.proto import event_pb2


class Summaries:
    """A writer of the caller's, which `tf.summary` uses.

    Args:
        writer: None writes nothing.
    """

    def __init__(self, writer: tf.summary.SummaryWriter | None = None) -> None:
        self._writer = writer or tf.summary.create_noop_writer()

    @contextlib.contextmanager
    def recording(self, due: Callable[[], tf.Tensor] | bool = True) -> Iterator[None]:
        """Within the block, `tf.summary` writes here; so do functions traced there, ever after.

        Args:
            due: Whether to write, as `tf.summary.record_if` takes it.
        """
        with self._writer.as_default(), tf.summary.record_if(due):
            yield

    def take(self) -> Sequence[event_pb2.Event]:
        """What was written since the last call, and is to go into the run's own file."""
        return ()


class Taken(Summaries):
    """Takes what `tf.summary` writes, to be added to the run's own file.

    TensorBoard follows one growing file in a directory, so TensorFlow must not write a second one
    there. It writes a temporary one, which has no name any more, and is emptied as it is read.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
            super().__init__(tf.summary.create_file_writer(scratch))
            (path,) = Path(scratch).iterdir()
            self._reader = event_file_loader.RawEventFileLoader(str(path))
            self._file = path.open("r+b")
        self.take()  # the file's version

    def take(self) -> Sequence[event_pb2.Event]:
        """What was written since the last call, in its order."""
        self._writer.flush()
        if not os.fstat(self._file.fileno()).st_size:
            return ()
        events = [event_pb2.Event.FromString(record) for record in self._reader.Load()]
        self._file.truncate(0)  # the writer's position stays, so the file is a hole until there
        return [event for event in events if event.HasField("summary")]
