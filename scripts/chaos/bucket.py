"""Disturbs a run in a bucket on two machines: kills it, stops it and cuts its connection.

    python -m scripts.chaos bucket --faults=20 [--gin_file=digits_cnn.gin] [--seed=0]
        [--gin.TrainerConfig.train_steps=2000]

The bucket is on this machine. A cache directory stands for each machine. One of these faults
happens to each start of the run:

- It is killed (SIGKILL) in its first seconds or at a random step.
- It is stopped (SIGTERM).
- It is suspended until another machine has taken over.
- It loses the bucket during an upload for a while, and is stopped afterwards.
- It is killed while the bucket is slow.

The next start may be on either machine. On the other machine, it waits until the heartbeat has
expired, after two seconds here instead of a minute.

The final run in the bucket must not differ in any bit from an undisturbed one, and a process whose
run was taken over must write nothing.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import buckets

from runner.storage import bucket as remote
from runner.storage import fetching, urls
from scripts import s3_server
from scripts.chaos import results

IMPATIENT = """
import scripts.chaos.impatient
from runner.main import console
console()
"""
FAULTS = ("start", "kill", "term", "suspend", "cut", "slow")
OFTEN = [
    "--gin.TrainerConfig.steps_per_loop=10",
    *(f"--gin.TrainerConfig.{name}_interval=100" for name in ("checkpoint", "validation")),
]
MACHINES = ("a", "b")

Process = subprocess.Popen[bytes]


def bucket(flags: argparse.Namespace, more: list[str]) -> list[str]:
    """Runs once undisturbed and once disturbed. Returns the problems."""
    draw = random.Random(flags.seed)
    with s3_server.running() as server:
        way = buckets.Way(int(server.environment["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        os.environ.update(s3_server.environment(way.port))
        url = f"s3://{server.bucket}/run"
        command = ["--mode=train_and_eval", f"--gin_file={flags.gin_file}", *OFTEN, *more]
        disturbed = _Disturbed(command, url, flags.folder, way, draw)
        once = disturbed.start("once", flags.folder / "once")
        if code := once.wait():
            return [f"the undisturbed run ended with {code}"]
        wrong = disturbed.often(_step(flags.folder / "once"), flags.faults)
        if code := disturbed.start(draw.choice(MACHINES)).wait():
            wrong.append(f"the last start ended with {code}")
        copy = flags.folder / "copy"
        fetching.Replica(remote.Bucket(url), copy).bring()
        return wrong + results.differences(flags.folder / "once", copy)


class _Disturbed:
    """The run that is disturbed.

    Args:
        command: Flags, without the directory.
        url: Its directory, in the bucket.
        folder: The directory for caches and logs of the machines.
        way: The connection to the bucket.
        draw: Draws the faults.
    """

    def __init__(
        self, command: list[str], url: str, folder: Path, way: buckets.Way, draw: random.Random
    ) -> None:
        self._command = command
        self._url = url
        self._folder = folder
        self._way = way
        self._draw = draw

    def start(self, machine: str, model_dir: Path | None = None) -> Process:
        """Starts the run on a machine."""
        command = [*self._command, f"--model_dir={model_dir or self._url}"]
        with (self._folder / f"{machine}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", IMPATIENT, *command],
                env={**os.environ, "XDG_CACHE_HOME": str(self._folder / machine)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def often(self, steps: int, faults: int) -> list[str]:
        """Starts and disturbs a run of `steps` steps. Returns the problems."""
        wrong: list[str] = []
        suspended: list[tuple[str, Process]] = []
        for number in range(faults):
            fault, machine = self._draw.choice(FAULTS), self._draw.choice(MACHINES)
            if suspended:  # its directory is locked, and another machine must take over
                fault = self._draw.choice(("kill", "term", "cut", "slow"))
                machine = next(name for name in MACHINES if name != suspended[-1][0])
            process = self.start(machine)
            if fault == "start":
                time.sleep(self._draw.uniform(0, 8))
                process.kill()
                print(f"{number:3} start    on {machine}: {process.wait()}", flush=True)
                continue
            at = steps * (number + self._draw.random()) / (faults + 1)
            reached = self._reach(process, machine, at)
            print(f"{number:3} {fault:8} on {machine} at step {reached:,} of {steps:,}", flush=True)
            if suspended:
                wrong += _wake(suspended.pop()[1])
            if process.poll() is not None:
                if process.returncode:
                    wrong.append(f"{number}: ended with {process.returncode} by itself")
                continue
            if fault == "suspend":
                process.send_signal(signal.SIGSTOP)
                suspended.append((machine, process))
                continue
            code = self._disturb(fault, process)
            if code not in (-signal.SIGKILL, 128 + signal.SIGTERM, 0):
                wrong.append(f"{number}: {fault} ended with {code}")
        for _, process in suspended:
            process.kill()
            process.wait()
        return wrong

    def _disturb(self, fault: str, process: Process) -> int:
        """Disturbs a process until it has ended. Returns its exit code."""
        if fault == "cut":
            self._way.after = self._draw.randrange(200_000)  # bytes from now
            time.sleep(self._draw.uniform(0.5, 4))
            self._way.mend()
            process.send_signal(signal.SIGTERM)
        elif fault == "slow":
            self._way.pause = self._draw.uniform(0.05, 0.5)
            time.sleep(self._draw.uniform(0.5, 4))
            process.kill()
            process.wait()
            self._way.mend()
        else:
            process.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        return process.wait()

    def _reach(self, process: Process, machine: str, step: float) -> int:
        """Waits until this start has reached a step or has ended. Returns its step."""
        folder = self._folder / machine / "runner" / "buckets" / urls.folder_name(self._url)
        before, until = _written(folder), time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            if _written(folder) != before and _step(folder) >= step:
                break
            time.sleep(0.02)
        return _step(folder)


def _wake(process: Process) -> list[str]:
    """Resumes a process that was taken over."""
    process.send_signal(signal.SIGCONT)
    code = process.wait()
    return [] if code == 1 else [f"a process that was taken over ended with {code}"]


def _written(folder: Path) -> int:
    """Returns the time when a run last recorded its step, or 0."""
    with contextlib.suppress(OSError):
        return (folder / "step.txt").stat().st_mtime_ns
    return 0


def _step(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "step.txt").read_text())
    return 0
