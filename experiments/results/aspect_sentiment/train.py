"""Trains an aspect sentiment model with word vectors from scratch, and tests it once.

    python train.py --data=data --set=laptop14 --model_dir=runs/laptop14 --seed=0

`--data` is a directory with the files of PyABSA's Laptop14, Restaurant14 and Twitter. `--gin` takes
the dropout and the learning rate that the study of aspects.gin has chosen by cross-validation.
"""

import argparse
import json
import time
from pathlib import Path

import runner

HERE = Path(__file__).parent
FILES = {
    "laptop14": ("Laptops_Train.xml.seg", "Laptops_Test_Gold.xml.seg"),
    "restaurant14": ("Restaurants_Train.xml.seg", "Restaurants_Test_Gold.xml.seg"),
    "twitter": ("train.raw", "test.raw"),
}


def main() -> None:
    """Trains, and prints the scores on the test set as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", default="data")
    flags.add_argument("--set", choices=FILES, default="laptop14")
    flags.add_argument("--gin", action="append", default=[], help="what the study has chosen")
    flags.add_argument("--model_dir", default="runs/aspects")
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    train, test = (Path(given.data).absolute() / name for name in FILES[given.set])
    bindings = [
        f"TRAIN = '{train}'",
        f"TEST = '{test}'",
        "RunConfig.study = None",
        f"RunConfig.seed = {given.seed}",
        *given.gin,
    ]
    start = time.perf_counter()
    config = runner.load(str(HERE / "aspects.gin"), bindings)
    runner.run(config, given.model_dir, "train")
    metrics = runner.run(config, given.model_dir, "eval")["metrics"]
    scores = {name: metrics[name] for name in ("accuracy", "macro_f1")}
    print(json.dumps({**scores, "seconds": round(time.perf_counter() - start, 1)}))


if __name__ == "__main__":
    main()
