"""Flips single bits in training steps that are repeated, and compares with an undisturbed run.

    python -m scripts.chaos flips --points=1000 --seed=0

A flip hits an activation, a gradient, or a variable after the update, in the first or in the second
execution of a step. The run finds it, rolls back, and must end with the bits of an undisturbed run.
A flip that changes nothing, such as one in an activation whose gradient is 0, cannot be found.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import runner
from runner.run_directory.run import Run
from runner.run_directory.verification import comparison

SETTINGS: dict[str, dict[str, Any]] = {
    "two replicas": {  # first: TensorFlow must not have started yet
        "runtime": {"distribution_strategy": "mirrored"},
        "run": {"logical_cpus": 2},
    },
    "one device": {},
    "bfloat16": {"runtime": {"mixed_precision_dtype": "bfloat16"}},
    "gradient accumulation": {"run": {"gradient_accumulation": 2}},
}
INTERVAL = 20  # steps between checkpoints
EVERY = 5  # steps between repeated steps
GAP = 3 * INTERVAL // EVERY  # repeated steps for each flip, as a step may not be hit twice
HEADER = "| setting | place | flips | found | changed nothing | missed |"


def flips(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Trains with and without flips, and prints a table. Returns the problems."""
    share = -(-flags.points // len(SETTINGS))
    lines, wrong = [], []
    for number, (name, overrides) in enumerate(SETTINGS.items()):
        draw = random.Random(flags.seed * len(SETTINGS) + number)
        folder = flags.folder / name.replace(" ", "_")
        found, problems = _struck(folder, overrides, share, draw)
        lines += [f"| {name} | {line}" for line in found]
        wrong += [f"{name}: {problem}" for problem in problems]
    print(HEADER, "|---|---|---:|---:|---:|---:|", *lines, sep="\n", flush=True)
    return wrong


def _struck(
    folder: Path, overrides: dict[str, Any], count: int, draw: random.Random
) -> tuple[list[str], list[str]]:
    """Returns the rows of the table, without the setting, and the problems."""
    import flips
    import toy

    made = toy.experiment(overrides, dropout=0.2)
    made.task = flips.FlipsConfig(dropout=0.2)
    made.override(
        {
            "trainer": {
                "train_steps": (count + 1) * GAP * EVERY,
                "checkpoint_interval": INTERVAL,
                "summary_interval": 10 * INTERVAL,
            },
            "run": {"recheck_every": EVERY, "on_corruption": "roll_back"},
        }
    )
    runner.run(made, folder / "once", "train")
    numbers = [GAP * number + draw.randrange(GAP // 3) for number in range(1, count + 1)]
    with flips.Flips(numbers, draw, flips.PLACES) as struck:
        runner.run(made, folder / "struck", "train")
    parts = comparison.differing(comparison.compare(folder / "once", folder / "struck"))
    parts.pop(comparison.DECISIONS, None)  # the rollbacks
    problems = [f"{kind}: {part.differing} differ" for kind, part in parts.items()]
    recorded = len(Run(folder / "struck").corruptions)
    if recorded != sum(flip.is_found for flip in struck.done):
        problems.append(f"{recorded} flips were recorded")
    lines = []
    for place in flips.PLACES:
        found = [flip.is_found for flip in struck.done if flip.place == place]
        unfound = found.count(False)
        missed = unfound if problems or place == "state" else 0
        lines.append(f"{place} | {len(found)} | {sum(found)} | {unfound - missed} | {missed} |")
        problems += [f"{missed} flips were missed"] if missed else []
    return lines, problems
