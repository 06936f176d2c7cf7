"""Compares the word-based readers on questions in SQuAD's format, at equal training time."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from scripts import processes
from scripts.bench import rounds
from scripts.bench.comparison import Comparison

LENGTHS = (
    "EpochsConfig.train = 1000",
    "EpochsConfig.validation_interval = 1000",
    "TrainerConfig.steps_per_loop = 10",
    "TrainerConfig.summary_interval = 10",
)
PREEMPTED = 143


class Usage(NamedTuple):
    """The resources of a process: CPU seconds, and peak memory in GB."""

    seconds: float
    memory: float


def readers(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares the word-based readers on SQuAD's files, with another seed in each round.

    Each reader trains with the settings of squad_match_lstm.gin, without evaluations, in its own
    process, one after the other. The clock starts with the first training row, when the network is
    built and traced. It counts the process's CPU time, so that other work on the machine does not
    matter (Linux only). When the time is up, the process gets SIGTERM and saves. The weights of
    that step are scored on all questions of the dev set. BERT is not compared, because it is
    pretrained.

    Run "taskset -c 0 python -m scripts.bench readers ..." to train on one core. CPU time then
    equals the time on an idle machine. On several cores, some networks keep more cores busy.
    """
    from tasks.questions import readers as networks

    names = options.readers.split(",") if options.readers else list(networks.OF_WORDS)
    figures = {
        name: rounds.transposed([_measured(name, seed, options) for seed in range(options.repeats)])
        for name in names
    }
    for what in figures[names[0]]:
        values = {name: columns[what] for name, columns in figures.items()}
        yield Comparison(f"{options.minutes:g} minutes of CPU time", what, values)


def _measured(reader: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Trains a reader for the given time, and scores it."""
    bindings = [
        f"TRAIN = {options.train!r}",
        f"DEV = {options.dev!r}",
        f"GLOVE = {options.glove!r}",
        f"DIMENSION = {options.dimension}",
        f"ReaderConfig.type = {reader!r}",
        f"RunConfig.seed = {seed}",
        *LENGTHS,
        *options.gin,
    ]
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        steps, trained = _train(_command("train_and_eval", run, bindings), run, seconds)
        output = Path(folder) / "scores.json"
        process = _start(_command("eval", run, bindings), output)
        code, scored = _ended(process, wait=True)
        if code:
            log = output.with_suffix(".log").read_text()
            sys.exit(f"the evaluation ended with {code}:\n{log}")
        scores = json.loads(output.read_text().splitlines()[-1])
        overview = json.loads((run / "overview.json").read_text())
        data = yaml.safe_load((run / "params.yaml").read_text())["task"]["train_data"]
    return {
        "parameters": overview["trainable_parameters"],
        "steps": scores["step"],
        "questions/s": steps * data["global_batch_size"] / seconds,
        "exact match": scores["metrics"]["exact_match"],
        "F1": scores["metrics"]["f1"],
        "s of scoring": scored.seconds,
        "GB in training": trained.memory,
        "GB in scoring": scored.memory,
    }


def _command(mode: str, run: Path, bindings: list[str]) -> list[str]:
    """Returns the command of a mode."""
    flags = [f"--gin_params={binding}" for binding in bindings]
    return processes.runner(mode, *flags, "--gin_file=squad_match_lstm.gin", f"--model_dir={run}")


def _start(words: list[str], output: Path) -> int:
    """Starts a command and returns its process id. Its stderr goes to a .log file."""
    with output.open("w") as out, output.with_suffix(".log").open("w") as log:
        return subprocess.Popen(words, stdout=out, stderr=log).pid


def _ended(process: int, *, wait: bool = False) -> tuple[int | None, Usage]:
    """Returns a process's exit code, or None while it runs, and its resources after the end."""
    pid, status, used = os.wait4(process, 0 if wait else os.WNOHANG)
    usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9)
    return os.waitstatus_to_exitcode(status) if pid else None, usage


def _train(words: list[str], run: Path, seconds: float) -> tuple[int, Usage]:
    """Runs a command until some CPU seconds after its first training row. Returns its steps."""
    output, rows = run.with_suffix(".out"), run / "train.jsonl"
    process, began, code, usage = _start(words, output), None, None, Usage(0, 0)
    while code is None and (began is None or processes.cpu_seconds(process) < began + seconds):
        time.sleep(0.1)
        if began is None and rows.exists() and rows.stat().st_size:
            began, first = processes.cpu_seconds(process), _last_step(rows)
        code, usage = _ended(process)
    if code is None:
        last = _last_step(rows)
        os.kill(process, signal.SIGTERM)
        code, usage = _ended(process, wait=True)
    if code != PREEMPTED:
        log = output.with_suffix(".log").read_text()
        sys.exit(f"{' '.join(words)} ended with {code}:\n{log}")
    return last - first, usage


def _last_step(rows: Path) -> int:
    """Returns the step of the last training row."""
    return int(json.loads(rows.read_text().splitlines()[-1])["step"])
