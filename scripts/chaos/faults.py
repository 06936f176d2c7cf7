"""Draws faults of all kinds, over five tasks, until there are enough.

    python -m scripts.chaos all --faults=1000 --seed=0 --folder=faults
    python -m scripts.chaos all --faults=1000 --seed=0 --folder=faults    # goes on after a stop

Each unit is another subcommand with a few faults. A round has each unit once, in random order and
with its own seed. The results are in results.jsonl, so that the same command goes on where it was
stopped, also with more faults. The table counts the faults of all units in it.
"""

import argparse
import collections
import concurrent.futures
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files
from scripts import processes
from scripts.chaos.attacks import EMA, every

SIGNALS = {"kills": "SIGKILL", "terms": "SIGTERM", "stops": "SIGSTOP and takeover"}
HEADER = "| target | fault | faults | withstood |"


class Unit(NamedTuple):
    """A subcommand with its faults.

    Attributes:
        target: What it disturbs.
        command: The subcommand and its flags, without seed and directory.
        faults: How many faults of each kind it causes.
        has_seed: Whether it takes a seed.
    """

    target: str
    command: Sequence[str]
    faults: Mapping[str, int]
    has_seed: bool = True


def _run(gin_file: str, *more: str) -> Unit:
    counts = {"kills": 6, "terms": 2, "stops": 2}
    flags = [f"--{name}={count}" for name, count in counts.items()]
    faults = {SIGNALS[name]: count for name, count in counts.items()}
    return Unit(f"run: {gin_file}", ["run", *flags, f"--gin_file={gin_file}", *more], faults)


UNITS = (
    _run("digits.gin", EMA, *every(2000, evaluation=200, checkpoint=50, summary=20)),
    _run("digits_cnn.gin", EMA, *every(600, evaluation=100, checkpoint=50, summary=20)),
    _run("aspects_tiny.gin", "--params_override=run.epochs.train=20"),
    _run(
        "questions_tiny.gin",
        *every(120, evaluation=40, checkpoint=20, summary=10),
        "--gin.TrainerConfig.steps_per_loop=5",
    ),
    _run("scripts/indexed_digits.gin", *every(600, evaluation=100, checkpoint=50, summary=20)),
    *(
        Unit(name, ["power", f"--names={name}", f"--cuts={cuts}"], {"power cut": cuts})
        for name, cuts in {"run": 30, "evaluator": 6, "study": 6, "mirror": 6}.items()
    ),
    *(
        Unit("run", ["storage", "--points=8", f"--errors={error}"], {error: 8})
        for error in ("ENOSPC", "EIO", "EROFS", "EDQUOT")
    ),
    Unit("run", ["memory", "--points=6"], {"no memory": 6}),
    Unit("run", ["lost", "--kills=6"], {"SIGKILL and a lost file": 6}),
    Unit("run", ["moved"], {"moved directory": 5}, has_seed=False),
    Unit("run", ["streams"], {"closed, full or unread stream": 7}, has_seed=False),
    Unit("evaluator", ["clocks"], {"clock an hour off": 2}, has_seed=False),
    Unit(
        "worker, chief, supervisor",
        [
            "workers",
            "--faults=6",
            "--gin_file=digits.gin",
            *every(1000, evaluation=200, checkpoint=50, summary=20),
        ],
        {"SIGKILL, SIGTERM or SIGSTOP": 6},
    ),
    Unit(
        "study",
        [
            *("study", "--kills=6", "--gin_file=digits.gin", "--jobs=2", "--trials=4"),
            *("--vary=CosineLrConfig.initial_learning_rate=log(1e-4, 1)", "--seeds=1"),
            "--params_override=run.study.strategy=tpe",
        ],
        {"SIGKILL": 6},
    ),
    Unit(
        "mirror",
        ["bucket", "--faults=6", "--gin_file=digits.gin", "--gin.TrainerConfig.train_steps=1500"],
        {"SIGKILL, SIGTERM, SIGSTOP, lost or slow connection": 6},
    ),
)


def everything(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Runs units until there are enough faults, and prints the table. Returns the problems."""
    path = flags.folder / "results.jsonl"
    done = {row["number"]: row for row in files.read_json_lines(path)}
    left = [each for each in _drawn(flags.seed, flags.faults) if each[0] not in done]
    print(f"{len(done)} units done, {len(left)} left", flush=True)

    def attempt(each: tuple[int, Unit, int]) -> None:
        number, unit, seed = each
        row = {"number": number, **_attempt(unit, seed, flags.folder / f"{number:04}")}
        files.append_json_line(path, row)
        done[number] = row
        print(f"{number:4} {unit.target}: {' '.join(unit.command[:2])}: {row['end']}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        list(pool.map(attempt, left))
    rows = list(done.values())
    print("", *_table(rows), sep="\n")
    return [f"unit {row['number']}: {row['command']}" for row in rows if row["code"]]


def _drawn(seed: int, faults: int) -> Iterator[tuple[int, Unit, int]]:
    """Yields numbered units with their seeds, until there are enough faults."""
    draw, number, total = random.Random(seed), 0, 0
    while total < faults:
        for unit in draw.sample(UNITS, len(UNITS)):
            if total < faults:
                yield number, unit, draw.randrange(1 << 30)
            number, total = number + 1, total + sum(unit.faults.values())


def _attempt(unit: Unit, seed: int, folder: Path) -> dict[str, Any]:
    """Runs a unit. Returns its row."""
    begun = time.monotonic()
    command = [*unit.command, f"--folder={folder}"]
    command += [f"--seed={seed}"] if unit.has_seed else []
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, "-m", "scripts.chaos", *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=processes.ROOT,
            check=False,
        ).returncode
    end = log.read_text(errors="replace").splitlines()[-1:]
    return {
        "command": " ".join(command),
        "target": unit.target,
        "faults": dict(unit.faults),
        "code": code,
        "end": " ".join(end),
        "seconds": round(time.monotonic() - begun),
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the table: a line for each target and kind of fault, and the total."""
    counts: dict[tuple[str, str], collections.Counter[bool]] = collections.defaultdict(
        collections.Counter
    )
    for row in rows:
        for kind, count in row["faults"].items():
            counts[row["target"], kind][row["code"] == 0] += count
            counts["all", "all"][row["code"] == 0] += count
    lines = [HEADER, "|---|---|---:|---:|"]
    for (target, kind), found in sorted(counts.items(), key=json.dumps):
        lines.append(f"| {target} | {kind} | {found.total()} | {found[True]} |")
    return lines
