"""Where the processes of trials run: this machine; `runner.launch` has others. No TensorFlow."""

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
"""The exit code of a process whose machine is gone, or is out of reach."""


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
    """What this machine has room for.

    Attributes:
        jobs: How many trials run side by side.
        threads: How many threads an op of each may use; 0: as configured.
        gpus: The GPUs that they take turns with; empty if there are none.
    """

    jobs: int
    threads: int
    gpus: Sequence[str] = ()

    def __str__(self) -> str:
        what = f", each with one of {text.counted(len(self.gpus), 'GPU')}" if self.gpus else ""
        return f"{text.counted(self.jobs, 'trial')} side by side{what}"


class Place(Protocol):
    """Where the processes of trials run.

    Attributes:
        forks: Whether they are forked from a process of this machine.
    """

    forks: bool

    def room(self, jobs: int, trials: int) -> Room:
        """What there is room for now; `jobs`: what the user wants, 0 for as many as fit."""

    def has_memory(self, jobs: Sequence[Job]) -> bool:
        """Whether another trial fits beside these."""

    def start(self, arguments: Sequence[str], output: Path, gpu: str | None) -> Child:
        """Starts the command with these arguments; it ends with this process.

        Args:
            arguments: Its flags.
            output: The file for all that it prints.
            gpu: Which GPU it has for itself; None: as the place says.
        """


class Here:
    """The machine itself: forks of a process that has imported all, as long as that works.

    Attributes:
        forks: Whether it still works.
    """

    def __init__(self) -> None:
        self.forks = True
        self._room: Room | None = None

    def room(self, jobs: int, trials: int) -> Room:
        """What there is room for."""
        self._room = self._room or room(jobs, trials)
        return self._room

    def has_memory(self, jobs: Sequence[Job]) -> bool:
        """Whether another trial fits beside these."""
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
    """What this machine has room for; `jobs`: what the user wants, 0 for as many as fit."""
    found, cores = gpus(), len(os.sched_getaffinity(0))
    count = min(jobs or len(found) or cores, max(trials, 1))
    return Room(count, max(cores // count, 1) if count > 1 else 0, found)


def gpus() -> list[str]:
    """The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them. TensorFlow is not asked."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [each for each in given.split(",") if each.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = len([line for line in listed.stdout.splitlines() if line.startswith("GPU ")])
    return [str(number) for number in range(count)]


def has_memory(jobs: Sequence[Job]) -> bool:
    """Whether another trial fits, if it needs as much as the largest that runs; the first does.

    What a trial needs is not known before one trains: until then there are no more than two.
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
    """A line of /proc; 0 where it is missing, as when the process has just ended."""
    path = Path(f"/proc/{process}/status" if isinstance(process, int) else f"/proc/{process}")
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE):
            return int(found[1])
    return 0
