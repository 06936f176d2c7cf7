"""Trains a reader on part of SQuAD for a number of steps, and scores it once.

    python train.py --data=data --reader=match_lstm --steps=818 --model_dir=runs/squad --seed=0

`--data` is a directory with `squad/train.json`, `squad/dev.json` and `glove/glove.5k.50d.txt`. The
settings are those of squad_match_lstm.gin, with width 64. In the recorded result, each reader makes
the number of steps that took 2.5 minutes of CPU time on one core
(`python -m scripts.bench readers`), so that its score can be repeated exactly.
"""

import argparse
import json
import time
from pathlib import Path

import runner


def main() -> None:
    """Trains, and prints the scores on the dev questions as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", default="data")
    flags.add_argument("--reader", default="match_lstm")
    flags.add_argument("--steps", type=int, default=818)
    flags.add_argument("--model_dir", default="runs/squad")
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    data = Path(given.data).absolute()
    bindings = [
        f"TRAIN = '{data / 'squad/train.json'}'",
        f"DEV = '{data / 'squad/dev.json'}'",
        f"GLOVE = '{data / 'glove/glove.5k.50d.txt'}'",
        "DIMENSION = 50",
        f"ReaderConfig.type = {given.reader!r}",
        "EpochsConfig.train = 0",
        "EpochsConfig.validation_interval = 0",
        "EpochsConfig.checkpoint_interval = 0",
        f"TrainerConfig.train_steps = {given.steps}",
        f"TrainerConfig.validation_interval = {given.steps}",
        f"TrainerConfig.checkpoint_interval = {given.steps}",
        "RunConfig.evaluation_sets = ()",
        "RunConfig.intra_op_threads = 1",
        f"RunConfig.seed = {given.seed}",
    ]
    if given.reader == "match_lstm":  # the others have this width anyway
        bindings += ["MatchLSTMConfig.units = 64", "MatchLSTMConfig.dropout = 0.3"]
    start = time.perf_counter()
    config = runner.load("squad_match_lstm.gin", bindings)
    metrics = runner.run(config, given.model_dir, "train_and_eval")["metrics"]
    scores = {name: metrics[name] for name in ("f1", "exact_match")}
    print(json.dumps({**scores, "seconds": round(time.perf_counter() - start, 1)}))


if __name__ == "__main__":
    main()
