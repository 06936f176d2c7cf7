"""Measures the memory of processes that wait: an evaluator, a supervisor and a study's parent."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runner.run_directory.run import reached
from runner.run_directory.verification import child_run
from scripts import processes
from scripts.bench import rounds
from scripts.bench.comparison import Comparison, Ratio

_ENDLESS = "--gin.TrainerConfig.train_steps=100000000"
_RARELY = "--gin.TrainerConfig.checkpoint_interval=100000000"
_SETTLE_SECONDS = 5


def idle(options: argparse.Namespace) -> Iterator[Comparison]:
    """Measures the resident memory of waiting processes, and of Python with TensorFlow."""
    for what, flags in (
        ("an evaluator that waits for a checkpoint", ("continuous_eval",)),
        ("the supervisor of a worker", ("train", "--workers=1", _ENDLESS)),
        ("a study's parent", ("study", "--seeds=1", "--jobs=1", _ENDLESS, _RARELY)),
    ):
        found = rounds.transposed([_memory(*flags) for _ in range(options.repeats)])
        yield Comparison(what, "MiB", found, [Ratio("runner", ("import tensorflow",), most=0.5)])


def _memory(mode: str, *flags: str) -> dict[str, float]:
    """Returns the proportional memory of a command without its children, once it waits."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        command = processes.runner(mode, "--gin_file=digits.gin", *flags)
        with child_run.ChildRun(command, folder) as child:
            if mode == "continuous_eval":
                processes.until(lambda: (folder / "eval-continuous" / "run.json").exists())
            else:
                processes.until(lambda: any(reached(each.parent) for each in _rows(folder)))
            time.sleep(_SETTLE_SECONDS)
            ours = _resident(child.chief.pid)
    code = "import tensorflow, sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bare:
        assert bare.stdout
        bare.stdout.readline()
        theirs = _resident(bare.pid)
        bare.communicate()
    return {"runner": ours, "import tensorflow": theirs}


def _rows(folder: Path) -> list[Path]:
    return [*folder.glob("train.jsonl"), *folder.glob("trials/*/train.jsonl")]


def _resident(pid: int) -> float:
    """Returns the proportional set size in MiB: pages that processes share count in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
