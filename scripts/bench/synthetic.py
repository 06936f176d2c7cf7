"""Writes directories that look like those of finished runs of digits.gin.

They are in groups of a hundred. Three values of their configurations vary.
"""

import json
import random
from pathlib import Path

from runner.core import layout

_SEED, _RATE = "  seed: 0\n", "initial_learning_rate: 0.005\n"


def configuration() -> dict[str, str]:
    """Returns the texts of params.yaml and config.gin for digits.gin."""
    from runner import config
    from runner.run_directory import session

    stored = session.Configuration.of(config.load(["digits.gin"]))
    return {layout.PARAMS: stored.params, layout.GIN: stored.gin or ""}


def write(root: Path, count: int, texts: dict[str, str], *, rows: int = 10) -> None:
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


def checkpoint(folder: Path) -> None:
    """Writes a checkpoint of 100 MB."""
    import tensorflow as tf

    weights = {
        f"layer{n}": tf.random.stateless_normal((1000, 2500), seed=(n, 0)) for n in range(10)
    }
    tf.train.Checkpoint(**{name: tf.Variable(x) for name, x in weights.items()}).write(
        str(folder / "ckpt-1000")
    )
