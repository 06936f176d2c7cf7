"""Kills nodes of a Ray cluster under a study: no trial is to be lost, and none to be done twice.

    python scripts/chaos_ray.py --trials=200 --kills=1

The cluster is of two nodes on this machine. Each kill takes the second node away, with all that
runs on it, at a random moment of the trials that it is to happen in; a new node takes its place.
The trials do not train (`tests/helpers/played_trial.py`): they claim their folders, count steps and
save, for it is Ray and the study that are tested.

The exit code is 0 only if every trial was done, once, and went on from what it had saved.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runner.studies import trial

ROOT = Path(__file__).parents[1]
PLAYED = ROOT / "tests" / "helpers" / "played_trial.py"
STUDY = """
import sys
from runner import main
from runner.launch import ray
ray.Cluster.program = [sys.argv[1]]
sys.exit(main.main(sys.argv[2:]))
"""


def rows(folder: Path) -> list[dict[str, Any]]:
    """The starts and ends of trials so far."""
    path = folder / "played.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def ended(folder: Path) -> int:
    """How many trials are done."""
    return sum(row["what"] == "end" for row in rows(folder))


def problems(folder: Path, trials: int) -> list[str]:
    """What went wrong."""
    found = []
    done = [each for each in trial.all_of(folder) if each.state == "done"]
    if len(done) != trials:
        found.append(f"{len(done)} of {trials} trials are done")
    by_trial: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows(folder):
        by_trial[row["trial"]].append(row)
    for name, own in by_trial.items():
        if (ends := sum(row["what"] == "end" for row in own)) != 1:
            found.append(f"{name} was done {ends} times")
        starts = [row["step"] for row in own if row["what"] == "start"]
        if starts != sorted(starts) or any(step % 10 for step in starts):
            found.append(f"{name} did not go on from what it had saved: {starts}")
    return found


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=4, help="of each node")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each trial")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PLAYED_SECONDS": str(given.seconds)}
    from ray import cluster_utils

    chance, began = random.Random(given.seed), time.monotonic()
    options = {"num_cpus": given.cpus, "object_store_memory": 80_000_000}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**options, "env_vars": {"PLAYED_NODE": "head"}}
    )
    node = cluster.add_node(**options, env_vars={"PLAYED_NODE": "node 0"})
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        folder = Path(scratch, "study")
        flags = ["--mode=study", "--launch=ray", "--gin_file=digits.gin", f"--model_dir={folder}"]
        flags += [f"--seeds={given.trials}", f"--gin.LaunchConfig.address='{cluster.address}'"]
        study = subprocess.Popen([sys.executable, "-c", STUDY, str(PLAYED), *flags])
        for number in range(given.kills):
            least = given.trials * (number + 0.2) / (given.kills + 0.4)
            moment = least + chance.random() * given.trials * 0.6 / (given.kills + 0.4)
            while ended(folder) < moment and study.poll() is None:
                time.sleep(0.05)
            cluster.remove_node(node, allow_graceful=False)
            print(f"node {number} killed after {ended(folder)} trials", flush=True)
            node = cluster.add_node(**options, env_vars={"PLAYED_NODE": f"node {number + 1}"})
        code = study.wait()
        found = problems(folder, given.trials)
        starts = [row for row in rows(folder) if row["what"] == "start"]
        nodes = collections.Counter(row["node"] for row in starts)
    cluster.shutdown()
    print(f"{given.trials} trials in {len(starts)} starts, {time.monotonic() - began:.0f} s")
    print(f"starts by node: {dict(nodes)}")
    print("\n".join(found) or "none lost, none twice")
    return 1 if found or code else 0


if __name__ == "__main__":
    sys.exit(main())
