"""An evaluator alongside training, in real processes."""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.core import files
from runner.core.child import Child
from runner.run_directory import status
from runner.run_directory.state import State
from runner.run_directory.verification import child_run
from scripts import processes
from scripts.bench import memory
from scripts.bench.comparison import Comparison, Ratio

STEPS = 15_000
TRAINER = {"train_steps": STEPS, "checkpoint_interval": 1_500, "max_to_keep": 100}
SLOW = ("EvaluatorConfig.policy='every'", "validation/ImageData.global_batch_size=1")
WARM_UP = 100
WAIT_SECONDS = 20


def evaluator(options: argparse.Namespace) -> Iterator[Comparison]:
    """Measures an evaluator alongside training.

    - The delay from a checkpoint's last file, or the end of the previous evaluation if that is
      later, to the start of its evaluation (policy `latest`).
    - The delay from the end of training, or of the last evaluation if that is later, to the exit of
      the evaluator.
    - The CPU usage of a waiting evaluator.
    - The number of checkpoints that the policy `every` misses while training keeps only one and
      saves faster than the evaluator evaluates.
    - The growth of resident memory per evaluation in that case, without the first hundred.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / f"run-{number}" for number in range(options.repeats)]
        ends = [_follow(run) for run in runs]
        starts = [delay for run in runs for delay in _delays(run)]
        yield from _delay("checkpoint complete to evaluation started", starts, most=1)
        yield from _delay("end of training to end of evaluator", ends, most=2)
        yield Comparison(
            "a waiting evaluator, at most 2", "% of a core", {"runner": [_waiting(runs[0])]}
        )
        yield from _every(Path(folder) / "every", options.checkpoints)


def _delay(what: str, seconds: list[float], *, most: int) -> Iterator[Comparison]:
    yield Comparison(f"{what}, at most {most}", "s", {"runner": seconds})
    yield Comparison(f"{what}, the longest", "s", {"runner": [max(seconds)]})


def _start(mode: str, model_dir: Path, *bindings: str, **trainer: int) -> Child:
    """Starts a process of the runner, whose output goes to files next to the run directory."""
    bindings = (*bindings, *(f"TrainerConfig.{name}={value}" for name, value in trainer.items()))
    flags = ("--gin_file=digits.gin", *(f"--gin.{binding}" for binding in bindings))
    command = processes.runner(mode, f"--model_dir={model_dir}", *flags)
    return child_run.start(command, model_dir.with_name(f"{model_dir.name}-{mode}"))


def _wait_until_idle(process: Child) -> None:
    """Waits until an evaluator is waiting for training."""
    process.wait_until(lambda: "; waiting" in "\n".join(process.lines()))


def _follow(model_dir: Path) -> float:
    """Trains alongside an evaluator. Returns the delay from the end of all work to its exit."""
    with _start("continuous_eval", model_dir) as beside:
        _wait_until_idle(beside)
        with _start("train", model_dir, **TRAINER) as training:
            training.results()
            beside.results()
            ended = time.time()
    return ended - max(_end_of(model_dir), _evaluations(model_dir)[-1]["time"])


def _delays(model_dir: Path) -> list[float]:
    """Returns each evaluation's delay in seconds, from when it could have started."""
    delays, idle = [], 0.0
    for row in _evaluations(model_dir):
        complete = (model_dir / f"{row['checkpoint']}.index").stat().st_mtime
        delays.append(row["time"] - row["seconds"] - max(complete, idle))
        idle = row["time"]
    return delays


def _waiting(model_dir: Path) -> float:
    """Measures how much of a core, in percent, an idle evaluator uses."""
    status.StatusFile(model_dir).write(State.PREEMPTED, STEPS)
    with _start("continuous_eval", model_dir) as beside:
        _wait_until_idle(beside)
        time.sleep(2)
        before = processes.cpu_seconds(beside.pid)
        time.sleep(WAIT_SECONDS)
        return 100 * (processes.cpu_seconds(beside.pid) - before) / WAIT_SECONDS


def _every(model_dir: Path, checkpoints: int) -> Iterator[Comparison]:
    """Counts the checkpoints that a slow evaluator misses, and measures its memory growth."""
    often = {"steps_per_loop": 25, "checkpoint_interval": 25, "max_to_keep": 1}
    resident: list[float] = []
    with _start("continuous_eval", model_dir, *SLOW) as beside:
        _wait_until_idle(beside)
        with _start("train", model_dir, train_steps=25 * checkpoints, **often) as training:
            while beside.code is None:
                if len(_evaluations(model_dir)) > len(resident):
                    now = memory.resident_mib(beside.pid)
                    resident += [now] if now else []  # 0 once it has exited
                time.sleep(0.02)
            training.results()
        beside.results()
    rows = _evaluations(model_dir)
    missed = float(checkpoints - len(rows))
    yield Comparison(f"policy every, missed of {checkpoints}", "checkpoints", {"runner": [missed]})
    apart = statistics.median(b["time"] - a["time"] for a, b in itertools.pairwise(rows))
    began = (model_dir / "overview.json").stat().st_mtime
    saved = (_end_of(model_dir) - began) / checkpoints
    seconds = {"evaluation": [apart], "checkpoint": [saved]}
    ratio = Ratio("evaluation", ("checkpoint",))
    yield Comparison("policy every, from one to the next", "s", seconds, [ratio])
    rise, error = memory.slope(resident[WARM_UP:] or resident)
    growth = {"runner": [1024 * rise], "its error": [1024 * error]}
    yield Comparison("resident memory", "KiB an evaluation", growth)


def _end_of(model_dir: Path) -> float:
    """Returns the time when training ended, in seconds since the epoch."""
    ended = status.read(model_dir)
    assert ended is not None
    return ended.heartbeat


def _evaluations(model_dir: Path) -> Sequence[dict[str, Any]]:
    """Reads the evaluator's rows."""
    return list(files.read_json_lines(model_dir / "eval-continuous" / "history.jsonl"))
