"""Handles the current Slurm job: its number, its steps, and its requeue. No TensorFlow."""

import math
import os
import re
import signal
import subprocess
import time

from runner.core import console
from runner.core.child import Child

_AGAIN_SECONDS = 5.0
_SECONDS = 60.0  # Slurm ends a requeued job within this time


class Step(Child):
    """An `srun` process. Slurm signals its tasks, because a signal to `srun` itself kills them."""

    _has_sigterm = False

    def send(self, number: int) -> None:
        """Sends a signal to the tasks on all nodes."""
        self._has_sigterm = self._has_sigterm or number == signal.SIGTERM
        if not signal_tasks(number):
            super().send(number)

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the end, at most this long. Returns the exit code, or None if it still runs."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if (code := super().wait(min(left, _AGAIN_SECONDS))) is not None:
                return code
            if self._has_sigterm:  # the signal may have arrived before there were tasks
                signal_tasks(signal.SIGTERM)
        return self.code


def name() -> str:
    """Returns `123`, or `123_4` for a task of an array, whose own job number differs."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{task}" if task else os.environ["SLURM_JOB_ID"]


def is_ending() -> bool:
    """Returns whether the job was cancelled or has ended for Slurm, and must not be restarted."""
    found = _run("scontrol", "show", "job", "--oneliner", name())
    state = re.search(r"\bJobState=(\w+)", found.stdout) if found else None
    return state is not None and state[1] not in ("RUNNING", "SUSPENDED")


def signal_tasks(number: int) -> bool:
    """Sends a signal to the tasks of `srun` on all nodes. Returns whether Slurm accepted it."""
    done = _run("scancel", f"--signal={number}", name())
    return done is not None and done.returncode == 0


def requeue() -> None:
    """Requeues the job in Slurm, then waits to be ended."""
    found = _run("scontrol", "requeue", name())
    if found is None:
        console.say(
            "scontrol is missing or does not respond; Slurm requeues the job only if its "
            "RequeueExit includes 143"
        )
    elif found.returncode:
        console.say(f"Slurm did not requeue the job: {found.stderr.strip()}")
    else:
        console.say(f"job {name()} was preempted and is queued again")
        time.sleep(_SECONDS)


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
