"""A run in a real Slurm, preempted four times, against one that was left alone: every bit.

    python scripts/chaos_slurm.py

Needs Debian's slurm-wlm and munge. It starts a cluster of two virtual nodes, in a scratch folder.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import slurm_cluster  # noqa: E402

from runner.run_folder import status  # noqa: E402
from runner.verification import comparison  # noqa: E402

RUN = [
    *("--mode=train_and_eval", "--gin_file=digits.gin", "--gin.TrainerConfig.train_steps=60000"),
    *("--gin.TrainerConfig.validation_interval=5000", "--gin.TrainerConfig.summary_interval=1000"),
]
WAYS = {
    "SIGTERM": ["scancel", "--signal=TERM", "--batch"],
    "SIGTERM to all processes": ["scancel", "--signal=TERM", "--full"],
    "scontrol requeue": ["scontrol", "requeue"],
    "SIGTERM once more": ["scancel", "--signal=TERM", "--batch"],
}


def runner(*arguments: str) -> dict:
    """The results of a command."""
    command = [sys.executable, "-m", "runner", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def preempt_and_compare(folder: Path, *, requeue_exit: bool) -> bool:
    """Whether the run that is preempted ends with the bits of the other one."""
    run, alone, cluster = folder / "run", folder / "alone", folder / "slurm"
    cluster.mkdir()
    with slurm_cluster.running(cluster, requeue_exit=requeue_exit), contextlib.chdir(folder):
        job = runner("--launch=slurm", *RUN, f"--model_dir={run}")["job"]
        before = 0
        for way, command in WAYS.items():
            slurm_cluster.wait_for(lambda last=before: status.reached(run) > last, cluster)
            subprocess.run([*command, job], check=True)
            print(f"{way} at step {status.reached(run):,}", flush=True)
            slurm_cluster.wait_for(lambda: state(job) == "PENDING", cluster)
            before = status.reached(run)
        slurm_cluster.wait_for(lambda: state(job) in ("", "COMPLETED"), cluster)
        print((run / "launch" / f"slurm-{job}.log").read_text().count("resumed at step"), "resumes")
        runner(*RUN, f"--model_dir={alone}")
    parts = comparison.compare(run, alone)
    print(comparison.render(parts))
    return not any(part.differing for part in parts)


def state(job: str) -> str:
    """As squeue has it; empty once the job has left the queue."""
    return slurm_cluster.output("squeue", "--noheader", "--format=%T", "--jobs", job)


if __name__ == "__main__":
    if why := slurm_cluster.missing():
        sys.exit(why)
    for with_exit in (False, True):
        print(f"RequeueExit=143: {with_exit}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-slurm-") as scratch:
            if not preempt_and_compare(Path(scratch), requeue_exit=with_exit):
                sys.exit("the runs differ")
        print(f"equal, after {time.monotonic() - began:.0f} s")
