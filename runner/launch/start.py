"""The program of a job: runs the command, and translates its exit code. No TensorFlow.

    python -m runner.launch.start --launcher=slurm --tries=3 --folder=runs/digits -- COMMAND

The command's exit code becomes the job's. Exit code 143, of a preempted command, restarts the job.
After `--tries` attempts in a row without a step, the exit code is 6 instead.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import child, console, files, layout, signals
from runner.errors import GaveUpError
from runner.launch import slurm_job
from runner.run_directory.run import reached, run_in
from runner.run_directory.status import Status

PREEMPTED = 128 + signal.SIGTERM
"""The exit code of a command that SIGTERM has ended gracefully."""

_CODES = {"done": 0, "diverged": 3, "preempted": PREEMPTED}
_LONG = 600.0  # seconds after which an attempt is not idle if its steps are unknown


def main(arguments: Sequence[str]) -> int:
    """Runs the command that comes after `--`. Returns the job's exit code."""
    cut = arguments.index("--")
    parser = argparse.ArgumentParser(prog="python -m runner.launch.start")
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--job", default="", help="name of the job in the logs, if not Slurm's")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="directory of the run or the study")
    parser.add_argument("--tries", type=int, required=True)
    parser.add_argument(
        "--by_status", action="store_true", help="derive the exit code from the run's status"
    )
    given = parser.parse_args(arguments[:cut])
    began, before, first = time.monotonic(), _status(given.folder), _reached(given.folder)
    code = _run(arguments[cut + 1 :])
    after = _status(given.folder)
    if given.by_status and after and after != before and after.ended:
        code = _CODES.get(after.state, code or 1)
    if code != PREEMPTED:
        return code
    slurm = given.launcher == "slurm"
    if slurm and slurm_job.is_ending():
        return code
    index = os.environ.get("JOB_COMPLETION_INDEX")  # set by Kubernetes to number the pods of a job
    job = slurm_job.name() if slurm else "-".join(filter(None, [given.job, index]))
    row = {"from": first, "to": _reached(given.folder), "seconds": time.monotonic() - began}
    starts = given.logs / f"{given.launcher}-{job}.jsonl"
    if (idle := _idle(starts, row)) >= given.tries:
        console.say(
            f"giving up, because the last {idle} attempts were preempted before the first step "
            f"(LaunchConfig.tries = {given.tries})"
        )
        return GaveUpError.exit_code
    if slurm:
        slurm_job.requeue()
    return code


def _run(command: Sequence[str]) -> int:
    """Runs the command, forwards signals to it, and returns its exit code."""
    came: list[int] = []
    running: list[child.Child] = []

    def pass_on(number: int, _: Any) -> None:
        came.append(number)
        for process in running:
            process.send(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    kind = slurm_job.Step if command[0] == "srun" else child.Child
    variables = {signals.ONE_SIGTERM: "1"}
    running.append(kind(command, tie=child.Tie.FOREGROUND, environment=variables))
    if came:
        pass_on(came[0], None)
    code = running[0].wait()
    assert code is not None
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return child.exit_status(code)


def _status(folder: Path | None) -> Status | None:
    run = run_in(folder) if folder else None
    return run.status if run else None


def _reached(folder: Path | None) -> int | None:
    """Returns the steps that a run, or all trials of a study, have made, or None if unknown."""
    if folder is None:
        return None
    return sum(reached(each) for each in [folder, *layout.trials(folder)])


def _idle(starts: Path, row: dict[str, Any]) -> int:
    """Records this attempt. Returns how many of the newest preempted ones have made no step."""
    files.append_json_line(starts, row)
    idle = 0
    for each in reversed(files.read_json_lines(starts)):
        known = each["from"] is not None
        if each["to"] > each["from"] if known else each["seconds"] > _LONG:
            break
        idle += 1
    return idle


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
