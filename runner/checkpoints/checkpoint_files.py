"""The files of checkpoints in a directory: listing, linking, moving and removing them.

A checkpoint's path denotes several files: `<path>.data-00000-of-00001` and so on, and
`<path>.index`, which is written last and removed first. A directory's file `checkpoint` lists the
saved checkpoints, newest last. It is written after the files that it names.
"""

import atexit
import contextlib
import functools
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.core import files, layout
from runner.errors import RunnerError
from runner.internals import tensorflow as tf_internals

NAME = layout.CHECKPOINT_NAME
TRAINING = "training"
"""The subdirectory, next to averaged weights, of checkpoints that training can resume from."""
UNWRITABLE = (OSError, tf.errors.OpError)
"""The errors that the operating system and TensorFlow raise if writing fails."""

_STEP = re.compile(rf"{NAME}-(\d+)")
_PATTERN = re.compile(r"[\[\\]")
_SHARD = re.compile(r"\d{5}-of-\d{5}")


def name_of(step: int) -> str:
    """The name of the checkpoint of `step`."""
    return f"{NAME}-{step}"


def step_in(name: str) -> int | None:
    """The step in a checkpoint's name, or None if it has another kind of name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def open_reader(path: Path) -> Any:
    """Opens TensorFlow's reader of a checkpoint's tensors.

    Raises:
        tensorflow.errors.OpError, IndexError, RuntimeError: it is damaged or missing.
    """
    return tf.train.load_checkpoint(as_read(path))


def as_read(path: Path) -> str:
    r"""Returns a checkpoint's path in a form that TensorFlow can read.

    TensorFlow reads the path as a pattern, in which `[` and `\` are special. It would find nothing
    in a directory like `lr=[0.1]`, so the result uses a link to the directory.
    """
    folder = str(path.parent)
    return str(_link_to(folder) / path.name if _PATTERN.search(folder) else path)


@functools.cache
def _link_to(folder: str) -> Path:
    """Creates a link with another name, which exists as long as the process."""
    beside = tempfile.TemporaryDirectory(prefix="runner-link-")
    atexit.register(beside.cleanup)
    link = Path(beside.name) / "folder"
    link.symlink_to(Path(folder).resolve(), target_is_directory=True)
    return link


def exists(path: Path) -> bool:
    """Whether the checkpoint's index exists, which was written after the rest."""
    return index(path).is_file()


def index(path: Path) -> Path:
    """The checkpoint's index file."""
    return path.with_name(f"{path.name}.index")


def data(path: Path) -> list[Path]:
    """The checkpoint's data files that exist."""
    start = f"{path.name}.data-"
    found = (name for name in _files(path.parent) if name.startswith(start))
    return [path.with_name(name) for name in sorted(found) if _SHARD.fullmatch(name, len(start))]


def names(folder: Path) -> list[str]:
    """The names of the checkpoints `ckpt-<step>` in `folder`, newest last."""
    found = (name.removesuffix(".index") for name in _files(folder) if name.endswith(".index"))
    steps = {name: step for name in found if (step := step_in(name)) is not None}
    return sorted(steps, key=steps.__getitem__)


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints `ckpt-<step>` in `folder`, ascending."""
    return [step_in(name) or 0 for name in names(folder)]


def there(folder: Path) -> list[Path]:
    """The paths of the checkpoints `ckpt-<step>` in `folder`, newest last."""
    return [folder / name for name in names(folder)]


def committed(folder: Path) -> list[Path]:
    """The paths that the file `checkpoint` lists, newest last, even if their files are gone."""
    try:
        content = (folder / layout.CHECKPOINT).read_bytes()  # TensorFlow may read a part of it
        newest, every = tf_internals.checkpoint_state(content)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return []
    return [folder / path for path in (*(path for path in every if path != newest), newest)]


def latest(folder: Path) -> Path | None:
    """The newest listed checkpoint in `folder`, or None if its files are gone.

    If the file `checkpoint` is lost, it is the checkpoint that info.json names, or in a run's
    directory that of the last step.
    """
    newest = committed(folder)[-1:] or _unlisted(folder)
    return newest[0] if newest and exists(newest[0]) else None


def _unlisted(folder: Path) -> list[Path]:
    try:
        info = files.read_json(folder / layout.INFO)
    except RunnerError:
        return []
    if isinstance(info, dict) and isinstance(name := info.get("checkpoint"), str):
        return [folder / Path(name).name]
    return there(folder)[-1:] if (folder / layout.PARAMS).exists() else []


def list_committed(folder: Path, names: Sequence[str]) -> None:
    """Writes `names`, newest last, to the file `checkpoint`, or removes it if there are none.

    The file is a CheckpointState as text, with times, so that a later
    `tf.train.CheckpointManager` treats the checkpoints as its own.
    """
    if not names:
        files.remove(folder / layout.CHECKPOINT)
        return
    lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
    lines += [f"all_model_checkpoint_paths: {json.dumps(name)}" for name in names]
    times = [index(folder / name).stat().st_mtime for name in names]
    lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
    files.write_text(folder / layout.CHECKPOINT, "\n".join(lines) + "\n")


def link(source: Path, target: Path) -> None:
    """Makes `target` the same checkpoint, by hard links if possible, else by copies.

    At any moment `target` is the earlier checkpoint, complete, or missing.

    Raises:
        FileNotFoundError: `source` is missing, or was removed during the call.
    """
    if exists(source) and exists(target) and not _same(index(source), index(target)):
        remove(target)
    for part in (*data(source), index(source)):
        linked = _renamed(part, source, target)
        if not _same(part, linked):
            files.link(part, linked)
    files.flush_file(target.parent)


def unshare(path: Path) -> None:
    """Gives `path` its own index, so that overwriting it does not change its links.

    TensorFlow renames new data into place, but writes into an existing index.
    """
    if exists(path) and index(path).stat().st_nlink > 1:
        files.copy(index(path), index(path))


def move(source: Path, target: Path) -> None:
    """Moves the existing files of a checkpoint, replacing those at `target`."""
    files.make_folder(target.parent)
    for part in (index(source), *data(source)):
        with contextlib.suppress(FileNotFoundError):
            part.replace(_renamed(part, source, target))


def remove(path: Path) -> None:
    """Removes the existing files of a checkpoint."""
    files.check(path)
    for part in (index(path), *data(path)):
        part.unlink(missing_ok=True)


def flush(path: str) -> None:
    """Flushes the checkpoint's files and their names to disk.

    Raises:
        OSError: this failed, and the checkpoint was removed.
    """
    try:
        for part in (*data(Path(path)), index(Path(path)), Path(path).parent):
            files.flush_file(part)
    except OSError:
        remove(Path(path))
        raise


def not_written(path: Path, error: Exception, *, kept: str) -> RunnerError:
    """The error to raise if `path` cannot be written. `kept` describes what is left.

    Raises:
        LostError: its directory was moved, deleted or taken over.
    """
    files.check(path)
    return RunnerError(f"{path} could not be written: {reason(error)}; {kept}")


def reason(error: Exception) -> str:
    """The message of a read or write error, without its place in TensorFlow."""
    if isinstance(error, IndexError):
        return "a data file is cut short"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return tf_internals.short_message(str(getattr(error, "message", error)))


def _files(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _renamed(part: Path, source: Path, target: Path) -> Path:
    return target.with_name(target.name + part.name.removeprefix(source.name))


def _same(file: Path, linked: Path) -> bool:
    """Whether `linked` is a link or a copy of `file`."""
    try:
        one, other = file.stat(), linked.stat()
    except FileNotFoundError:
        return False
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
