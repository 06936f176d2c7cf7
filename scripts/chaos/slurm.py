"""Preempts and kills jobs of a real Slurm cluster, and checks the runs and the study in them.

    python -m scripts.chaos slurm --only=run,nodes,study,evaluator,time

run        one node, preempted four times, with and without the administrator's RequeueExit
nodes      two nodes, a worker on each, preempted once; the same with --workers
study      four trials shared by an array of two jobs: one job preempted, the other killed
evaluator  an evaluator alongside training, as a separate job, preempted once
time       a run that reaches its time limit before its end

Needs Debian's slurm-wlm and munge. The script starts a cluster of two virtual nodes in a temporary
directory. The nodes of `nodes` have separate networks, which only root can create.
"""

import argparse
import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import slurm_cluster

from runner.core import files, layout
from runner.run_directory import status
from runner.run_directory.run import reached
from runner.studies import trial
from scripts import processes
from scripts.chaos import results

RUN = [
    *("--mode=train_and_eval", "--gin_file=digits.gin", "--gin.TrainerConfig.train_steps=60000"),
    *("--gin.TrainerConfig.validation_interval=5000", "--gin.TrainerConfig.summary_interval=1000"),
]
SHORT = [
    *("--gin_file=digits.gin", "--gin.TrainerConfig.train_steps=1500"),
    *("--gin.TrainerConfig.validation_interval=500", "--gin.TrainerConfig.steps_per_loop=5"),
]
MULTI = "--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'"
TERM = ["scancel", "--signal=TERM", "--batch"]
WAYS = {
    "SIGTERM": TERM,
    "SIGTERM to all processes": ["scancel", "--signal=TERM", "--full"],
    "scontrol requeue": ["scontrol", "requeue"],
    "SIGTERM once more": TERM,
}


class Slurm:
    """Jobs in a cluster, with their directories in `folder`."""

    def __init__(self, folder: Path, cluster: Path) -> None:
        self._folder = folder
        self._cluster = cluster

    def launch(self, name: str, *arguments: str) -> tuple[str, Path]:
        """Submits a command. Returns the job's number and the run's directory."""
        command = [*processes.runner(), "--launch=slurm", *arguments]
        command.append(f"--model_dir={self._folder / name}")
        done = subprocess.run(command, check=True, capture_output=True)
        return json.loads(done.stdout)["job"], self._folder / name

    def wait(self, done: Any) -> None:
        """Waits until `done()` is true."""
        slurm_cluster.wait_for(done, self._cluster, 600)

    def preempt(self, job: str, run: Path, steps: int, command: list[str]) -> None:
        """Preempts a job after more than `steps` steps, and waits until it is pending again."""
        self.wait(lambda: reached(run) > steps)
        subprocess.run([*command, job], check=True)
        print(f"{' '.join(command)} at step {reached(run):,}", flush=True)
        self.wait(lambda: state(job) == "PENDING")

    def end(self, *jobs: str) -> None:
        """Waits until the jobs have left the queue."""
        self.wait(lambda: not any(unfinished(job) for job in jobs))


def preempted_often(slurm: Slurm) -> list[str]:
    """Preempts one run in all ways. Returns the problems."""
    job, run = slurm.launch("run", *RUN)
    before = 0
    for command in WAYS.values():
        slurm.preempt(job, run, before, command)
        before = reached(run)
    slurm.end(job)
    subprocess.run(
        [*processes.runner(), *RUN, f"--model_dir={run.with_name('alone')}"],
        check=True,
        capture_output=True,
    )
    return results.differences(run, run.with_name("alone"))


def preempted_on_nodes(slurm: Slurm) -> list[str]:
    """Preempts a run with a worker on each of two nodes, then one with supervisors."""
    train = ["--mode=train_and_eval", *SHORT, "--gin.LaunchConfig.nodes=2"]
    wrong: list[str] = []
    job, alone = slurm.launch("alone", *train, MULTI)
    slurm.end(job)
    for name, flag in {"run": MULTI, "supervised": "--workers=2"}.items():
        job, run = slurm.launch(name, *train, flag)
        slurm.preempt(job, run, 100, TERM)
        slurm.end(job)
        wrong += results.differences(run, alone)
    return wrong


