"""Executors of trials. This module has the local one; `runner.launch` has the remote ones.

No TensorFlow.
"""

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from runner.core import text
from runner.core.child import Child
from runner.studies import warm

_FEW_BEFORE_ANY_TRAINS = 2

LOST = 76
"""The exit code of a process whose machine is gone or unreachable."""


class Job(Protocol):
    """A trial in a process."""

    @property
    def child(self) -> Child:
        """Its process."""

    @property
    def trains(self) -> bool:
        """Whether it has trained."""


@dataclasses.dataclass(frozen=True)
class Room:
    """The capacity of this machine.

    Attributes:
        jobs: How many trials run in parallel.
        threads: How many threads each op of a trial may use. 0 uses the configured number.
        gpus: The GPUs that the trials share, one per trial, or empty if there are none.
    """

    jobs: int
    threads: int
    gpus: Sequence[str] = ()

    def __str__(self) -> str:
        what = f", each with one of {text.counted(len(self.gpus), 'GPU')}" if self.gpus else ""
        return f"{text.counted(self.jobs, 'trial')} in parallel{what}"


class Place(Protocol):
    """An executor for the processes of trials.

    Attributes:
        forks: Whether they are forked from a process of this machine.
    """

    forks: bool

    def room(self, jobs: int, trials: int) -> Room:
        """Returns the current capacity. `jobs` is the user's limit. 0 runs as many as fit."""

    def has_memory(self, jobs: Sequence[Job]) -> bool:
        """Returns whether another trial fits in memory."""

    def start(self, arguments: Sequence[str], output: Path, gpu: str | None) -> Child:
        """Starts the command with these arguments. It ends when this process ends.

        Args:
            arguments: Its flags.
            output: The file for its output.
            gpu: The GPU reserved for it. None leaves the choice to the executor.
        """


class Here:
    """The local machine. It forks a process with all imports done, as long as forking works.

    Attributes:
        forks: Whether forking still works.
    """

    def __init__(self) -> None:
        self.forks = True
        self._room: Room | None = None

    def room(self, jobs: int, trials: int) -> Room:
        """Returns the capacity."""
        self._room = self._room or room(jobs, trials)
        return self._room

    def has_memory(self, jobs: Sequence[Job]) -> bool:
        """Returns whether another trial fits in memory."""
        return has_memory(jobs)

    def start(self, arguments: Sequence[str], output: Path, gpu: str | None) -> Child:
        """Starts the command with these arguments."""
        output.write_bytes(b"")
        kind = warm.Fork if self.forks else Child
        return kind(
            [sys.executable, "-m", "runner", *arguments],
            environment={} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu},
            log=output,
        )


def room(jobs: int, trials: int) -> Room:
    """Returns this machine's capacity. `jobs` is the user's limit. 0 runs as many as fit."""
    found, cores = gpus(), len(os.sched_getaffinity(0))
    count = min(jobs or len(found) or cores, max(trials, 1))
    return Room(count, max(cores // count, 1) if count > 1 else 0, found)


def gpus() -> list[str]:
    """Lists the usable GPUs as CUDA_VISIBLE_DEVICES names them, without loading TensorFlow."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [each for each in given.split(",") if each.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = len([line for line in listed.stdout.splitlines() if line.startswith("GPU ")])
    return [str(number) for number in range(count)]


def has_memory(jobs: Sequence[Job]) -> bool:
    """Returns whether another trial fits if it needs as much memory as the largest running one.

    The first trial always fits. The memory that a trial needs is unknown until one trains, so at
    most two run until then.
    """
    if not jobs:
        return True
    if len(jobs) >= _FEW_BEFORE_ANY_TRAINS and not any(job.trains for job in jobs):
        return False
    peaks = [_kilobytes(job.child.pid, "VmHWM") for job in jobs]
    available = _kilobytes("meminfo", "MemAvailable")
    still_to_come = sum(max(peaks) - peak for peak in peaks)
    return not available or available > still_to_come + 1.2 * max(peaks)


def _kilobytes(process: int | str, name: str) -> int:
    """Returns a value from /proc, or 0 if it is missing because the process just ended."""
    path = Path(f"/proc/{process}/status" if isinstance(process, int) else f"/proc/{process}")
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE):
            return int(found[1])
    return 0
