"""A killed worker continues in a process that is forked from one with all imports done."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import buckets
import resumed
import warm

from runner.run_directory.run import reached

STEPS = 6000
COMMAND = (
    *(sys.executable, "-m", "runner", "--mode=train", "--gin_file=digits.gin", "--workers=1"),
    f"--gin.TrainerConfig.train_steps={STEPS}",
    "--gin.TrainerConfig.steps_per_loop=2",
    "--gin.TrainerConfig.checkpoint_interval=100",
)


def start(folder):
    return warm.Popen(
        [*COMMAND, f"--model_dir={folder}"],
        stdout=subprocess.PIPE,
        stderr=folder.with_suffix(".err").open("a"),
    )


def read(folder, name):
    with contextlib.suppress(OSError, ValueError):
        return json.loads((folder / "workers" / f"{name}.json").read_text())
    return {}


def test_a_killed_worker_is_forked_and_ends_with_the_same_bits(tmp_path):
    once, folder = tmp_path / "once", tmp_path / "killed"
    assert start(once).wait() == 0
    process = start(folder)
    buckets.wait_for(lambda: read(folder, "supervisor").get("state") == "running")
    buckets.wait_for(lambda: reached(folder) > 100)
    killed = read(folder, 0)["pid"]
    os.kill(killed, signal.SIGKILL)
    buckets.wait_for(lambda: read(folder, 0).get("pid", killed) != killed)
    started = Path(f"/proc/{read(folder, 0)['pid']}/cmdline").read_bytes()
    out, _ = process.communicate()
    assert process.returncode == 0, folder.with_suffix(".err").read_text()
    assert json.loads(out.splitlines()[-1])["step"] == STEPS
    assert b"forkserver" in started
    assert resumed.state(folder, STEPS) == resumed.state(once, STEPS)
