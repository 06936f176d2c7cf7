"""Measures studies: their overhead, their search strategies, early stopping."""

import argparse
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.run_directory.state import FINISHED
from runner.studies import space, suggest, trial, warm
from scripts import processes
from scripts.bench import rounds
from scripts.bench.comparison import Comparison, Ratio

_RATE = "CosineLrConfig.initial_learning_rate"
_BRANIN = ["A.x=uniform(-5, 10)", "A.y=uniform(0, 15)"]
_STRATEGIES = ("random", "quasi_random", "tpe", "cma_es")
_LENGTHS = (
    *("train_steps", "steps_per_loop"),
    *("summary_interval", "validation_interval", "checkpoint_interval"),
)


def studies(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares a study of eight seeds with one run. Measures the overhead of studies."""
    pairs = [
        {"eight": _seconds("study", "--seeds=8"), "one": _seconds("train_and_eval")}
        for _ in range(options.repeats)
    ]
    what = "eight seeds of digits.gin on two cores, one command"
    ratio = Ratio("eight", ("one",), most=3)
    yield Comparison(what, "s", rounds.transposed(pairs), [ratio])
    for name, what in (
        ("overhead", "a study's own time a trial, at most 0.2"),
        ("opening", "1,000 finished trials opened, at most 2"),
    ):
        seconds = [rounds.once("studies", name) for _ in range(options.repeats)]
        yield Comparison(what, "s", {"runner": seconds})


def overhead(scratch: Path, pause: rounds.Pause, *, count: int = 10) -> None:
    """Measures the seconds per trial in which no trial's process exists, in a study with one job.

    In this time the study creates directories, notices that trials have ended, and writes tables
    and plots.
    """
    from runner import main as command

    spans: list[tuple[float, float]] = []

    class Timed(warm.Fork):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            began = time.perf_counter()
            super().__init__(*arguments, **options)
            threading.Thread(target=self._note, args=(began,), daemon=True).start()

        def _note(self, began: float) -> None:
            connection.wait([self._process.sentinel])
            spans.append((began, time.perf_counter()))

    warm.Fork = Timed  # type: ignore[misc]
    short = [f"--gin.TrainerConfig.{name}=2" for name in _LENGTHS]
    flags = ["--gin_file=digits.gin", *short, "--jobs=1", f"--model_dir={scratch}/study"]
    if code := command.main(["--mode=study", *flags, f"--seeds={count}"]):
        sys.exit(code)
    ended = time.perf_counter()
    busy = sum(end - began for began, end in spans)
    pause((ended - spans[0][0] - busy) / count)


def opening(scratch: Path, pause: rounds.Pause, *, count: int = 1000) -> None:
    """Measures the seconds to load a study of finished trials with ten evaluations each."""
    row = {"kind": "evaluation", "metrics": {"accuracy": 0.5}, "seconds": 1.0, "time": 0.0}
    ended = {"state": "done", "step": 1000, "reason": "", "heartbeat": 0.0, "host": "", "pid": 0}
    for number in range(count):
        folder = scratch / layout.TRIALS / f"{number:04}-seed={number}"
        facts = {"number": number, "parameters": {}, "seed": number, "fold": None}
        trial.write(folder, {**facts, "objective": ["accuracy", True]})
        files.write_json(folder / layout.STATUS, ended)
        rows = [{**row, "step": n, "checkpoint": f"ckpt-{n}"} for n in range(100, 1001, 100)]
        files.write_json_lines(folder / layout.HISTORY, rows)
    start = time.perf_counter()
    assert len(trial.all_of(scratch)) == count
    pause(time.perf_counter() - start)


def search(options: argparse.Namespace) -> Iterator[Comparison]:
    """Reports the best value of Branin's function that 40 trials find, by strategy.

    The minimum of the function is 0.398.
    """
    seeds = range(options.repeats)
    best = {name: [_searched(name, seed) for seed in seeds] for name in _STRATEGIES}
    yield Comparison("Branin's function, best of 40 trials", "value", best)


def _searched(strategy: str, seed: int, trials: int = 40, lag: int = 4) -> float:
    parameters, values = space.parse(_BRANIN), list[float]()
    results: list[suggest.Result] = []
    for number in range(trials):
        known = results[: max(number - lag + 1, 0)]
        chosen = suggest.choose(strategy, parameters, number, known, seed=seed, lag=lag)
        values.append(_branin(chosen["A.x"], chosen["A.y"]))
        results.append(suggest.Result(chosen, values[-1]))
    return min(values)


def _branin(x: float, y: float) -> float:
    bent = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def halving(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares 30 learning rates of digits.gin with `stopping = 'asha'` to full training of all."""
    results = rounds.transposed([_halved() for _ in range(options.repeats)])
    what, ratio = "30 learning rates of digits.gin", Ratio("asha", ("in full",))
    for unit in ("steps", "best accuracy"):
        pair = {name: results[f"{unit}, {name}"] for name in ("asha", "in full")}
        yield Comparison(what, unit, pair, [ratio])
    yield Comparison(what, "rank among all of the best", {"asha": results["rank"]})


def _halved(count: int = 30) -> dict[str, float]:
    """Returns the steps and the best accuracy of both, and the rank of ASHA's choice among all."""
    intervals = [
        f"--gin.TrainerConfig.{name}_interval=100" for name in ("validation", "checkpoint")
    ]
    common = [f"--vary={_RATE}=log(1e-5, 1)", f"--trials={count}", *intervals]
    random = "--params_override=run.study.strategy=random"
    with tempfile.TemporaryDirectory() as scratch:
        full, halved = Path(scratch) / "full", Path(scratch) / "halved"
        _seconds("study", *common, random, f"--model_dir={full}")
        asha = f"{random},run.study.stopping=asha"
        _seconds("study", *common, asha, f"--model_dir={halved}")
        every, some = trial.all_of(full), trial.all_of(halved)
    finished = [one for one in some if one.state in FINISHED]
    best = max(finished, key=lambda one: one.best["accuracy"])
    ranks = sorted((-one.best.get("accuracy", 0.0), one.number) for one in every)
    return {
        "steps, asha": sum(one.step for one in some),
        "steps, in full": sum(one.step for one in every),
        "best accuracy, asha": best.best["accuracy"],
        "best accuracy, in full": -ranks[0][0],
        "rank": [number for _, number in ranks].index(best.number) + 1,
    }


def _seconds(mode: str, *flags: str) -> float:
    """Returns the duration of a command on digits.gin."""
    with tempfile.TemporaryDirectory() as scratch:
        if not any(flag.startswith("--model_dir=") for flag in flags):
            flags = (*flags, f"--model_dir={scratch}/run")
        start = time.perf_counter()
        command = processes.runner(mode, "--gin_file=digits.gin", *flags)
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start
