"""Kills, stops and suspends workers and supervisors of a run at random, and checks the result.

    python -m scripts.chaos workers --faults=50 --workers=2 --gin_file=digits.gin \
        --gin.TrainerConfig.train_steps=2000 --gin.TrainerConfig.checkpoint_interval=50

With a fixed number of workers, no bit may differ from an undisturbed run. With a range, such as
`--workers=2..3`, the number of workers changes and bits may differ. Each epoch must then use every
example as often as in an undisturbed run.

A fault is SIGKILL, SIGTERM or SIGSTOP, sent to a worker, the chief, the supervisor or all of them.
If the supervisor ends, the script repeats the command. It resumes a suspended supervisor after two
seconds.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runner.run_directory import supervised
from runner.run_directory.run import reached
from runner.run_directory.verification import child_run
from scripts.chaos import results

SIGNALS = {signal.SIGKILL: 4, signal.SIGTERM: 2, signal.SIGSTOP: 1}
TARGETS = {"worker": 3, "chief": 3, "supervisor": 2, "all": 1}
SUSPENDED_SECONDS = 2.0
ALWAYS = (  # with the default limits, so many faults would end a run
    "--gin.WorkersConfig.restarts_an_hour=100000",
    "--gin.WorkersConfig.idle_starts=100",
    "--gin.WorkersConfig.rest_seconds=5",
    "--gin.RunConfig.system_seconds=0",
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A planned fault.

    Attributes:
        number: The signal.
        target: A key of `TARGETS`.
        step: The step to wait for, or 0 for the start.
        seconds: The time to wait after the step.
    """

    number: signal.Signals
    target: str
    step: int
    seconds: float


class Run:
    """The disturbed run. Its supervisor is restarted whenever it has ended."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._stack = contextlib.ExitStack()
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Starts the command."""
        self._stack.close()
        self.starts += 1
        self.child = self._stack.enter_context(child_run.ChildRun(self._command, self._folder))

    @property
    def step(self) -> int:
        """The last recorded step."""
        return reached(self._folder)

    @property
    def has_ended(self) -> bool:
        """Whether the supervisor has ended."""
        return self.child.chief.code is not None

    def ended(self) -> int | None:
        """The exit code of a supervisor that has finished the run."""
        code = self.child.chief.code
        return code if code in (0, 1, 2, 3) else None

    def targets(self, name: str) -> list[int]:
        """Returns the existing processes of a target."""
        supervisor = self.child.chief.pid
        workers = self._workers(supervisor)
        targets = {
            "supervisor": [supervisor],
            "chief": [workers[index] for index in workers if index == 0],
            "worker": [workers[index] for index in sorted(workers) if index][-1:],
            "all": [*workers.values(), supervisor],
        }
        return targets[name]

    def _workers(self, supervisor: int) -> dict[int, int]:
        """Returns the processes of workers by index: children of the supervisor, and forks."""
        workers = {}
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
            for child in map(int, text.split()):
                with contextlib.suppress(OSError, KeyError, ValueError):
                    lines = Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
                    environment = dict(line.partition("=")[::2] for line in lines)
                    task = json.loads(environment["TF_CONFIG"])["task"]
                    workers[int(task["index"])] = child
        for path in (self._folder / "workers").glob("[0-9]*.json"):
            with contextlib.suppress(OSError, KeyError, ValueError):
                process = json.loads(path.read_text())["pid"]
                os.kill(process, 0)
                workers[int(path.stem)] = process
        return workers

    def strike(self, fault: Fault) -> bool:
        """Sends the signal. False if no process was found."""
        pids = self.targets(fault.target)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, fault.number)
        if fault.number == signal.SIGSTOP and fault.target in ("supervisor", "all"):
            time.sleep(SUSPENDED_SECONDS)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return bool(pids)

    def wait(self, step: int, seconds: float) -> bool:
        """Waits for a step, and restarts the command if it ends. False if the run is done."""
        end = time.monotonic() + seconds
        while (self.step < step if step else time.monotonic() < end) and self.ended() is None:
            if self.has_ended:
                self.start()
            time.sleep(0.02)
        return self.ended() is None

    def finish(self) -> int:
        """Lets the run end. Returns its exit code."""
        while self.ended() is None:
            if self.has_ended:
                self.start()
            time.sleep(0.1)
        code = self.child.chief.wait()
        self._stack.close()
        return int(code or 0)


