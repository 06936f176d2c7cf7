"""Trains a Wide ResNet 16-2 on part of CIFAR-10, or an ensemble of them, and scores it.

    python train.py --data=data/cifar10 --model_dir=runs/part --seed=0
    python train.py --data=data/cifar10 --model_dir=studies/part --members=3

`--data` is a directory with `train_10k.npz` and `test_2k.npz`. The experiment is cifar10_part.gin.
The checkpoint is chosen by its likelihood on 500 images that are held out from training.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import runner

HERE = Path(__file__).parent


def main() -> None:
    """Trains, and prints the scores on the test images as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", default="data/cifar10")
    flags.add_argument("--model_dir", default="runs/part")
    flags.add_argument("--seed", type=int, default=0, help="the first seed")
    flags.add_argument("--members", type=int, default=1, help="networks in the ensemble")
    given = flags.parse_args()
    start = time.perf_counter()
    scores = single(given) if given.members == 1 else ensemble(given)
    print(json.dumps({**scores, "seconds": round(time.perf_counter() - start, 1)}))


def single(given: argparse.Namespace) -> dict[str, float]:
    """Trains one network. Returns its test metrics, and the mean accuracy on corrupted images."""
    alone = ["RunConfig.study = None", f"RunConfig.seed = {given.seed}"]
    results = runner.run(load("cifar10_part.gin", given, alone), given.model_dir, "train_and_eval")
    return {**test_of(results["test"]["best"]["metrics"]), **shifted(given, given.model_dir)}


def ensemble(given: argparse.Namespace) -> dict[str, float]:
    """Trains several networks. Returns the test metrics of their mean."""
    seeds = tuple(range(given.seed, given.seed + given.members))
    config = load("cifar10_part.gin", given, [f"StudyConfig.seeds = {seeds}"])
    runner.run(config, given.model_dir, "study")
    together = runner.run(None, given.model_dir, "ensemble", data="test")
    return test_of(together["mean"]["metrics"])


def shifted(given: argparse.Namespace, folder: str) -> dict[str, float]:
    """Scores a run on the corrupted test images. Returns means over all corruptions."""
    alone = ["RunConfig.study = None", f"RunConfig.seed = {given.seed}"]
    config = load("shifted.gin", given, alone)
    metrics = runner.run(config, folder, "eval", checkpoint="best")["metrics"]
    return {
        f"shifted_{name}": mean([v for key, v in metrics.items() if key.endswith(f"/{name}")])
        for name in ("accuracy", "expected_calibration_error")
    }


def load(name: str, given: argparse.Namespace, more: list[str]) -> Any:
    """Loads an experiment of this directory with the data."""
    data = Path(given.data).absolute()
    paths = [f"TRAIN = '{data / 'train_10k.npz'}'", f"TEST = '{data / 'test_2k.npz'}'"]
    return runner.load(str(HERE / name), [*paths, *more])


def test_of(metrics: dict[str, float]) -> dict[str, float]:
    """The test metrics to report."""
    names = ("accuracy", "negative_log_likelihood", "expected_calibration_error")
    found = {key.removeprefix("test/"): value for key, value in metrics.items()}
    return {name: found[name] for name in names}


def mean(values: list[float]) -> float:
    """The mean of numbers."""
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
