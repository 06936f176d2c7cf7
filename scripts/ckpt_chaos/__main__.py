"""Lets ckpt-chaos (on PyPI) kill training at its file operations, and prints its own verdicts.

    pip install ckpt-chaos
    python -m scripts.ckpt_chaos                  # all that are installed
    python -m scripts.ckpt_chaos task fit --points=40

ckpt-chaos runs a command once to record every file operation in its directory. Then it kills copies
of the command: before a file operation (`before`), with a file cut in half (`torn`), with a SIGTERM
(`term`), or so that all writes without an fsync are lost (`unsynced`). It repeats the command and
compares the weights with those of the first run.
"""

import argparse
import collections
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

STEPS, EVERY = 60, 20
VERDICTS = ("PASS", "HARD_FAIL", "SILENT_DIVERGENCE", "LOST_WORK", "CONTROL_FAIL")
_JOB = (sys.executable, "-m")


class Contender(NamedTuple):
    """A way of training that resumes.

    Attributes:
        command: Trains in `{out}`, and resumes there.
        needs: The package that it needs.
        weights: The result: a file of `{out}`, or the command that prints a digest.
        checkpoints: The pattern of its checkpoints, or "" if it removes the last one at the end.
        step: The pattern of the line that names the step at which it resumes.
    """

    command: tuple[str, ...]
    needs: str
    weights: tuple[str, str]
    checkpoints: str = ""
    step: str = ""


_DIGEST = ("--result-cmd", f"{sys.executable} -m scripts.ckpt_chaos.digest {{out}}")
CONTENDERS = {
    "task": Contender(
        (
            *(*_JOB, "runner", "--mode=train_and_eval", "--gin_file=digits.gin"),
            "--model_dir={out}",
            f"--params_override=trainer.train_steps={STEPS},trainer.steps_per_loop={EVERY // 2},"
            f"trainer.summary_interval={EVERY},trainer.checkpoint_interval={EVERY},"
            f"trainer.validation_interval={EVERY},trainer.max_to_keep=10",
        ),
        "runner",
        _DIGEST,
        "{out}/ckpt-*.index",
        r"(?:resumed|already finished) at step (\d+)",
    ),
    "fit": Contender(
        (*_JOB, "scripts.ckpt_chaos.fit", "{out}"),
        "runner",
        _DIGEST,
        "{out}/ckpt-*.index",
        r"(?:resumed|already finished) at step (\d+)",
    ),
    "keras": Contender(
        (*_JOB, "scripts.ckpt_chaos.backup_and_restore", "{out}"),
        "tf_keras",
        ("--result-file", "{out}/final.bin"),
    ),
    "model_garden": Contender(
        (*_JOB, "scripts.ckpt_chaos.model_garden", "{out}"),
        "official",
        _DIGEST,
        "{out}/ckpt-*.index",
        r"restored from checkpoint: .*ckpt-(\d+)",
    ),
    "lightning": Contender(
        (*_JOB, "scripts.ckpt_chaos.lightning_trainer", "{out}"),
        "lightning",
        ("--result-file", "{out}/final.bin"),
    ),
}


def attack(name: str, folder: Path, points: int, jobs: int) -> collections.Counter[str]:
    """Runs ckpt-chaos against a contender, and returns how often it gave each verdict."""
    each = CONTENDERS[name]
    found: collections.Counter[str] = collections.Counter()
    for modes in ("before,torn,term", "unsynced"):
        work = folder / f"{name}-{modes.partition(',')[0]}"
        options = [*each.weights, f"--modes={modes}", f"--max-points={points // 2}"]
        if each.checkpoints:
            options += ["--checkpoint-glob", each.checkpoints, "--step-regex", each.step]
        command = [*_JOB, "ckpt_chaos", "run", f"--work={work}", f"--jobs={jobs}", *options, "--"]
        subprocess.run([*command, *each.command], check=False)
        found += _verdicts(work)
    return found


def _verdicts(work: Path) -> collections.Counter[str]:
    """Applies ckpt-chaos's own rules to its stored results."""
    from ckpt_chaos import runner as judge

    return collections.Counter(row.verdict for row in judge.rejudge(work))


def main() -> None:
    """Attacks the contenders, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", choices=[*CONTENDERS, []])
    parser.add_argument("--points", type=int, default=40, help="moments for each contender")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    given = parser.parse_args()
    table = {}
    with tempfile.TemporaryDirectory(prefix="ckpt-chaos-") as scratch:
        for name in given.names or CONTENDERS:
            needs = CONTENDERS[name].needs
            if importlib.util.find_spec(needs) is None:
                print(f"{name}: {needs} is not installed")
                continue
            table[name] = attack(name, Path(scratch), given.points, given.jobs)
    print("contender     " + "  ".join(VERDICTS))
    for name, counts in table.items():
        cells = "  ".join(f"{counts[verdict]:>{len(verdict)}}" for verdict in VERDICTS)
        print(f"{name:<13} {cells}")
    print(json.dumps({name: dict(counts) for name, counts in table.items()}))


if __name__ == "__main__":
    main()
