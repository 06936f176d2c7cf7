"""Compares the readers of words at equal training time, on questions in SQuAD's format.

    python scripts/benchmark_readers.py --train=train.json --dev=dev.json --glove=glove.50d.txt \
        --dimension=50 [--minutes=10] [--seeds=1] [--readers=bidaf,qanet] [--gin=BINDING]

Each trains as squad_match_lstm.gin says, without evaluations, in a process of its own, one after
the other. The clock starts with the first training row, when the network is built and traced. When
its time is up, the process gets a SIGTERM, on which it saves; the weights of that step are scored
on all questions of the dev set. BERT is not compared: it is pretrained.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tasks.questions import readers

LENGTHS = (
    "EpochsConfig.train = 1000",
    "EpochsConfig.validation_interval = 1000",
    "TrainerConfig.steps_per_loop = 10",
    "TrainerConfig.summary_interval = 10",
)
PREEMPTED = 143


def main() -> None:
    """Prints a row for each reader and seed, then the table of their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="SQuAD's JSON")
    parser.add_argument("--dev", required=True, help="SQuAD's JSON")
    parser.add_argument("--glove", required=True, help="word vectors in GloVe's format")
    parser.add_argument("--dimension", type=int, required=True, help="of the word vectors")
    parser.add_argument("--minutes", type=float, default=10, help="of training, for each")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--readers", default=",".join(readers.OF_WORDS))
    parser.add_argument("--gin", action="append", default=[], help="a further binding; repeatable")
    flags = parser.parse_args()
    print(f"{flags.minutes:g} minutes of training each\n", flush=True)
    print("| reader | parameters | steps | exact match | F1 |\n|---|---|---|---|---|", flush=True)
    for reader in flags.readers.split(","):
        found = [trained(reader, seed, flags) for seed in range(flags.seeds)]
        mean = {name: statistics.mean(each[name] for each in found) for name in found[0]}
        print(
            f"| {reader} | {mean['parameters']:,.0f} | {mean['steps']:,.0f} |"
            f" {mean['exact_match']:.1f} | {mean['f1']:.1f} |",
            flush=True,
        )


def trained(reader: str, seed: int, flags: argparse.Namespace) -> dict[str, float]:
    """Trains a reader for the given time, and scores it."""
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
        train(command("train_and_eval", run, params), run, flags.minutes * 60)
        done = subprocess.run(command("eval", run, params), check=True, stdout=subprocess.PIPE)
        scores: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        overview = json.loads((run / "overview.json").read_text())
    return {
        "parameters": overview["trainable_parameters"],
        "steps": scores["step"],
        "exact_match": scores["metrics"]["exact_match"],
        "f1": scores["metrics"]["f1"],
    }


def command(mode: str, run: Path, params: list[str]) -> list[str]:
    """The command of a mode."""
    given = [f"--gin_params={each}" for each in params]
    given += ["--gin_file=squad_match_lstm.gin", f"--model_dir={run}"]
    return [sys.executable, "-m", "runner", f"--mode={mode}", *given]


def train(words: list[str], run: Path, seconds: float) -> None:
    """Runs a command until it has trained for some time."""
    log, rows = run.with_suffix(".log"), run / "train.jsonl"
    with log.open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
    while process.poll() is None and not (rows.exists() and rows.stat().st_size):
        time.sleep(0.1)
    if process.poll() is None:
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
    if process.wait() != PREEMPTED:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}:\n{log.read_text()}")


if __name__ == "__main__":
    main()
