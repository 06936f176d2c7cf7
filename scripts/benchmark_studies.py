"""Figures of studies: their time beside one run's, search, early stopping.

    python scripts/benchmark_studies.py [--only=seeds,overhead,opening,search,halving]

- seeds: eight seeds of digits.gin, and one run of it, each as a command.
- overhead: a study's own time per trial. With one job, from the first trial's start to the study's
  end, the time in which no trial's process is there: folders, noticing ends, tables and pictures.
- opening: 1,000 finished trials, with ten evaluations each.
- search: the best value of Branin's function that 40 trials find, in the median of 20 studies.
- halving: 30 rates of digits.gin in full, and with `stopping = 'asha'`.

The first three are a section of `benchmark.py`, too.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import connection
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.studies import space, suggest, trial, warm

_EIGHT = 8
_RATE = "CosineLrConfig.initial_learning_rate"
_BRANIN = ["A.x=uniform(-5, 10)", "A.y=uniform(0, 15)"]


def main() -> None:
    """Prints the figures, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(FIGURES))
    for name in parser.parse_args().only.split(","):
        print(json.dumps({name: FIGURES[name]()}), flush=True)


def measured(name: str) -> dict[str, Any]:
    """A figure, taken in a process of its own."""
    command = [sys.executable, __file__, f"--only={name}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])[name]
    return found


def seeds() -> dict[str, float]:
    """The seconds of one run of digits.gin, and of a study of it with eight seeds."""
    one = _seconds("--mode=train_and_eval")
    many = _seconds("--mode=study", f"--seeds={_EIGHT}")
    return {"one": one, "eight": many}


def overhead(count: int = 10) -> dict[str, float]:
    """The seconds a trial that no trial's process is there, in a study with one job."""
    from runner import main as command

    spans: list[tuple[float, float]] = []

    class Timed(warm.Popen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            began = time.perf_counter()
            super().__init__(*arguments, **options)
            threading.Thread(target=self._note, args=(began,), daemon=True).start()

        def _note(self, began: float) -> None:
            connection.wait([self._process.sentinel])
            spans.append((began, time.perf_counter()))

    warm.Popen = Timed  # type: ignore[misc]
    short = [f"--gin.TrainerConfig.{name}=2" for name in _LENGTHS]
    with tempfile.TemporaryDirectory() as scratch:
        flags = ["--gin_file=digits.gin", *short, "--jobs=1", f"--model_dir={scratch}/study"]
        if code := command.main(["--mode=study", *flags, f"--seeds={count}"]):
            sys.exit(code)
    ended = time.perf_counter()
    busy = sum(end - began for began, end in spans)
    return {"seconds": (ended - spans[0][0] - busy) / count, "trial": busy / count}


_LENGTHS = (
    *("train_steps", "steps_per_loop"),
    *("summary_interval", "validation_interval", "checkpoint_interval"),
)


def opening(count: int = 1000) -> dict[str, float]:
    """The seconds to open a study of finished trials with ten evaluations each."""
    row = {"kind": "evaluation", "metrics": {"accuracy": 0.5}, "seconds": 1.0, "time": 0.0}
    ended = {"state": "done", "step": 1000, "reason": "", "heartbeat": 0.0, "host": "", "pid": 0}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            folder = Path(scratch) / layout.TRIALS / f"{number:04}-seed={number}"
            facts = {"number": number, "parameters": {}, "seed": number, "fold": None}
            trial.write(folder, {**facts, "objective": ["accuracy", True]})
            files.write_json(folder / layout.STATUS, ended)
            rows = [{**row, "step": n, "checkpoint": f"ckpt-{n}"} for n in range(100, 1001, 100)]
            files.write_json_lines(folder / layout.HISTORY, rows)
        start = time.perf_counter()
        assert len(trial.all_of(Path(scratch))) == count
        return {"seconds": time.perf_counter() - start}


def search(studies: int = 20, trials: int = 40) -> dict[str, float]:
    """The median over studies of the best value of Branin's function (0.398 at the lowest)."""
    found = {name: [_searched(name, seed, trials) for seed in range(studies)] for name in _NAMES}
    return {name: statistics.median(values) for name, values in found.items()}


_NAMES = ("random", "quasi_random", "tpe", "cma_es")


def _searched(strategy: str, seed: int, trials: int, lag: int = 4) -> float:
    parameters, results = space.parse(_BRANIN), []
    for number in range(trials):
        known = results[: max(number - lag + 1, 0)]
        chosen = suggest.choose(strategy, parameters, number, known, seed=seed, lag=lag)
        results.append(suggest.Result(chosen, _branin(chosen["A.x"], chosen["A.y"])))
    return min(each.value for each in results)


def _branin(x: float, y: float) -> float:
    bent = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def halving(count: int = 30) -> dict[str, object]:
    """Steps trained with ASHA, as a share of training all; whether it found the best of all."""
    varied = ["--vary=" + f"{_RATE}=log(1e-5, 1)", "--gin.TrainerConfig.validation_interval=100"]
    common = [*varied, f"--trials={count}", "--gin.TrainerConfig.checkpoint_interval=100"]
    random = "--params_override=run.study.strategy=random"
    with tempfile.TemporaryDirectory() as scratch:
        whole, halved = Path(scratch) / "whole", Path(scratch) / "halved"
        _seconds("--mode=study", *common, random, f"--model_dir={whole}")
        _seconds("--mode=study", *common, f"{random},run.study.stopping=asha",
                 f"--model_dir={halved}")  # fmt: skip
        every, some = trial.all_of(whole), trial.all_of(halved)
        ended = [each for each in some if each.state in trial.FINISHED]
        ranks = sorted((-each.best.get("accuracy", 0.0), each.number) for each in every)
        best = max(ended, key=lambda each: each.best["accuracy"])
        return {
            "share": sum(each.step for each in some) / sum(each.step for each in every),
            "rank": [number for _, number in ranks].index(best.number) + 1,
            "accuracy": best.best["accuracy"],
            "of all": -ranks[0][0],
        }


def _seconds(*flags: str) -> float:
    command = [sys.executable, "-m", "runner", "--gin_file=digits.gin", *flags]
    with tempfile.TemporaryDirectory() as scratch:
        if not any(each.startswith("--model_dir=") for each in flags):
            command.append(f"--model_dir={scratch}/run")
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start


FIGURES = {
    "seeds": seeds,
    "overhead": overhead,
    "opening": opening,
    "search": search,
    "halving": halving,
}


if __name__ == "__main__":
    main()
