"""Lets single file operations of a run fail, one after the other, and restarts the run.

    python -m scripts.chaos storage --points=200 --seed=0

The run's directory is one in which an operation can fail (`faulty.py`). It fails with ENOSPC,
EDQUOT, EROFS or EIO, once or from then on, or it writes only half of the bytes. The run must go on,
or end with exit code 1 and one line. When it is started again without a fault, the result must
equal that of an undisturbed run.

Needs root and the packages that `faulty.py` lists.
"""

import argparse
import collections
import concurrent.futures
import os
import queue
import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from runner.studies import warm
from scripts.chaos import faulty, power

HEADER = "| error | points | went on | ended with exit code 1 | problems |"
NAME = "run"  # of the scenario
PATIENCE = 200.0  # seconds for a run
SHOWN = 20  # points between two lines of progress
PARALLEL = os.cpu_count() or 1


class Point(NamedTuple):
    """A fault to try: the fault, and the operation that it hit in a run without faults."""

    fault: faulty.Fault
    operation: tuple[str, str]

    @property
    def kind(self) -> str:
        """What the table counts."""
        return f"{self.fault.error}{', from then on' if self.fault.lasts else ''}"

    def __str__(self) -> str:
        return f"{self.kind}, operation {self.fault.number}, about {' '.join(self.operation)}"


def storage(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Lets operations fail. Returns the problems."""
    warm.preload(power.MODULES)
    once = flags.folder / "once"
    power.started(power.SCENARIOS[NAME], once, flags.folder / "once.log")
    folders: queue.Queue[faulty.Faulty] = queue.Queue()
    ends: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="storage-") as place,
        concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool,
    ):
        for number in range(PARALLEL):
            own = Path(place, str(number))
            own.mkdir()
            folders.put(faulty.Faulty(own).__enter__())

        def attempt(point: Point) -> None:
            folder = folders.get()
            try:
                end, problems = _attempt(point, folder, once)
            finally:
                folders.put(folder)
            ends[point.kind][end] += 1
            done = sum(found["went on"] + found["ended"] for found in ends.values())
            if done % SHOWN == 0:
                print(f"{done} of {flags.points} points", flush=True)
            if problems:
                ends[point.kind]["problems"] += 1
                wrong.append(f"{point}: {'; '.join(problems)}")
                print(wrong[-1], flush=True)

        list(pool.map(attempt, _points(flags, folders)))
        while not folders.empty():
            folders.get().__exit__()
    print(HEADER, "|---|---:|---:|---:|---:|", sep="\n")
    for kind, found in sorted(ends.items()):
        counts = (found["went on"] + found["ended"], found["went on"], found["ended"])
        print(f"| {kind} | {' | '.join(map(str, counts))} | {found['problems']} |", flush=True)
    return wrong


def _points(flags: argparse.Namespace, folders: "queue.Queue[faulty.Faulty]") -> list[Point]:
    """Draws faults from the operations of a run without faults."""
    draw = random.Random(flags.seed)
    folder = folders.get()
    folder.arm(None)
    power.started(power.SCENARIOS[NAME], folder.path / "it", folder.path.with_name("log"))
    seen = folder.operations
    shutil.rmtree(folder.behind / "it")
    folders.put(folder)
    print(f"{len(seen)} operations", dict(collections.Counter(name for name, _ in seen)))
    points = []
    for _ in range(flags.points):
        error = draw.choice(flags.errors.split(","))
        number = draw.choice([n for n, each in enumerate(seen) if faulty.can_fail(each[0], error)])
        points.append(Point(faulty.Fault(number, error, draw.random() < 1 / 3), seen[number]))
    return points


def _attempt(point: Point, folder: faulty.Faulty, once: Path) -> tuple[str, list[str]]:
    """Trains with a fault, and again without. Returns how the first ended, and the problems."""
    model_dir, log = folder.path / "it", folder.path.with_name("log")
    scenario = power.SCENARIOS[NAME]
    written = power.numbered(log, 0)
    written.unlink(missing_ok=True)
    folder.arm(point.fault)
    child = power.start(scenario.commands[0], model_dir, written)
    code, problems = child.wait(PATIENCE), []
    if code is None:
        problems.append("it hung")
    child.end()
    text = written.read_text()
    if code not in (0, 1):
        problems.append(f"exit code {code}: {text.splitlines()[-2:]}")
    elif code and (reason := _not_one_line(text)):
        problems.append(reason)
    folder.arm(None)
    codes = power.started(scenario, model_dir, log.with_name("again"))
    if any(codes):
        last = power.numbered(log.with_name("again"), 0).read_text().splitlines()[-2:-1]
        problems.append(f"the restart ended with {codes}: {last}; before: {text.splitlines()[-2:]}")
    else:
        parts, files = power.compared(scenario, once, model_dir)
        problems += [f"{part.kind}: {part.differences[0]}" for part in parts if part.differences]
        problems += files
    power.numbered(log.with_name("again"), 0).unlink()
    shutil.rmtree(folder.behind / "it")
    return "went on" if code == 0 else "ended", problems


def _not_one_line(text: str) -> str:
    """Returns what is wrong with the end of a log, or ""."""
    if "Traceback" in text:
        return f"a traceback: {text.splitlines()[-1]}"
    lines = [line for line in text.splitlines() if line.startswith("runner: ")]
    return "" if len(lines) == 1 else f"{len(lines)} lines of errors: {text.splitlines()[-3:]}"
