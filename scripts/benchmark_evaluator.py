"""Measures an evaluator beside training, in real processes.

    python scripts/benchmark_evaluator.py [--rounds=3] [--checkpoints=400]

- The delay from a checkpoint's last file, or the end of the previous evaluation if that is later,
  to the start of its evaluation (policy `latest`).
- The delay from the end of training, or of the last evaluation if that is later, to the exit of the
  evaluator.
- The CPU usage of a waiting evaluator, as a fraction of a core.
- The number of checkpoints missed by the policy `every` while training keeps only one and saves
  faster than the evaluator evaluates; how much faster is printed.
- The growth of resident memory per evaluation in that case, without the first hundred.

The task is digits.gin. It takes about four minutes on two cores.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import benchmark_memory as memory
from runner.core import files
from runner.run_folder import status

STEPS = 15_000
TRAINER = {"train_steps": STEPS, "checkpoint_interval": 1_500, "max_to_keep": 100}
SLOW = ("EvaluatorConfig.policy='every'", "validation/ImageData.global_batch_size=1")
WARM_UP = 100
WAIT_SECONDS = 20


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of training with a fast evaluator"
    )
    parser.add_argument("--checkpoints", type=int, default=400, help="for a slow evaluator")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / f"run-{number}" for number in range(flags.rounds)]
        ends = [follow(run) for run in runs]
        starts = [delay for run in runs for delay in delays(run)]
        show("checkpoint complete to evaluation started", starts, most=1)
        show("end of training to end of evaluator", ends, most=2)
        print(f"an evaluator that waits: {waiting(runs[0]):.2%} of a core (at most 2%)", flush=True)
        every(Path(folder) / "every", flags.checkpoints)


class Process:
    """A runner process; its output goes to a file beside the run's folder."""

    def __init__(self, mode: str, model_dir: Path, *params: str, **trainer: int) -> None:
        self.log = model_dir.with_name(f"{model_dir.name}-{mode}.log")
        params = (*params, *(f"TrainerConfig.{name}={value}" for name, value in trainer.items()))
        command = [sys.executable, "-m", "runner", f"--mode={mode}", f"--model_dir={model_dir}"]
        command += ["--gin_file=digits.gin", *(f"--gin.{each}" for each in params)]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def runs(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def finish(self) -> float:
        """Waits for it to succeed, and returns the time of its exit."""
        if code := self._process.wait():
            sys.exit(f"exit code {code}:\n{self.log.read_text()}")
        return time.time()

    def waits(self) -> None:
        """Returns once it is waiting for training."""
        while self.runs and "; waiting" not in self.log.read_text():
            time.sleep(0.1)

    def cpu_seconds(self) -> float:
        """Its CPU time so far, on all cores."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Its resident memory."""
        return memory.resident_mib(self._process.pid)


def follow(model_dir: Path) -> float:
    """Trains beside an evaluator; returns how many seconds after all work was done it exited."""
    with Process("continuous_eval", model_dir) as evaluator:
        evaluator.waits()
        with Process("train", model_dir, **TRAINER) as training:
            training.finish()
            ended = evaluator.finish()
    return ended - max(end_of(model_dir), ledger(model_dir)[-1]["time"])


def delays(model_dir: Path) -> list[float]:
    """Seconds to each evaluation since its checkpoint existed and the evaluator was idle."""
    found, free = [], 0.0
    for row in ledger(model_dir):
        complete = (model_dir / f"{row['checkpoint']}.index").stat().st_mtime
        found.append(row["time"] - row["seconds"] - max(complete, free))
        free = row["time"]
    return found


def waiting(model_dir: Path) -> float:
    """The fraction of a core that an idle evaluator uses while it waits for checkpoints."""
    status.StatusFile(model_dir).write("preempted", STEPS)
    with Process("continuous_eval", model_dir) as evaluator:
        evaluator.waits()
        time.sleep(2)
        before = evaluator.cpu_seconds()
        time.sleep(WAIT_SECONDS)
        return (evaluator.cpu_seconds() - before) / WAIT_SECONDS


def every(model_dir: Path, checkpoints: int) -> None:
    """Prints what a slow evaluator misses, and how its memory grows."""
    often = {"steps_per_loop": 25, "checkpoint_interval": 25, "max_to_keep": 1}
    resident: list[float] = []
    with Process("continuous_eval", model_dir, *SLOW) as evaluator:
        evaluator.waits()
        with Process("train", model_dir, train_steps=25 * checkpoints, **often) as training:
            while evaluator.runs:
                if len(ledger(model_dir)) > len(resident):
                    now = evaluator.resident_mib()
                    resident += [now] if now else []  # 0 once it has exited
                time.sleep(0.02)
            training.finish()
        evaluator.finish()
    rows = ledger(model_dir)
    apart = statistics.median(b["time"] - a["time"] for a, b in itertools.pairwise(rows))
    begun = (model_dir / "overview.json").stat().st_mtime
    saved = (end_of(model_dir) - begun) / checkpoints
    print(
        f"policy every: {checkpoints - len(rows)} missed in {checkpoints}; saving took "
        f"{saved:.3f} s, evaluating {apart:.3f} s, {apart / saved:.1f} times as long"
    )
    counted = resident[WARM_UP:]
    rise, error = memory.slope(counted)
    print(
        f"resident memory: {1024 * rise:+.1f} ± {1024 * error:.1f} KiB per evaluation over "
        f"{len(counted)}, "
        f"from {counted[0]:.1f} to {counted[-1]:.1f} MiB"
    )


def end_of(model_dir: Path) -> float:
    """When training ended, in seconds since the epoch."""
    ended = status.read(model_dir)
    assert ended is not None
    return ended.heartbeat


def ledger(model_dir: Path) -> Sequence[dict[str, Any]]:
    """The evaluator's rows."""
    return list(files.read_json_lines(model_dir / "eval-continuous" / "history.jsonl"))


def show(what: str, seconds: Sequence[float], *, most: float) -> None:
    """Prints the median and the maximum."""
    print(
        f"{what}: median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s "
        f"of {len(seconds)} (at most {most} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
