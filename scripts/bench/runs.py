"""Measures `--mode=runs` and `--mode=compare` on many directories and on large runs.

The directories contain synthetic runs of digits.gin, in groups of a hundred. Each has ten
evaluations and twenty training rows. Three values of their configurations vary.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runner.core import layout
from scripts import processes
from scripts.bench import rounds
from scripts.bench.comparison import Comparison

_SEED, _RATE = "  seed: 0\n", "initial_learning_rate: 0.005\n"
_DIFFER = 5  # the exit code


def runs(options: argparse.Namespace) -> Iterator[Comparison]:
    """Lists 1,000 and 10,000 runs, without and with a cache, and compares two large runs."""
    texts = _configuration()
    with tempfile.TemporaryDirectory() as scratch:
        for count, most in ((1000, 1), (10_000, 5)):
            folder = Path(scratch) / str(count)
            _write(folder, count, texts)
            tables = [_listed(folder) for _ in range(options.repeats)]
            what = f"--mode=runs over {count:,} directories, at most {most}"
            yield Comparison(what, "s", rounds.transposed(tables))
        long, large = Path(scratch) / "long", Path(scratch) / "large"
        _write(long, 2, texts, rows=50_000)
        _write(large, 2, texts)
        for run in large.glob("*/*"):
            _checkpoint(run)
        for what, folder in (("50,000 evaluations", long), ("checkpoints of 100 MB", large)):
            pair = [str(run) for run in sorted(folder.glob("*/*"))]
            seconds = [_seconds("compare", *pair) for _ in range(options.repeats)]
            yield Comparison(f"--mode=compare of two runs, {what}", "s", {"runner": seconds})


def _listed(folder: Path) -> dict[str, float]:
    """Returns the seconds to list the runs, with an empty cache and then again."""
    with tempfile.TemporaryDirectory() as cache:
        flags = (f"--model_dir={folder}", "--sort=-accuracy")
        condition = "--where=accuracy > 0.9 and seed == 1"
        file = f"--output={cache}/table.csv"
        return {
            "first": _seconds("runs", *flags, cache=cache),
            "again": _seconds("runs", *flags, cache=cache),
            "with a condition": _seconds("runs", *flags, condition, cache=cache),
            "to a file": _seconds("runs", *flags, file, cache=cache),
        }


def _configuration() -> dict[str, str]:
    """Returns the texts of params.yaml and config.gin for digits.gin."""
    from runner import config
    from runner.run_directory import session

    stored = session.Configuration.of(config.load(["digits.gin"]))
    return {layout.PARAMS: stored.params, layout.GIN: stored.gin or ""}


def _write(root: Path, count: int, texts: dict[str, str], *, rows: int = 10) -> None:
    """Writes directories of runs with `rows` evaluations, and twice as many training rows."""
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
    for name, lines in ((layout.HISTORY, evaluations), (layout.TRAINING_ROWS, training)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _metrics(chance: random.Random) -> dict[str, float]:
    return {"accuracy": chance.random(), "validation_loss": chance.random()}


def _checkpoint(folder: Path) -> None:
    import tensorflow as tf

    weights = {
        f"layer{n}": tf.random.stateless_normal((1000, 2500), seed=(n, 0)) for n in range(10)
    }
    tf.train.Checkpoint(**{name: tf.Variable(x) for name, x in weights.items()}).write(
        str(folder / "ckpt-1000")
    )


def _seconds(mode: str, *arguments: str, cache: str = "") -> float:
    """Returns the duration of a command, with its own cache directory."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache} if cache else None
    start = time.perf_counter()
    done = subprocess.run(
        processes.runner(mode, *arguments), env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, _DIFFER):
        raise RuntimeError(done.stderr)
    return time.perf_counter() - start
