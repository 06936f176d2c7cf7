"""Compares the readers of words at equal training time, on questions in SQuAD's format.

    python scripts/benchmark_readers.py --train=train.json --dev=dev.json --glove=glove.50d.txt \
        --dimension=50 [--minutes=10] [--seeds=1] [--readers=bidaf,qanet] [--gin=BINDING]

Each trains as squad_match_lstm.gin says, without evaluations, in a process of its own, one after
the other. The clock starts with the first training row, when the network is built and traced. It
counts the process's CPU time, so that a busy machine does not matter (Linux only). When its time is
up, the process gets a SIGTERM, on which it saves; the weights of that step are scored on all
questions of the dev set. BERT is not compared: it is pretrained.

"taskset -c 0 python scripts/benchmark_readers.py ..." trains on one core, where CPU time is the
time that it takes on an idle machine; on several cores, some networks keep more of them busy.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from tasks.questions import readers

LENGTHS = (
    "EpochsConfig.train = 1000",
    "EpochsConfig.validation_interval = 1000",
    "TrainerConfig.steps_per_loop = 10",
    "TrainerConfig.summary_interval = 10",
)
PREEMPTED = 143
HEADINGS = {
    "reader": "",
    "parameters": ",.0f",
    "steps": ",.0f",
    "questions/s": ".0f",
    "exact match": ".1f",
    "F1": ".1f",
    "scoring, s": ".0f",
    "memory, training": ".1f",
    "memory, scoring": ".1f",
}


class Usage(NamedTuple):
    """What a process has used: CPU seconds, and at its peak GB of memory."""

    seconds: float
    memory: float


def main() -> None:
    """Prints a row for each reader: the means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="SQuAD's JSON")
    parser.add_argument("--dev", required=True, help="SQuAD's JSON")
    parser.add_argument("--glove", required=True, help="word vectors in GloVe's format")
    parser.add_argument("--dimension", type=int, required=True, help="of the word vectors")
    parser.add_argument("--minutes", type=float, default=10, help="CPU time of training, for each")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--readers", default=",".join(readers.OF_WORDS))
    parser.add_argument("--gin", action="append", default=[], help="a further binding; repeatable")
    flags = parser.parse_args()
    print(f"{flags.minutes:g} minutes of CPU time to train each; memory in GB\n")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for reader in flags.readers.split(","):
        found = [measured(reader, seed, flags) for seed in range(flags.seeds)]
        means = [statistics.mean(column) for column in zip(*found, strict=True)]
        columns = zip([reader, *means], HEADINGS.values(), strict=True)
        cells = [f"{value:{how}}" for value, how in columns]
        print(f"| {' | '.join(cells)} |", flush=True)


def measured(reader: str, seed: int, flags: argparse.Namespace) -> tuple[float, ...]:
    """Trains a reader for the given time, and scores it: all columns but the first."""
    params = [
        f"TRAIN = {flags.train!r}",
        f"DEV = {flags.dev!r}",
        f"GLOVE = {flags.glove!r}",
        f"DIMENSION = {flags.dimension}",
        f"ReaderConfig.type = {reader!r}",
        f"RunConfig.seed = {seed}",
        *LENGTHS,
        *flags.gin,
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        steps, trained = train(command("train_and_eval", run, params), run, flags.minutes * 60)
        output = Path(folder) / "scores.json"
        process = start(command("eval", run, params), output)
        status, scored = ended(process, wait=True)
        if status:
            sys.exit(
                f"the evaluation ended with {status}:\n{output.with_suffix('.log').read_text()}"
            )
        scores = json.loads(output.read_text().splitlines()[-1])
        overview = json.loads((run / "overview.json").read_text())
        batch = yaml.safe_load((run / "params.yaml").read_text())["task"]["train_data"]
    return (
        overview["trainable_parameters"],
        scores["step"],
        steps * batch["global_batch_size"] / (flags.minutes * 60),
        scores["metrics"]["exact_match"],
        scores["metrics"]["f1"],
        scored.seconds,
        trained.memory,
        scored.memory,
    )


def command(mode: str, run: Path, params: list[str]) -> list[str]:
    """The command of a mode."""
    given = [f"--gin_params={each}" for each in params]
    given += ["--gin_file=squad_match_lstm.gin", f"--model_dir={run}"]
    return [sys.executable, "-m", "runner", f"--mode={mode}", *given]


def start(words: list[str], output: Path) -> int:
    """Starts a command; its id. What it reports goes into a .log beside its output."""
    with output.open("w") as out, output.with_suffix(".log").open("w") as log:
        return subprocess.Popen(words, stdout=out, stderr=log).pid


def ended(process: int, *, wait: bool = False) -> tuple[int | None, Usage]:
    """A process's exit code, None while it runs, and what it has used when it has ended."""
    found, status, used = os.wait4(process, 0 if wait else os.WNOHANG)
    usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9)
    return os.waitstatus_to_exitcode(status) if found else None, usage


def train(words: list[str], run: Path, seconds: float) -> tuple[int, Usage]:
    """Runs a command for some CPU time after its first training row; its steps in that time."""
    output, rows = run.with_suffix(".out"), run / "train.jsonl"
    process, began, code, usage = start(words, output), None, None, Usage(0, 0)
    while code is None and (began is None or spent(process) < began + seconds):
        time.sleep(0.1)
        if began is None and rows.exists() and rows.stat().st_size:
            began, first = spent(process), last_step(rows)
        code, usage = ended(process)
    if code is None:
        last = last_step(rows)
        os.kill(process, signal.SIGTERM)
        code, usage = ended(process, wait=True)
    if code != PREEMPTED:
        log = output.with_suffix(".log").read_text()
        sys.exit(f"{' '.join(words)} ended with {code}:\n{log}")
    return last - first, usage


def spent(process: int) -> float:
    """The CPU seconds that a running process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def last_step(rows: Path) -> int:
    """The step of the last training row."""
    return int(json.loads(rows.read_text().splitlines()[-1])["step"])


if __name__ == "__main__":
    main()
