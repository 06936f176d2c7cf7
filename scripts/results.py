"""Reruns results of experiments/results, and compares them with the recorded ones.

    python -m scripts.results run mnist_convnet --data=mnist.npz --seeds=0
    python -m scripts.results table

`run` trains each row of a result's `result.json` with some of its seeds. A result agrees if its
mean lies within the interval in which the recorded seeds predict it (95 %), or if all its scores
are equal to the recorded ones. The exit code is 1 if a row does not agree. `--record` stores the
scores of the run instead. `--keep` keeps the runs, for a report. `table` prints the table of the
manual.
"""

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import files
from runner.studies import metric_bounds, statistics

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
_FILE = "result.json"


def train(name: str, flags: Sequence[str], seed: int, folder: Path | None) -> dict[str, Any]:
    """Runs the script of a result with a seed, and returns what it prints as JSON.

    Args:
        name: The directory of the result.
        flags: The flags of the row.
        seed: The seed.
        folder: Where the run is kept, or None.
    """
    with tempfile.TemporaryDirectory(prefix="results-") as scratch:
        command = [sys.executable, str(RESULTS / name / "train.py"), *flags]
        command += [f"--seed={seed}", f"--model_dir={folder or Path(scratch, 'run')}"]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": paths}
        done = subprocess.run(command, capture_output=True, env=environment, text=True)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _folder_name(row: str) -> str:
    return re.sub(r"\W+", "_", row)


def agrees(row: dict[str, Any], scores: dict[str, float]) -> bool:
    """Returns whether scores by seed agree with the recorded ones."""
    known = row["scores"]
    if all(known.get(seed) == score for seed, score in scores.items()):
        return True
    recorded, mean = statistics.spread([*known.values()]), sum(scores.values()) / len(scores)
    # spread().high is a t interval of the mean; a further mean of k seeds varies by 1/k more.
    wider = math.sqrt((1 / len(scores) + 1 / recorded.n) / (1 / recorded.n))
    return abs(mean - recorded.mean) <= wider * (recorded.high - recorded.mean)


def run(given: argparse.Namespace) -> int:
    """Runs the rows of a result. Returns the exit code."""
    path = RESULTS / given.name / _FILE
    result = json.loads(path.read_text())
    agree = True
    for row in result["rows"]:
        if given.row and row["name"] not in given.row:
            continue
        flags = [*row["flags"], *([f"--data={given.data}"] if given.data else [])]
        scores: dict[str, float] = {}
        others: dict[str, dict[str, float]] = {name: {} for name in row.get("others", {})}
        seconds, folds = [], {}
        for seed in given.seeds or map(int, row["scores"]):
            kept = given.keep and given.keep / f"{_folder_name(row['name'])}-{seed}"
            found = train(given.name, flags, seed, kept)
            scores[str(seed)] = found[row["metric"]]
            seconds.append(found["seconds"])
            for name, values in others.items():
                values[str(seed)] = found[name]
            if "folds" in found:
                folds[str(seed)] = found["folds"]
            print(f"{row['name']} seed {seed}: {row['metric']} {scores[str(seed)]}", flush=True)
        if given.record:
            own = {"scores": scores, "seconds": round(sum(seconds) / len(seconds))}
            row.update({**own, **({"others": others} if others else {})})
            row.update({"folds": folds} if folds else {})
            low, mean, high = interval(row["metric"], scores)
            row.update({"mean": mean, **({"interval": [low, high]} if len(scores) > 1 else {})})
            continue
        same = sum(row["scores"].get(seed) == score for seed, score in scores.items())
        fits = agrees(row, scores)
        agree = agree and fits
        said = "agrees" if fits else "does NOT agree"
        print(f"{row['name']}: {said}; {same} of {len(scores)} scores are equal to the recorded")
    if given.record:
        result |= {"date": time.strftime("%Y-%m-%d"), "machine": machine()}
        files.write_json(path, result)
    return 0 if agree else 1


def interval(metric: str, scores: dict[str, float]) -> tuple[float, float, float]:
    """Returns the ends of the 95 % interval of the mean, and between them the mean."""
    values = [*scores.values()]
    found = statistics.spread(values, bounds=metric_bounds.of(metric, values))
    return found.low, found.mean, found.high


def machine() -> str:
    """Describes this machine and the versions that matter."""
    import tensorflow as tf

    cores = f"{os.cpu_count()} cores ({platform.machine()})"
    return f"{cores}, Python {platform.python_version()}, TensorFlow {tf.__version__}"


def table() -> list[str]:
    """Returns the lines of the table of all results."""
    lines = [
        "| result | metric | published | here: mean, 95 % interval | seeds | minutes per seed |",
        "|---|---|---|---|---:|---:|",
    ]
    for path in sorted(RESULTS.glob(f"*/{_FILE}")):
        result = json.loads(path.read_text())
        for row in result["rows"]:
            lines.append(_line(path.parent.name, row, row["name"], row["scores"]))
            for name, scores in row.get("others", {}).items():
                # With folds, the others are models. Else they are metrics of the same model.
                metric, model = (row["metric"], name) if "folds" in row else (name, "")
                title = ": ".join(filter(None, [row["name"], model]))
                lines.append(_line("", {**row, "metric": metric}, title, scores))
                if gap := _difference(row, name):
                    lines.append(
                        f"| {row['name']}: difference to {name} | {row['metric']} | | {gap}"
                    )
    return lines


def _difference(row: dict[str, Any], name: str) -> str:
    """Returns the end of the line about the difference to another model, paired by folds."""
    folds = row.get("folds", {})
    if not folds:
        return ""
    ours, theirs = (
        {
            (seed, fold): score
            for seed, each in folds.items()
            for fold, score in enumerate(each[key])
        }
        for key in (row["metric"], name)
    )
    count = len(ours) // len(folds)
    gap = statistics.difference(ours, theirs, overlap=1 / (count - 1))
    return f"{gap.mean:+.4f}, {gap.low:+.4f} to {gap.high:+.4f} | {len(folds)} | |"


def _line(folder: str, row: dict[str, Any], name: str, scores: dict[str, float]) -> str:
    low, mean, high = interval(row["metric"], scores)
    shown = f"[{name}](#{folder.replace('_', '-')})" if folder else name
    value = f"{mean:.4g}"
    if len(scores) > 1:
        value += f", {low:.4g} to {high:.4g}"
    published = row["published"] if folder else ""
    minutes = f"{row['seconds'] / 60:.1f}" if folder else ""
    return f"| {shown} | {row['metric']} | {published} | {value} | {len(scores)} | {minutes} |"


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("name", choices=sorted(each.name for each in RESULTS.iterdir()))
    one.add_argument("--data", help="the data, if the script needs some")
    one.add_argument("--row", action="append", help="only this row; repeatable")
    one.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")])
    one.add_argument("--keep", type=Path, help="keep the runs in this directory")
    one.add_argument("--record", action="store_true", help="store the scores")
    commands.add_parser("table")
    given = parser.parse_args()
    if given.command == "run":
        return run(given)
    print("\n".join(table()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
