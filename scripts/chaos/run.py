"""Kills a run repeatedly, at random moments, and compares it with an undisturbed one.

    python -m scripts.chaos run --kills=50 --terms=5 --stops=5 --gin_file=digits_cnn.gin \
        --gin_params="OptimizationConfig.ema=@EMAConfig()" \
        --gin.TrainerConfig.summary_interval=20 --gin.TrainerConfig.checkpoint_interval=50 \
        --gin.TrainerConfig.validation_interval=100

The script divides the training into slices, one for each interruption. Each interruption waits for
a random step in its slice, so that they cover the whole run and it still advances. Some then wait
for a checkpoint write or an evaluation. Others hit the run while it starts. A start takes a few
seconds, fifty kills take about ten minutes.

After a SIGSTOP, the next start takes over the directory of the suspended process, as if from
another host (`other_host.py`). When the new process trains, the suspended one is resumed. It must
exit without writing anything.

No bit may differ, no row may be lost or duplicated, and the files that describe the run must be the
same.
"""

import argparse
import collections
import contextlib
import dataclasses
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from runner.core import files
from runner.run_directory import claim_file, status
from runner.run_directory.verification import child_run
from scripts import processes
from scripts.chaos import results

# The phases to interrupt, with their weights. Random moments would miss saves, which take
# milliseconds.
AIMS = {"start-up": 2, "training": 3, "saving": 3, "evaluation": 2}
SAVE_SECONDS = 0.01

LOST = 1  # the exit code of a process whose run was taken over
# Files that describe a run and must not depend on interruptions.
DESCRIPTIONS = ("config.gin", "params.yaml", "overview.json")

HEADER = "      signal   after s     step  resumes  ended s  in"
MISSED = "nothing: the run ended first"


@dataclasses.dataclass(frozen=True)
class Life:
    """The timing of the undisturbed run.

    Attributes:
        steps: The last step.
        every: Steps from one evaluation to the next, or 0 without evaluations.
        start: Seconds to the first training row.
        row: Seconds from one row to the next.
        evaluation: The duration of an evaluation in seconds.
    """

    steps: int
    every: int
    start: float
    row: float
    evaluation: float


class Suspended:
    """Processes suspended by SIGSTOP, which appear dead to others."""

    def __init__(self, folder: Path) -> None:
        self._claim = folder / "claim.json"
        self._starts: list[child_run.ChildRun] = []
        self._woken: list[child_run.ChildRun] = []

    def add(self, start: child_run.ChildRun) -> None:
        """Suspends a process, to be resumed later."""
        start.chief.send(signal.SIGSTOP)
        self._starts.append(start)

    def wake(self) -> bool:
        """Resumes processes whose directory another one has taken over. False, to be polled."""
        seen = claim_file.look(self._claim) if self._starts else None
        for start in [s for s in self._starts if seen and seen.holder.pid != s.chief.pid]:
            start.chief.send(signal.SIGCONT)
            self._starts.remove(start)
            self._woken.append(start)
        return False

    def end(self) -> list[int]:
        """Resumes the rest, and returns the exit codes of all."""
        for start in self._starts:
            start.chief.send(signal.SIGCONT)
        return [start.chief.wait() or 0 for start in (*self._woken, *self._starts)]


class Watched:
    """One start of the interrupted run, observed through its files."""

    def __init__(self, folder: Path, life: Life) -> None:
        self._folder = folder
        self._life = life
        self._names = self._listed()
        self._rows = frozenset(self._written())

    def step(self) -> int:
        """The last step recorded in the directory."""
        return max(child_run.last_row(self._folder), child_run.committed(self._folder))

    def trains(self) -> bool:
        """Whether training has started: there is a row that no earlier start wrote."""
        rows = self._written()
        return bool(rows) and rows[-1] not in self._rows

    def saves(self) -> bool:
        """Whether a checkpoint is incomplete, or not yet listed."""
        new = self._listed() - self._names
        steps = [int(name[5:-6]) for name in new if name.endswith(".index")]
        return any("_temp" in name for name in new) or bool(
            steps and max(steps) > child_run.committed(self._folder)
        )

    def evaluates(self) -> bool:
        """Whether an evaluation is due but not yet recorded."""
        step, every = self.step(), self._life.every
        if not every or (step % every and step != self._life.steps):
            return False
        history = files.read_json_lines(self._folder / "history.jsonl")
        return all(row["step"] != step for row in history)

    def phase(self) -> str:
        """The phase in which it is, or was when it was killed."""
        if not self.trains():
            return "start-up"
        here = {"saving": self.saves(), "evaluation": self.evaluates()}
        return " + ".join(name for name, true in here.items() if true) or "training"

    def _listed(self) -> set[str]:
        return {path.name for path in self._folder.glob("*")}

    def _written(self) -> list[bytes]:
        """The complete lines of train.jsonl. They differ between starts, because of the speed."""
        path = self._folder / "train.jsonl"
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@dataclasses.dataclass(frozen=True)
class Blow:
    """A planned interruption.

    Attributes:
        number: The signal.
        aim: A key of `AIMS`.
        step: The step of the training row to wait for.
        share: How far into the targeted phase, from 0 to 1.
    """

    number: signal.Signals
    aim: str
    step: int
    share: float


