"""`launch/submitted.jsonl`: the jobs that `--launch` has submitted for a run. No TensorFlow."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.errors import RunnerError


@dataclasses.dataclass(frozen=True)
class Submission:
    """A job that is to train the run, or the trials of the study, in whose folder this is.

    Attributes:
        launcher: Who took it.
        job: How that calls it.
        time: When, in seconds since the epoch, by the clock of the machine that submitted it.
        log: Where its log will be; `*` stands for each job of an array.
        cancel: The command that ends it.
    """

    launcher: str
    job: str
    time: float
    log: str
    cancel: str

    @property
    def has_begun(self) -> bool:
        """Whether it has a log by now."""
        path = Path(self.log)
        return any(path.parent.glob(path.name))

    def __str__(self) -> str:
        """`submitted to slurm as job 17, not started`."""
        if self.has_begun:
            return f"started as job {self.job} of {self.launcher}: see {layout.LAUNCH}/"
        return f"submitted to {self.launcher} as job {self.job}, not started"


def note(folder: Path, submission: Submission) -> None:
    """Adds a job to those of the run in `folder`."""
    with contextlib.suppress(OSError):  # it has been submitted, and this is for the record only
        files.append_json_line(_path(folder), dataclasses.asdict(submission))


def newest(folder: Path) -> Submission | None:
    """The last job that was submitted for the run in `folder`; None if there is none."""
    try:
        row: Any = files.last_json_line(_path(folder))
        return Submission(**row) if row else None
    except (OSError, RunnerError, TypeError):  # damaged
        return None


def is_all(folder: Path) -> bool:
    """Whether a folder with the logs of jobs has nothing of a run yet but that one is to come."""
    return not (folder / layout.TRIALS).is_dir() and _path(folder).is_file()


def _path(folder: Path) -> Path:
    return folder / layout.LAUNCH / layout.SUBMITTED
