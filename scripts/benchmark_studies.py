"""Figures of studies: their wall time beside one run, opening many trials, search, early stopping.

python scripts/benchmark_studies.py [--only=seeds,opening,search,halving] [--rounds=3]
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner.core import files, layout
from runner.studies import space, suggest, trial

_EIGHT = 8
_RATE = "CosineLrConfig.initial_learning_rate"
_BRANIN = ["A.x=uniform(-5, 10)", "A.y=uniform(0, 15)"]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="seeds,opening,search,halving")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    for name in flags.only.split(","):
        for each in range(flags.rounds if name in ("seeds", "opening") else 1):
            print(name, each, json.dumps(FIGURES[name]()), flush=True)


def seeds() -> dict[str, float]:
    """The seconds of one run of digits.gin, and of a study of it with eight seeds."""
    one = _seconds("--mode=train_and_eval")
    many = _seconds("--mode=study", f"--seeds={_EIGHT}")
    return {"one": one, "eight": many, "ratio": many / one}


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


FIGURES = {"seeds": seeds, "opening": opening, "search": search, "halving": halving}


if __name__ == "__main__":
    main()
