"""Explores the interleavings of a model, systematically or at random."""

import dataclasses
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interleavings import scheduler

MANY = 1 << 30


@dataclasses.dataclass(frozen=True)
class Model:
    """Processes and their properties.

    Attributes:
        name: Its name in tables.
        processes: What runs, in a few words.
        start: Called with the world to add the processes. Returns a function that checks the
            properties at the end, and raises `scheduler.ViolationError` if one does not hold.
        deviations: How many times another process is chosen than in the fixed order.
        crashes: How many processes may crash.
        stalls: How many times a process may be suspended.
        terms: How many signals may arrive.
    """

    name: str
    processes: str
    start: Callable
    deviations: int = 2
    crashes: int = 1
    stalls: int = 0
    terms: int = 0


@dataclasses.dataclass
class Result:
    """What an exploration has found.

    Attributes:
        explored: The number of interleavings.
        violations: For each violated property, the first choices that led there.
        is_complete: Whether every interleaving within the bounds was explored.
        most: The most file operations in one interleaving.
    """

    explored: int = 0
    violations: dict = dataclasses.field(default_factory=dict)
    is_complete: bool = False
    most: int = 0

    def add(self, problem, choices, steps):
        self.explored += 1
        self.most = max(self.most, steps)
        if problem is not None:
            text = f"{type(problem).__name__}: {problem}"
            self.violations.setdefault(text, choices)


def run_once(model, choose, *, deviations=None):
    """Runs a model once. Returns the violation, or None, and the number of file operations."""
    shared = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="interleaving-", dir=shared if shared.is_dir() else None))
    try:
        world = scheduler.World(
            root,
            choose,
            deviations=model.deviations if deviations is None else deviations,
            crashes=model.crashes,
            stalls=model.stalls,
            terms=model.terms,
        )
        return world.run(model.start(world)), world.steps
    finally:
        shutil.rmtree(root, ignore_errors=True)


def replay(model, choices, *, deviations=None):
    """Runs the interleaving of a list of choices. Returns the violation, or None."""
    left = list(choices)
    return run_once(model, lambda _: left.pop(0) if left else 0, deviations=deviations)[0]


def systematic(model, *, seconds=float("inf"), stop_at_first=False):
    """Explores every interleaving within the model's bounds, depth first, for some time."""
    result, prefix, until = Result(), [], time.perf_counter() + seconds
    while True:
        made = []

        def choose(options, prefix=prefix, made=made):
            number = prefix[len(made)] if len(made) < len(prefix) else 0
            if number >= options:
                raise RuntimeError("the choices differ when repeated")
            made.append((number, options))
            return number

        problem, steps = run_once(model, choose)
        result.add(problem, [number for number, _ in made], steps)
        while made and made[-1][0] + 1 >= made[-1][1]:
            made.pop()
        if not made:
            result.is_complete = True
            return result
        if time.perf_counter() > until or (stop_at_first and result.violations):
            return result
        prefix = [number for number, _ in made]
        prefix[-1] += 1


def at_random(model, *, seed=0, count=None, seconds=float("inf"), stop_at_first=False):
    """Explores random interleavings: some deviate at a few moments, the others often."""
    result, until, number, length = Result(), time.perf_counter() + seconds, 0, 100
    while (count is None or number < count) and time.perf_counter() < until:
        chance, made = random.Random(f"{seed} {number}"), []
        few = {chance.randrange(length) for _ in range(chance.choice((1, 2, 3, 4)))}
        often = chance.choice((0.0, 0.0, 0.02, 0.1))

        def choose(options, chance=chance, made=made, few=few, often=often):
            deviates = len(made) in few or chance.random() < often
            made.append(chance.randrange(1, options) if deviates else 0)
            return made[-1]

        problem, steps = run_once(model, choose, deviations=MANY)
        result.add(problem, made, steps)
        length = max(length, len(made))
        number += 1
        if stop_at_first and result.violations:
            break
    return result
