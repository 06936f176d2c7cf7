"""Finds the newest intact checkpoint, and clears the remains of killed writers.

A damaged checkpoint is moved to `damaged/`, with a message, because steps will be repeated.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.checkpoints import checkpoint_files, integrity
from runner.core import files, layout
from runner.errors import RunnerError
from runner.internals import tensorflow as tf_internals
from runner.storage import display_names

_SAVE = re.compile(rf"((ckpt|averaged)-\d+){tf_internals.UNFINISHED}")


def newest_good(
    model_dir: Path,
    *,
    best_folders: Sequence[str],
    note: Callable[[str], None],
    lost: Callable[[Path], str] = lambda _: "",
) -> Path | None:
    """Returns the newest intact checkpoint in `model_dir`, or None if none was ever saved.

    If only a directory of best checkpoints still has that checkpoint, it is linked back. The
    remains of killed processes are cleared. Afterwards the file `checkpoint` lists exactly the
    existing checkpoints.

    A single damaged checkpoint that was never listed is left from a first save that a power cut
    interrupted. It is put aside, and the run starts from step 0.

    A checkpoint that is newer than the last listed one, or the first of the run, may come from a
    process that was suspended while another process took the run over and dropped rows. Without
    these rows it is put aside.

    Args:
        model_dir: The run's directory.
        best_folders: The names of its subdirectories of best checkpoints.
        note: Called with a line about each damaged checkpoint.
        lost: Describes the rows that an intact checkpoint followed and the logs no longer have.

    Raises:
        RunnerError: every saved checkpoint is damaged. They are left unchanged.
    """
    clear_leftovers(model_dir)
    listed = [path.name for path in checkpoint_files.committed(model_dir)]
    last = checkpoint_files.step_in(listed[-1]) if listed else None
    found: Path | None = None
    damaged: dict[Path, str] = {}
    candidates = _candidates(model_dir, best_folders, listed)
    for path in candidates:
        step = checkpoint_files.step_in(path.name) or 0
        is_newer = len(candidates) == 1 if last is None else step > last
        reason = integrity.damage(path) or (lost(path) if is_newer else "")
        if not reason:
            found = path
            break
        damaged[path] = reason
    if damaged and found is None and (listed or len(damaged) > 1):
        raise RunnerError(_nothing_left(model_dir, damaged))
    for path, reason in damaged.items():
        _put_aside(path, model_dir)
        name, instead = display_names.of(path), display_names.of(found) if found else "step 0"
        note(f"{name} is damaged ({reason}): continuing from {instead}; it was moved to damaged/")
    if found is not None and found.parent != model_dir:
        checkpoint_files.link(found, model_dir / found.name)
    names = [path.name for path in checkpoint_files.there(model_dir)]
    if names != listed or not names:
        checkpoint_files.list_committed(model_dir, names)
    return model_dir / found.name if found else None


def clear_leftovers(folder: Path) -> None:
    """Removes the unfinished work of killed writers from a directory of checkpoints.

    That is unfinished saves, temporary files of `runner.core.files` (except this process's own),
    and data files whose index was pruned.
    """
    for entry in list(folder.iterdir()) if folder.is_dir() else ():
        if save := _SAVE.fullmatch(entry.name):
            clear_save(folder / save[1])
        elif files.is_leftover(entry.name) or _is_orphan(entry):
            files.remove(entry)


def clear_save(path: Path) -> None:
    """Removes the remains of an unfinished save of `path`, but keeps `path` if it is intact.

    TensorFlow writes into a temporary directory, moves the data into place, writes the index there
    and removes the directory. While that exists, even a saved checkpoint's index may be incomplete.
    """
    temporary = path.with_name(path.name + tf_internals.UNFINISHED)
    if not temporary.exists():
        return
    if integrity.damage(path):
        checkpoint_files.remove(path)
    if temporary.is_dir():
        files.remove_folder(temporary)
    else:
        files.remove(temporary)


def _is_orphan(entry: Path) -> bool:
    """Whether a data file has no index, except the newest listed checkpoint's, which is lost."""
    name, is_data, _ = entry.name.rpartition(".data-")
    if not is_data or checkpoint_files.exists(entry.with_name(name)):
        return False
    return name not in [path.name for path in checkpoint_files.committed(entry.parent)[-1:]]


def _candidates(model_dir: Path, best_folders: Sequence[str], listed: list[str]) -> list[Path]:
    """The checkpoints a run could continue from, newest first, with `model_dir` first among equals.

    The newest listed one is among them even if it is gone.
    """
    names = {path.name for path in checkpoint_files.there(model_dir)} | set(listed[-1:])
    paths = [model_dir / name for name in names]
    for folder in best_folders:  # for averaged weights, training continues from a subdirectory
        below = model_dir / folder / checkpoint_files.TRAINING
        paths += checkpoint_files.there(below if below.is_dir() else model_dir / folder)
    known = [path for path in paths if checkpoint_files.step_in(path.name) is not None]
    return sorted(
        known,
        key=lambda path: (checkpoint_files.step_in(path.name), path.parent == model_dir),
        reverse=True,
    )


def _nothing_left(model_dir: Path, damaged: dict[Path, str]) -> str:
    reasons = "; ".join(f"{path.relative_to(model_dir)}: {why}" for path, why in damaged.items())
    return (
        f"every checkpoint in {model_dir} is damaged ({reasons}); restore an intact one there, or "
        "start a new run in another model_dir"
    )


def _put_aside(path: Path, model_dir: Path) -> None:
    """Moves a damaged checkpoint to `damaged/`. A best one is also no longer listed."""
    if path.parent != model_dir:
        files.remove(path.parent / layout.INFO)
        files.remove(path.parent / layout.CHECKPOINT)
    checkpoint_files.move(path, model_dir / layout.DAMAGED / path.name)
