"""Saves a run's checkpoints, and removes those that need not be kept.

Files that point to a checkpoint (`checkpoint`, info.json) are written after it is complete.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from runner.checkpoints import (
    checkpoint_files,
    integrity,
    recovery,
    restore,
    retention,
)
from runner.core import console, files, layout, open_folder
from runner.errors import RunnerError
from runner.internals import tensorflow as tf_internals
from runner.storage import display_names


class Checkpoints:
    """The checkpoints of one training run, `ckpt-<step>` in its directory.

    A new checkpoint is flushed to disk, then listed in the file `checkpoint`. If it can be read,
    the checkpoints that need not be kept are then removed. An asynchronous save does all this in
    its thread. Checkpoints of earlier attempts are included.

    TensorFlow would recreate a deleted directory. Files are therefore written through the open
    directory. If it is moved during a save, they go to its new location.

    Args:
        checkpoint: The objects to save. All its variables must exist, because an asynchronous save
            copies only those that it finds in its first call.
        directory: The run's directory.
        keep: Selects the checkpoints to keep.
        asynchronous: Write in a thread, from a copy, while training continues.
        best_folders: Directories of best checkpoints, from which a run could also continue.
        before_removal: Called with each path that is about to be removed. An OSError keeps that
            checkpoint until the next save.
        verifies: Whether a new checkpoint is read back from the disk before it is listed.
        note: Called with the reason if a checkpoint that need not be kept is not removed.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        directory: Path,
        *,
        keep: retention.Keep,
        asynchronous: bool,
        best_folders: Sequence[Path] = (),
        before_removal: Callable[[Path], None] = lambda _: None,
        verifies: bool = False,
        note: console.Note = console.say,
    ) -> None:
        self._verifies = verifies
        self._checkpoint = checkpoint
        self._directory = directory
        self._keep = keep
        self._asynchronous = asynchronous
        self._best_folders = tuple(best_folders)
        self._before_removal = before_removal
        self._note = note
        self._removes = True
        self._open: open_folder.OpenFolder | None = None
        self._committed: int | None = None
        self._before: int | None = None
        self._began = 0.0
        self._wrote: float | None = 0.0  # seconds, None while a checkpoint is written

    @property
    def committed(self) -> int | None:
        """The step that was last saved or restored."""
        return self._committed

    @property
    def writing_cost(self) -> float | None:
        """Seconds of training that the last write took at most, or None while it is written.

        The thread that writes uses at most one of the cores that training would use.
        """
        if self._wrote is None and tf_internals.has_write_error(self._checkpoint):
            return 0.0  # the next save reports it
        return None if self._wrote is None else self._wrote / (os.cpu_count() or 1)

    def path(self, step: int) -> Path:
        """The path of the checkpoint of `step`, which need not exist."""
        return self._directory / checkpoint_files.name_of(step)

    def commit(self, step: int) -> None:
        """Saves the current state as that of `step`, unless already saved.

        Raises:
            LostError: the directory was moved, deleted or taken over.
            RunnerError: this checkpoint, or an asynchronous one before it, could not be written.
                Earlier checkpoints are unchanged.
        """
        if self._committed == step:
            return
        self.wait()
        path = self.path(step)
        options = tf.train.CheckpointOptions(
            enable_async=self._asynchronous,
            experimental_write_callbacks=[self._written],
        )
        self._began, self._wrote = time.monotonic(), None
        self._checkpoint.save_counter.assign_add(1)  # `restore` expects it in the file
        try:
            files.make_folder(self._directory)
            checkpoint_files.unshare(path)
            self._open = open_folder.OpenFolder(self._directory)
            self._checkpoint.write(str(self._open.inside / path.name), options=options)
        except checkpoint_files.UNWRITABLE as error:
            raise self._not_written(step, error) from error
        finally:
            if not self._asynchronous:
                self._close_folder()
        self._before, self._committed = self._committed, step

    def wait(self) -> None:
        """Waits until every checkpoint is on disk. Raises like `commit` if a save failed."""
        self._checkpoint.sync()
        self._close_folder()
        error = tf_internals.take_write_error(self._checkpoint)
        if error is None:
            return
        step, self._committed = self._committed, self._before
        if step is None or not isinstance(error, checkpoint_files.UNWRITABLE):
            raise error
        raise self._not_written(step, error) from error

    def close(self) -> None:
        """Waits like `wait`, and releases the thread that writes."""
        try:
            self.wait()
        finally:
            tf_internals.end_writer(self._checkpoint)
            self._close_folder()

    def _close_folder(self) -> None:
        if self._open:
            self._open.close()
            self._open = None

    def way_back(self) -> int | None:
        """The step to roll back to: that of the newest intact scheduled checkpoint.

        Unscheduled ones, such as those that a signal requested, come last, because an undisturbed
        run lacks them. None if no checkpoint is intact.
        """
        self.wait()
        names = checkpoint_files.names(self._directory)
        steps = [checkpoint_files.step_in(name) or 0 for name in reversed(names)]
        for step in sorted(steps, key=self._keep.is_due, reverse=True):
            if integrity.damage(self.path(step)) is None:
                return step
        return None

    def discard_after(self, step: int) -> None:
        """Removes the checkpoints after `step`, also the best ones, as training will differ."""
        below = [folder / checkpoint_files.TRAINING for folder in self._best_folders]
        for folder in (*self._best_folders, *below, self._directory):
            for path in checkpoint_files.there(folder):
                if (checkpoint_files.step_in(path.name) or 0) > step:
                    files.remove(folder / layout.INFO)  # it names best checkpoints
                    checkpoint_files.remove(path)
        self._list(checkpoint_files.name_of(step))

    def restore(self, path: Path) -> None:
        """Restores everything from `path`, whose step is then regarded as saved."""
        self.wait()
        restore.restore(self._checkpoint, path)
        self._committed = restore.step_of(path)

    def end(self, *, keeps_best: bool) -> list[int]:
        """Removes checkpoints that are not kept after the run, if the best ones are kept elsewhere.

        Args:
            keeps_best: Whether the best are kept. If not, they are also removed.

        Returns:
            The steps of the best checkpoints, if anything was removed.
        """
        self.wait()
        removable = self._keep.removable_at_end(checkpoint_files.steps(self._directory))
        best = [checkpoint_files.latest(folder) for folder in self._best_folders]
        if not removable or not all(best) or not best:
            return []
        steps = [restore.step_of(path) for path in best if path]
        for folder in () if keeps_best else self._best_folders:
            files.remove_folder(folder)
        for step in removable:
            self._remove(self.path(step))
        checkpoint_files.list_committed(self._directory, checkpoint_files.names(self._directory))
        return steps

    def _written(self, prefix: str) -> None:
        """Lists the written checkpoint as the newest, regardless of its step, and prunes."""
        newest = self._directory / Path(prefix).name
        files.check(newest)
        checkpoint_files.flush(str(newest))
        if self._verifies:
            self._verify(newest)
        steps = self._list(newest.name)
        removable = self._keep.removable(steps)
        if removable and (self._verifies or self._good(newest)):
            for step in removable:
                self._remove(self.path(step))
            self._list(newest.name)
        self._wrote = time.monotonic() - self._began if self._asynchronous else 0.0

    def _verify(self, newest: Path) -> None:
        """Reads a checkpoint back, from the disk as far as the system allows.

        Raises:
            OSError: it is damaged. It was removed.
        """
        for part in (*checkpoint_files.data(newest), checkpoint_files.index(newest)):
            files.forget_cached(part)
        if reason := integrity.damage(newest):
            checkpoint_files.remove(newest)
            raise OSError(errno.EIO, f"it differs when read back ({reason})")

    def _list(self, newest: str) -> list[int]:
        """Lists the existing checkpoints, `newest` last, and returns their steps."""
        older = [name for name in checkpoint_files.names(self._directory) if name != newest]
        checkpoint_files.list_committed(self._directory, [*older, newest])
        return [checkpoint_files.step_in(name) or 0 for name in (*older, newest)]

    def _good(self, newest: Path) -> bool:
        """Whether `newest` is intact, so that older ones may be removed."""
        reason = integrity.damage(newest)
        if reason:
            self._note(
                f"{display_names.of(newest)} is damaged ({reason}): older checkpoints are kept"
            )
        return reason is None

    def _remove(self, path: Path) -> None:
        try:
            self._before_removal(path)
            checkpoint_files.remove(path)
            self._removes = True
        except OSError as error:
            if self._removes:  # report it once while it lasts
                why = checkpoint_files.reason(error)
                self._note(f"{display_names.of(path)} cannot be removed: {why}")
            self._removes = False

    def _not_written(self, step: int, error: Exception) -> RunnerError:
        """Clears the remains of a failed save, and names the newest checkpoint."""
        path = self.path(step)
        files.check(path)
        with contextlib.suppress(OSError):  # the directory may not be writable
            recovery.clear_save(path)
        there = checkpoint_files.there(self._directory)
        newest = f"the newest checkpoint is {there[-1]}" if there else "there is no earlier one"
        unlisted = path in there  # although it is complete
        failed = self._directory / layout.CHECKPOINT if unlisted else path
        return checkpoint_files.not_written(failed, error, kept=newest)