def workers(flags: argparse.Namespace, more: list[str]) -> list[str]:
    """Trains undisturbed and with faults. Returns the problems."""
    program = [sys.executable, "-m", "scripts.chaos.recording"]
    command = [*program, f"--workers={flags.workers}", f"--mode={flags.mode}", *more, *ALWAYS]
    once, struck = flags.folder / "once", flags.folder / "struck"
    for folder in (once, struck):
        records(folder).mkdir(parents=True)
    print(f"undisturbed, in {once}:", flush=True)
    begun = time.monotonic()
    os.environ["CHAOS_RECORDS"] = str(records(once))
    with child_run.ChildRun(command, once) as child:
        child.finish()
    steps = reached(once)
    print(f"  {steps} steps in {time.monotonic() - begun:.0f} s", flush=True)
    header = "   n  signal  target       step    s to the next step"
    print(f"struck, in {struck}:\n{header}", flush=True)
    os.environ["CHAOS_RECORDS"] = str(records(struck))
    run = Run(command, struck)
    count = strike_often(run, planned(flags, steps))
    code = run.finish()
    print(f"\n{count.total()} faults, {run.starts} starts of the command, exit code {code}")
    print(", ".join(f"{times} {name}" for name, times in count.most_common()))
    rows = (supervised.read(struck) or {}).get("restarts", [])
    print(f"restarts by the supervisor (the last hundred are kept): {len(rows)}")
    sizes = sorted({len(names) for names in seen_by(records(struck)).values()})
    print(f"numbers of workers that trained: {sizes}")
    wrong = [f"the last start ended with {code}"] if code else []
    if counts(records(once)) != counts(records(struck)):
        wrong.append("steps have not seen the same examples as in the undisturbed run")
    differences = results.differences(once, struck)
    return wrong if ".." in flags.workers else wrong + differences


def strike_often(run: Run, faults: Sequence[Fault]) -> collections.Counter[str]:
    """Disturbs the run, and prints a line for each fault. Counts what was hit."""
    count: collections.Counter[str] = collections.Counter()
    for number, fault in enumerate(faults, start=1):
        if not run.wait(fault.step, fault.seconds):
            break
        if not run.strike(fault):
            continue
        count[f"{fault.number.name} {fault.target}"] += 1
        step, at = run.step, time.monotonic()
        goes_on = run.wait(step + 1, 0) if fault.step else True
        took = f"{time.monotonic() - at:6.1f}" if goes_on and fault.step else "  (in a start)"
        print(f"{number:>4}  {fault.number.name}  {fault.target:<11}{step:>6}  {took}", flush=True)
    return count


def records(folder: Path) -> Path:
    """Returns the directory in which the workers of a run record their examples."""
    return folder.with_name(f"{folder.name}-examples")


def seen_by(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each generation of workers."""
    generations: dict[str, list[Path]] = {}
    for path in folder.glob("*.txt"):
        generations.setdefault(path.stem.rpartition("-")[0], []).append(path)
    return generations


def counts(folder: Path) -> dict[int, list[str]]:
    """Returns the examples of each step, of all workers of the last generation that did it."""
    newest: dict[int, tuple[float, str]] = {}
    seen: dict[tuple[str, int], list[str]] = {}
    for generation, paths in seen_by(folder).items():
        for path in paths:
            for line in path.read_text().splitlines():
                step, when, *examples = line.split()
                seen.setdefault((generation, int(step)), []).extend(examples)
                newest[int(step)] = max(newest.get(int(step), (0.0, "")), (float(when), generation))
    return {step: sorted(seen[generation, step]) for step, (_, generation) in newest.items()}


def planned(flags: argparse.Namespace, steps: int) -> list[Fault]:
    """Plans the faults, one in each slice of the training."""
    chance = random.Random(flags.seed)
    width = steps / (flags.faults + 1)
    faults = []
    for index in range(flags.faults):
        (number,) = chance.choices(list(SIGNALS), list(SIGNALS.values()))
        (target,) = chance.choices(list(TARGETS), list(TARGETS.values()))
        starting = chance.random() < 0.2
        step = 0 if starting else int((index + chance.random()) * width) + 1
        faults.append(Fault(number, target, step, chance.uniform(0, flags.start_seconds)))
    return faults
