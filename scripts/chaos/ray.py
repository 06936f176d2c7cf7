"""Kills nodes of a Ray cluster that runs a study, and checks that each trial is done once.

    python -m scripts.chaos ray --trials=200 --nodes=1

The cluster consists of two nodes on this machine. Each kill removes the second node, with
everything that runs on it, at a random moment. A new node replaces it. The trials do not train
(`tests/helpers/played_trial.py`). They lock their directories, count steps and save, because only
Ray and the study are tested.

Every trial must be done exactly once, and must continue from the state that it had saved.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runner.studies import trial
from scripts import processes

PLAYED = processes.ROOT / "tests" / "helpers" / "played_trial.py"
STUDY = """
import sys
from runner import main
from runner.launch import ray
ray.Cluster.program = [sys.argv[1]]
sys.exit(main.main(sys.argv[2:]))
"""


def rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the starts and ends of trials so far."""
    path = folder / "played.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def ended(folder: Path) -> int:
    """Counts the trials that are done."""
    return sum(row["what"] == "end" for row in rows(folder))


def problems(folder: Path, trials: int) -> list[str]:
    """Returns what went wrong."""
    done = sum(one.state == "done" for one in trial.all_of(folder))
    wrong = [f"{done} of {trials} trials are done"] if done != trials else []
    by_trial: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows(folder):
        by_trial[row["trial"]].append(row)
    for name, own in by_trial.items():
        if (ends := sum(row["what"] == "end" for row in own)) != 1:
            wrong.append(f"{name} was done {ends} times")
        starts = [row["step"] for row in own if row["what"] == "start"]
        if starts != sorted(starts) or any(step % 10 for step in starts):
            wrong.append(f"{name} did not continue from its saved state: {starts}")
    return wrong


def ray(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Runs a study while nodes are killed. Returns the problems."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PLAYED_SECONDS": "1"}
    from ray import cluster_utils

    chance, began = random.Random(flags.seed), time.monotonic()
    options = {"num_cpus": flags.cpus, "object_store_memory": 80_000_000}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**options, "env_vars": {"PLAYED_NODE": "head"}}
    )
    node = cluster.add_node(**options, env_vars={"PLAYED_NODE": "node 0"})
    folder = flags.folder / "study"
    command = ["--mode=study", "--launch=ray", "--gin_file=digits.gin", f"--model_dir={folder}"]
    command += [f"--seeds={flags.trials}", f"--gin.LaunchConfig.address='{cluster.address}'"]
    study = subprocess.Popen([sys.executable, "-c", STUDY, str(PLAYED), *command])
    for number in range(flags.nodes):
        least = flags.trials * (number + 0.2) / (flags.nodes + 0.4)
        moment = least + chance.random() * flags.trials * 0.6 / (flags.nodes + 0.4)
        while ended(folder) < moment and study.poll() is None:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        print(f"node {number} killed after {ended(folder)} trials", flush=True)
        node = cluster.add_node(**options, env_vars={"PLAYED_NODE": f"node {number + 1}"})
    code = study.wait()
    cluster.shutdown()
    starts = [row for row in rows(folder) if row["what"] == "start"]
    nodes = collections.Counter(row["node"] for row in starts)
    seconds = time.monotonic() - began
    print(f"{flags.trials} trials in {len(starts)} starts, {seconds:.0f} s, by node: {dict(nodes)}")
    return problems(folder, flags.trials) + ([f"the study ended with {code}"] if code else [])
