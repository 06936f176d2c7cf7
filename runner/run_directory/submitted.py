"""`launch/submitted.jsonl`: the jobs that `--launch` has submitted for a run. No TensorFlow."""

import contextlib
import dataclasses
from pathlib import Path

from runner.core import files, layout


@dataclasses.dataclass(frozen=True)
class Submission:
    """A submitted job that will train the run, or the trials of the study, in this directory.

    Attributes:
        launcher: The launcher that accepted it.
        job: The launcher's name for it.
        time: When it was submitted, in seconds since the epoch, by the submitting machine's clock.
        log: The path of its log. `*` matches each job of an array.
        cancel: The command that cancels it.
    """

    launcher: str
    job: str
    time: float
    log: str
    cancel: str

    @property
    def has_begun(self) -> bool:
        """Whether its log already exists."""
        path = Path(self.log)
        return any(path.parent.glob(path.name))

    def __str__(self) -> str:
        """`submitted to slurm as job 17, not started`."""
        if self.has_begun:
            return f"started as job {self.job} of {self.launcher}: see {layout.LAUNCH}/"
        return f"submitted to {self.launcher} as job {self.job}, not started"


def note(folder: Path, submission: Submission) -> None:
    """Adds a job to those of the run in `folder`."""
    with contextlib.suppress(OSError):  # it has been submitted, and this is only a record
        files.append_json_line(_path(folder), dataclasses.asdict(submission))


def newest(folder: Path) -> Submission | None:
    """Returns the last job submitted for the run in `folder`, or None if there is none."""
    if not layout.has(folder, layout.LAUNCH):
        return None
    try:
        rows = files.last_json_lines(_path(folder))
        return Submission(**rows[-1]) if rows else None
    except (OSError, TypeError, ValueError):  # damaged
        return None


def is_all(folder: Path) -> bool:
    """Returns whether a directory contains only submitted jobs and no part of a run yet."""
    return not layout.is_study(folder) and _path(folder).is_file()


def _path(folder: Path) -> Path:
    return folder / layout.LAUNCH / layout.SUBMITTED