def study_as_array(slurm: Slurm) -> list[str]:
    """Runs a study as an array, preempts one job and kills the other. Returns the problems."""
    flags = ["--mode=study", "--seeds=4", "--jobs=1", *SHORT, "--gin.LaunchConfig.nodes=2"]
    job, study = slurm.launch("study", *flags)
    slurm.wait(lambda: len(running(study)) == 2)
    subprocess.run([*TERM, f"{job}_0"], check=True)
    slurm.wait(lambda: state(f"{job}_0") == "PENDING")
    print(f"{job}_0 preempted, {job}_1 killed", flush=True)
    subprocess.run(["scancel", "--signal=KILL", "--full", f"{job}_1"], check=True)
    slurm.end(job)
    trials = trial.all_of(study)
    starts = [len(json.loads((one.folder / layout.RUN).read_text())["starts"]) for one in trials]
    print(f"trials: {[one.state for one in trials]}, starts of each: {starts}")
    wrong = [f"{one.folder.name} is {one.state}" for one in trials if one.state != "done"]
    return wrong + ([] if len(trials) == 4 else [f"{len(trials)} trials"])


def evaluator_beside(slurm: Slurm) -> list[str]:
    """Preempts training and an evaluator in two jobs. Returns the problems."""
    steps = "--gin.TrainerConfig.train_steps=30000"
    job, run = slurm.launch("run", "--mode=train", *SHORT, steps)
    beside, _ = slurm.launch("run", "--mode=continuous_eval", *SHORT, steps)
    slurm.wait(lambda: (layout.evaluator(run, "continuous") / layout.HISTORY).exists())
    for number in (job, beside):
        subprocess.run([*TERM, number], check=True)
    slurm.end(job, beside)
    rows = files.read_json_lines(layout.evaluator(run, "continuous") / layout.HISTORY)
    done = [row["step"] for row in rows if "metrics" in row]
    print(f"training: {status.read(run)}; evaluated at steps {done}")
    return [] if done and done[-1] == 30000 and done == sorted(set(done)) else [f"{done}"]


def out_of_time(slurm: Slurm) -> list[str]:
    """Lets a run reach its time limit. Returns the problems once it is pending again."""
    time_limit = ["--gin.LaunchConfig.time='0:02:00'", "--gin.LaunchConfig.grace_seconds=50"]
    steps = "--gin.TrainerConfig.train_steps=10000000"
    job, run = slurm.launch("run", "--mode=train", *SHORT, *time_limit, steps)
    slurm.wait(lambda: reached(run) > 0)
    slurm.wait(lambda: state(job) != "RUNNING")
    seen = status.read(run)
    print(f"{state(job)}, {seen}")
    subprocess.run(["scancel", job], check=True)
    was_saved = seen and seen.state == "preempted" and seen.step == saved(run)
    return [] if was_saved else ["it was not saved"]


def saved(run: Path) -> int:
    """Returns the step of the newest checkpoint."""
    return max(int(path.stem.partition("-")[2]) for path in run.glob("ckpt-*.index"))


def running(study: Path) -> list[Path]:
    """Returns the trials of a study that have done a step and have not ended."""
    states = [(folder, status.read(folder)) for folder in layout.trials(study)]
    return [run for run, seen in states if seen and not seen.ended and reached(run)]


def state(job: str) -> str:
    """Returns a job's state from squeue, or "" once the job has left the queue."""
    return slurm_cluster.output("squeue", "--noheader", "--format=%T", "--jobs", job)


def unfinished(job: str) -> bool:
    """Whether a job, or a job of an array, is pending or running."""
    return bool(slurm_cluster.output("squeue", "--noheader", "--jobs", job))


PARTS: dict[str, list[tuple[Callable[[Slurm], list[str]], dict[str, bool]]]] = {
    "run": [(preempted_often, {}), (preempted_often, {"requeue_exit": True})],
    "nodes": [(preempted_on_nodes, {"apart": True})],
    "study": [(study_as_array, {})],
    "evaluator": [(evaluator_beside, {})],
    "time": [(out_of_time, {})],
}


def slurm(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Runs the parts, and stops at the first problem."""
    if why := slurm_cluster.missing():
        return [why]
    for name in flags.only.split(","):
        for number, (part, options) in enumerate(PARTS[name]):
            print(f"{name} {options or ''}", flush=True)
            began = time.monotonic()
            folder = flags.folder / f"{name}{number}"
            cluster = folder / "slurm"
            cluster.mkdir(parents=True)
            inside = slurm_cluster.running(cluster, **options)
            with inside, contextlib.chdir(folder):
                if wrong := part(Slurm(folder, cluster)):
                    return wrong
            print(f"no problems, after {time.monotonic() - began:.0f} s", flush=True)
    return []
