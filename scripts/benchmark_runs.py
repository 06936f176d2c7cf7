"""Figures of `--mode=runs` and `--mode=compare`: many folders, long logs, large checkpoints.

python scripts/benchmark_runs.py [--folders=1000,10000] [--keep=FOLDER]

The folders are those of runs of digits.gin that were never trained: with ten evaluations and
twenty training rows each, in groups of a hundred; three values of their configurations vary.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner.core import layout

_SEED, _RATE = "  seed: 0\n", "initial_learning_rate: 0.005\n"


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folders", default="1000,10000")
    parser.add_argument("--keep", type=Path, help="where to leave the folders")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        texts = configuration()
        for count in map(int, flags.folders.split(",")):
            root = (flags.keep or Path(scratch)) / str(count)
            write(root, count, texts)
            os.environ["XDG_CACHE_HOME"] = f"{scratch}/cache-{count}"
            print(json.dumps({"folders": count, **runs(root)}), flush=True)
        print(json.dumps(compare(Path(scratch), texts)), flush=True)


def many(count: int, *, rounds: int) -> dict[str, list[float]]:
    """The seconds of `--mode=runs` over many folders, first and again, round by round."""
    found: dict[str, list[float]] = {"first": [], "again": []}
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch) / "runs", count, configuration())
        flags = ("--mode=runs", f"--model_dir={scratch}/runs", "--sort=-accuracy")
        for number in range(rounds):
            os.environ["XDG_CACHE_HOME"] = f"{scratch}/cache-{number}"
            for name in found:
                found[name].append(_seconds(*flags))
    return found


def configuration() -> dict[str, str]:
    """The texts of params.yaml and config.gin of digits.gin."""
    from runner import config
    from runner.run_folder import session

    made = session.Configuration.of(config.load(["digits.gin"]))
    return {layout.PARAMS: made.params, layout.GIN: made.gin or ""}


def write(root: Path, count: int, texts: dict[str, str], *, rows: int = 10) -> None:
    """Writes the folders of runs with `rows` evaluations, and twice as many training rows."""
    chance = random.Random(0)
    for number in range(count):
        folder = root / f"group{number // 100:03}" / f"run{number:05}"
        folder.mkdir(parents=True)
        own = texts[layout.PARAMS].replace(_SEED, f"  seed: {number % 10}\n")
        own = own.replace(_RATE, f"initial_learning_rate: {0.001 * (1 + number // 10 % 50):g}\n")
        (folder / layout.PARAMS).write_text(own)
        (folder / layout.GIN).write_text(texts[layout.GIN])
        for name in (layout.TRAIN, layout.VALIDATION, layout.BEST):
            (folder / name).mkdir()
        _log(folder, chance, rows)


def _log(folder: Path, chance: random.Random, rows: int) -> None:
    start = {"started": 1e9, "ended": 1e9 + 60, "state": "done", "step": 100 * rows, "host": "a"}
    (folder / layout.RUN).write_text(json.dumps({"starts": [start]}))
    status = {"state": "done", "step": 100 * rows, "reason": "", "heartbeat": 1e9 + 60}
    (folder / layout.STATUS).write_text(json.dumps({**status, "host": "a", "pid": 1}))
    row = {"kind": "evaluation", "seconds": 0.1, "time": 1e9}
    steps = range(100, 100 * rows + 1, 100)
    evaluations = (
        {**row, "step": step, "checkpoint": f"ckpt-{step}", "metrics": _metrics(chance)}
        for step in steps
    )
    training = (
        {"step": step // 2, "training_loss": chance.random(), "steps_per_second": 100.0}
        for step in range(100, 200 * rows + 1, 100)
    )
    for name, found in ((layout.HISTORY, evaluations), (layout.TRAINING_ROWS, training)):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in found))


def _metrics(chance: random.Random) -> dict[str, float]:
    return {"accuracy": chance.random(), "validation_loss": chance.random()}


def runs(root: Path) -> dict[str, float]:
    """The seconds of the command, with nothing remembered and then twice more."""
    flags = ("--mode=runs", f"--model_dir={root}", "--sort=-accuracy")
    found = {"first": _seconds(*flags), "again": _seconds(*flags)}
    condition = "--where=accuracy > 0.9 and seed == 1"
    return {**found, "where": _seconds(*flags, condition), "csv": _csv(root, flags)}


def _csv(root: Path, flags: tuple[str, ...]) -> float:
    return _seconds(*flags, f"--output={root.parent / 'table.csv'}")


def compare(scratch: Path, texts: dict[str, str]) -> dict[str, float]:
    """The seconds to compare two runs: with long logs, and with checkpoints of 100 MB."""
    write(scratch / "long", 2, texts, rows=50_000)
    pair = sorted((scratch / "long").glob("*/*"))
    found = {"evaluations": 50_000, "seconds": _seconds("--mode=compare", *pair)}
    started = time.perf_counter()
    _seconds("--mode=runs", f"--model_dir={scratch / 'long'}")
    found["runs"] = time.perf_counter() - started
    write(scratch / "large", 2, texts)
    pair = sorted((scratch / "large").glob("*/*"))
    for folder in pair:
        _checkpoint(folder)
    return {**found, "checkpoints of 100 MB": _seconds("--mode=compare", *pair)}


def _checkpoint(folder: Path) -> None:
    import tensorflow as tf

    weights = {
        f"layer{n}": tf.random.stateless_normal((1000, 2500), seed=(n, 0)) for n in range(10)
    }
    tf.train.Checkpoint(**{name: tf.Variable(x) for name, x in weights.items()}).write(
        str(folder / "ckpt-1000")
    )


def _seconds(*arguments: object) -> float:
    command = [sys.executable, "-m", "runner", *map(str, arguments)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise RuntimeError(done.stderr)
    return round(time.perf_counter() - start, 3)


if __name__ == "__main__":
    main()