def run(flags: argparse.Namespace, more: list[str]) -> list[str]:
    """Trains undisturbed and interrupted. Returns the problems."""
    more = [f"--mode={flags.mode}", *more]
    other_host = [sys.executable, "-m", "scripts.chaos.other_host"]
    command = [*(other_host if flags.stops else processes.runner()), *more]
    once, killed = flags.folder / "once", flags.folder / "killed"
    print(f"undisturbed, in {once}:", flush=True)
    life = live(command, once)
    print(f"  {life.steps} steps, {life.start:.1f} s to the first row", flush=True)
    print(f"killed, in {killed}:\n{HEADER}", flush=True)
    begun = time.monotonic()
    phases: collections.Counter[str] = collections.Counter()
    suspended = Suspended(killed)
    for number, blow in enumerate(blows(flags, life), start=1):
        while (phase := strike(number, blow, command, killed, life, suspended)) == MISSED:
            blow = Blow(signal.SIGKILL, "start-up", blow.step, blow.share / 2)
        phases[phase] += 1
    with child_run.ChildRun(command, killed) as start:
        start.wait_for(suspended.wake)
        start.finish()
    codes = suspended.end()
    counts = ", ".join(f"{count} in {phase}" for phase, count in phases.most_common())
    seconds = time.monotonic() - begun
    print(
        f"\n{phases.total()} interruptions in {seconds:.0f} s: {counts}; {len(codes)} takeovers\n"
    )
    wrong = results.differences(once, killed) + others(once, killed)
    return wrong + [f"a process taken over exited with {code}" for code in codes if code != LOST]


def others(once: Path, killed: Path) -> list[str]:
    """Returns the problems with the files that describe the run."""
    wrong = [
        f"{name} differs"
        for name in DESCRIPTIONS
        if (once / name).read_bytes() != (killed / name).read_bytes()
    ]
    now = status.read(killed)
    return wrong if now and now.state == "done" else [*wrong, f"status.json says {now}"]


def live(command: Sequence[str], folder: Path) -> Life:
    """Trains to the end, undisturbed, and measures the timing."""
    begun = time.monotonic()
    with child_run.ChildRun(command, folder) as start:
        start.wait_for(lambda: child_run.last_row(folder) > 0)
        trains = time.monotonic()
        start.finish()
    trainer = yaml.safe_load((folder / "params.yaml").read_text())["trainer"]
    rows = len(list(files.read_json_lines(folder / "train.jsonl")))
    took = [row.get("seconds", 0.0) for row in files.read_json_lines(folder / "history.jsonl")]
    return Life(
        trainer["train_steps"],
        trainer["validation_interval"] if "--mode=train_and_eval" in command else 0,
        trains - begun,
        (time.monotonic() - trains) / rows,
        max(took, default=0.0),
    )


def blows(flags: argparse.Namespace, life: Life) -> list[Blow]:
    """Plans the interruptions, one in each slice of the training."""
    chance = random.Random(flags.seed)
    numbers = [signal.SIGKILL] * flags.kills + [signal.SIGTERM] * flags.terms
    numbers += [signal.SIGSTOP] * flags.stops
    chance.shuffle(numbers)
    weights = {aim: weight for aim, weight in AIMS.items() if life.every or aim != "evaluation"}
    aims = chance.choices(list(weights), list(weights.values()), k=len(numbers))
    width = life.steps / len(numbers)
    planned = [
        Blow(number, aim, int((index + chance.random()) * width), chance.random())
        for index, (number, aim) in enumerate(zip(numbers, aims, strict=True))
    ]
    return [  # a process that is still starting has no lock to take over
        dataclasses.replace(blow, aim="training") if blow.number == signal.SIGSTOP else blow
        for blow in planned
    ]


def strike(
    number: int,
    blow: Blow,
    command: Sequence[str],
    folder: Path,
    life: Life,
    suspended: Suspended,
) -> str:
    """Starts the run, interrupts it, prints a line of the table, and returns the phase it hit."""
    run = Watched(folder, life)
    begun = time.monotonic()

    def reached() -> bool:
        trains = run.trains()
        if trains:
            suspended.wake()
        if blow.aim == "start-up":
            return trains or time.monotonic() - begun >= blow.share * life.start
        phases = {"training": lambda: True, "saving": run.saves, "evaluation": run.evaluates}
        return trains and run.step() >= blow.step and phases[blow.aim]()

    pause = {"training": life.row, "saving": SAVE_SECONDS, "evaluation": life.evaluation}
    with contextlib.ExitStack() as stack:
        start = stack.enter_context(child_run.ChildRun(command, folder))
        came = start.wait_for(reached)
        time.sleep(blow.share * pause.get(blow.aim, 0.0))
        phase, step, sent = run.phase(), run.step(), time.monotonic()
        if blow.number == signal.SIGSTOP and came and start.chief.code is None:
            suspended.add(start)
            stack.pop_all()  # does not end the process
            interrupted = True
        else:
            interrupted = came and start.interrupt(blow.number)
    ended = time.monotonic()
    if not interrupted:
        phase = MISSED
    elif blow.number == signal.SIGKILL:
        phase, step = run.phase(), run.step()  # the state after the kill
    print(
        f"{number:>4}  {blow.number.name}{sent - begun:>9.2f}{step:>9}"
        f"{child_run.committed(folder):>9}{ended - sent:>9.2f}  {phase}",
        flush=True,
    )
    return phase
