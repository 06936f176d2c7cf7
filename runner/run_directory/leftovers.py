"""Removes the temporary files that killed processes have left in a directory. No TensorFlow."""

import contextlib
import os
import re
from pathlib import Path

from runner.core import files, layout
from runner.run_directory import claim_file

_OFFER = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")  # of `claim`, and of supervisors
_OLD_SECONDS = 3600.0  # longer than writing any file takes
_LOCKED = (layout.TRIALS, layout.EXPORT, layout.QUEUE)  # their writers have a lock or clean up
_SHARED = (
    *(layout.WORKERS, layout.LOGGERS, layout.PREDICTIONS, layout.REPLAY, layout.LAUNCH),
    layout.ENSEMBLE_PREDICTIONS,
)


def clear(folder: Path, *, shared: bool = False) -> None:
    """Removes temporary files from the directory of a run, an evaluator or a study.

    If other processes write there, too, this function removes only old files, because the files of
    running processes are recent. It ignores errors, because these files do no harm.

    Args:
        folder: The directory, which this process holds unless it is shared.
        shared: Whether other processes write in it, as in a study's directory.
    """
    for top, folders, names in os.walk(folder):
        here = Path(top)
        others = shared or any(part in _SHARED for part in here.relative_to(folder).parts)
        folders[:] = [each for each in folders if not _is_of_others(each)]
        for name in names:
            if files.is_leftover(name) or _OFFER.fullmatch(name):
                with contextlib.suppress(OSError):
                    if _is_left(here / name, others=others):
                        files.remove(here / name)


def _is_of_others(folder: str) -> bool:
    return folder in _LOCKED or layout.is_evaluator(folder) or folder.startswith(".")


def _is_left(path: Path, *, others: bool) -> bool:
    if _OFFER.fullmatch(path.name):
        return claim_file.abandoned(path) or _is_old(path)
    return not others or _is_old(path)


def _is_old(path: Path) -> bool:
    return claim_file.now_in(path.parent) - path.stat().st_mtime > _OLD_SECONDS
