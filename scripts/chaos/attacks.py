"""Attacks that start their own runs: interruptions, clocks, hosts without locks, streams, ports."""

import argparse
import contextlib
import functools
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from runner.core import files
from runner.launch import ports as free_ports
from runner.run_directory import status
from runner.run_directory.verification import child_run, comparison
from scripts import processes
from scripts.chaos import results
from scripts.chaos import run as interrupted

# Debian 12's libfaketime breaks Python's time.sleep, but not its events.
SLEEPING = """
import sys, threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)
from runner import main
sys.argv[0] = "runner"
main.console()
"""
# Redirections in a shell that break the stream with the descriptor {0}.
LOSSES = {"closed": "{0}>&-", "full": "{0}>/dev/full", "no reader": "{0}> >(head -c 1)"}
# Writes to the streams like tasks, libraries and child processes.
NOISY = """
import logging, os, sys, warnings

def noisy(logs):
    os.system("echo a child process; echo a child process >&2")
    print("a task", flush=True)
    print("a task", file=sys.stderr)
    logging.getLogger("library").warning("a library")
    warnings.warn(f"a warning {logs}")
"""
NOISY_DIGITS = "import noisy\ninclude 'digits.gin'\nRunConfig.actions = (@noisy.noisy,)\n"
# Raises an error on one worker, when its training step is traced.
ERRING = """
import sys
import tensorflow as tf
from tasks import image_classification

task = image_classification.ImageClassificationTask
train_step = task.train_step

def erring(self, inputs, model, optimizer, metrics=None):
    if "--task_index=2" in sys.argv:
        raise tf.errors.ResourceExhaustedError(None, None, "on one worker")
    return train_step(self, inputs, model, optimizer, metrics)

task.train_step = erring
"""
EMA = "--gin_params=OptimizationConfig.ema=@EMAConfig()"
CHECKPOINTS = 40
# Files that a run needs not, or finds again.
LOSABLE = (
    *("checkpoint", "status.json", "step.txt", "run.json", "overview.json", "config.gin"),
    *("best/info.json", "best/checkpoint", "claim.json"),
)


def every(steps: int, *, evaluation: int, checkpoint: int, summary: int) -> list[str]:
    """Returns flags for a run's length and intervals."""
    values = {
        "train_steps": steps,
        "validation_interval": evaluation,
        "checkpoint_interval": checkpoint,
        "summary_interval": summary,
    }
    return [f"--gin.TrainerConfig.{name}={value}" for name, value in values.items()]


def long(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Interrupts each kind of run 25 times. No bit may differ."""
    poisoned = [*_poisoned(flags.folder), *every(1000, evaluation=40, checkpoint=20, summary=10)]
    runs = {
        "digits": [
            *("--gin_file=digits_cnn.gin", EMA),
            *every(1500, evaluation=100, checkpoint=50, summary=20),
        ],
        "aspects": [
            *("--gin_file=aspects_tiny.gin", "--gin.TrainerConfig.summary_interval=10"),
            "--params_override=run.epochs.train=60,run.epochs.checkpoint_interval=1",
        ],
        "nan": poisoned,
    }
    if flags.cifar:
        runs["cifar"] = [
            "--gin_file=cifar10_small.gin",
            f"--gin.TRAIN='{flags.cifar / 'train_10k.npz'}'",
            f"--gin.TEST='{flags.cifar / 'test_2k.npz'}'",
            *("--gin.train/ImageData.subset=''", "--gin.validation/ImageData.subset=''"),
            "--params_override=run.epochs.train=12,run.epochs.checkpoint_interval=0.2",
        ]
    else:
        print("skipping CIFAR; pass its directory with --cifar")
    wrong = []
    for name, more in runs.items():
        print(f"\n{name}:", flush=True)
        wrong += _interrupted(flags.folder / name, 12, 8, 5, more)
    return wrong


def nan(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Interrupts a run that rolls back. Rollbacks must equal those of an undisturbed run."""
    lengths = every(400, evaluation=40, checkpoint=20, summary=10)
    return _interrupted(flags.folder / "nan", 5, 5, 0, [*_poisoned(flags.folder), *lengths])


def clocks(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Changes evaluators' clocks. Each must evaluate every checkpoint, although one is kept."""
    if not shutil.which("faketime"):
        return ["faketime is not installed"]
    run = flags.folder / "run"
    steps = [*every(100 * CHECKPOINTS, evaluation=100, checkpoint=100, summary=100)]
    more = ["--gin_file=digits.gin", *steps, "--gin.TrainerConfig.max_to_keep=1"]
    more += ["--gin.EvaluatorConfig.policy='every'"]
    runner = [sys.executable, "-c", SLEEPING, *more, f"--model_dir={run}"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    evaluators = []
    for name, shift in {"right": "+0s", "fast": "+1h", "slow": "-1h"}.items():
        own = [*runner, "--mode=continuous_eval", f"--gin.EvaluatorConfig.name='{name}'"]
        shifted = ["faketime", "--exclude-monotonic", "-f", shift, *own]
        evaluators.append(subprocess.Popen(shifted, **quiet))
    processes.until(lambda: len(list(run.glob("eval-*/evaluator.json"))) == len(evaluators))
    subprocess.run([*runner, "--mode=train"], check=True, **quiet)
    codes = [process.wait() for process in evaluators]
    counts = {}
    for path in sorted(run.glob("eval-*/history.jsonl")):
        counts[path.parent.name] = len({row["step"] for row in files.read_json_lines(path)})
    print(f"{CHECKPOINTS} checkpoints, evaluated {counts}, exit codes {codes}")
    complete = list(counts.values()) == [CHECKPOINTS] * len(evaluators)
    return [] if complete and not any(codes) else ["an evaluator failed or missed checkpoints"]


def hosts(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Resumes a process whose run another host has taken over. It must write nothing, and exit."""
    program = [
        *(sys.executable, "-m", "scripts.chaos.other_host"),
        *("--mode=train_and_eval", "--gin_file=digits.gin", EMA),
        *every(3000, evaluation=500, checkpoint=100, summary=20),
    ]
    once, both = flags.folder / "once", flags.folder / "both"
    with child_run.ChildRun(program, once) as start:
        start.finish()
    first = child_run.ChildRun([*_on("first"), *program], both)
    processes.until(lambda: child_run.last_row(both) > 500)
    trainer = int(json.loads((both / "claim.json").read_text())["pid"])
    os.kill(trainer, signal.SIGSTOP)
    second = child_run.ChildRun([*_on("second"), *program], both)
    processes.until(lambda: second.log.read_text().count("taking over") > 0)
    second.finish()
    kept = {path: path.read_bytes() for path in both.glob("*.json*")}
    os.kill(trainer, signal.SIGCONT)
    code = first.chief.wait()
    last = first.log.read_text().splitlines()[-1]
    changed = [path.name for path, before in kept.items() if path.read_bytes() != before]
    print(f"the suspended process exited with {code} ({last}); files it changed: {changed}")
    wrong = results.differences(once, both) + [f"{name} was changed" for name in changed]
    if code != 1:
        wrong.append(f"the suspended process ended with {code}")
    return wrong + _unfinished(both)


def streams(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Breaks streams. The exit code and every bit must equal those of a run with all streams."""
    folder = flags.folder
    (folder / "noisy.py").write_text(NOISY)
    (folder / "noisy.gin").write_text(NOISY_DIGITS)
    more = ["--gin_file=noisy.gin", "--alsologtostderr", EMA]
    more += every(200, evaluation=100, checkpoint=50, summary=20)
    program = shlex.join(processes.runner("train_and_eval", *more))
    losses = {"nothing": "", "all closed": "<&- >&- 2>&-"}
    for number, stream in ((1, "stdout"), (2, "stderr")):
        losses |= {f"{stream} {how}": shell.format(number) for how, shell in LOSSES.items()}
    wrong = []
    for lost, redirection in losses.items():
        name = lost.replace(" ", "_")
        command = ["bash", "-c", f"{program} --model_dir={name} {redirection}"]
        code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
        differing = comparison.differing(comparison.compare(folder / "nothing", folder / name))
        line = f"{lost}: exit code {code}, differing: {differing}"
        print(line, flush=True)
        wrong += [*([line] if differing or code else []), *_unfinished(folder / name)]
    return wrong


def moved(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Moves a run. The old directory must stay away, and the run must equal an unmoved one."""
    lengths = every(1500, evaluation=500, checkpoint=20, summary=20)
    program = processes.runner("train_and_eval", "--gin_file=digits.gin", EMA, *lengths)
    once, place, wrong = flags.folder / "once", flags.folder / "0", []
    with child_run.ChildRun(program, once) as start:
        start.finish()
    for number in range(1, 6):
        start, new = child_run.ChildRun(program, place), flags.folder / str(number)
        goal = functools.partial(_has_passed, place, 250 * number)
        processes.until(goal)
        place.rename(new)
        code, last = start.chief.wait(), start.log.read_text().splitlines()[-1]
        line = f"exit code {code} ({last}); the old directory is back: {place.exists()}"
        print(line, flush=True)
        if code != 1 or f"moved to {new}" not in last or place.exists():
            wrong.append(line)
        place = new
    with child_run.ChildRun(program, place) as start:
        start.finish()
    return wrong + results.differences(once, place)


def lost(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Kills a run, and removes one of its files each time. No bit may differ."""
    lengths = every(1500, evaluation=100, checkpoint=50, summary=20)
    program = processes.runner("train_and_eval", "--gin_file=digits.gin", EMA, *lengths)
    once, run, draw = flags.folder / "once", flags.folder / "run", random.Random(flags.seed)
    with child_run.ChildRun(program, once) as start:
        start.finish()
    for number in range(flags.kills):
        goal = int(1500 * (number + draw.random()) / flags.kills)
        with child_run.ChildRun(program, run) as start:
            start.wait_for(functools.partial(_has_passed, run, goal))
            start.interrupt(signal.SIGKILL)
        name = draw.choice(LOSABLE)
        print(f"killed after step {child_run.last_row(run):,}; lost: {name}", flush=True)
        (run / name).unlink(missing_ok=True)
    with child_run.ChildRun(program, run) as start:
        start.finish()
    return results.differences(once, run) + _unfinished(run)


def params(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Restarts a run without params.yaml. The start must be rejected, and change nothing."""
    run = flags.folder / "run"
    lengths = every(400, evaluation=200, checkpoint=200, summary=100)
    program = processes.runner("train_and_eval", "--gin_file=digits.gin", *lengths)
    with child_run.ChildRun(program, run) as start:
        start.finish()
    (run / "params.yaml").unlink()
    kept = {path: path.read_bytes() for path in run.rglob("ckpt-*")}
    other = [*program, "--gin.RunConfig.seed=5", "--gin.TrainerConfig.train_steps=600"]
    with child_run.ChildRun(other, run) as start:
        code, log = start.chief.wait(), start.log.read_text()
    named = "params.yaml" in log and "--allow_config_change" in log
    print(f"exit code {code}, the message names the file and the flag: {named}")
    wrong = [] if code == 2 and named else ["the start was not rejected"]
    same = kept == {path: path.read_bytes() for path in run.rglob("ckpt-*")}
    return wrong if same else [*wrong, "checkpoints have changed"]


def ports(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Disturbs connecting workers. Both must exit with the right codes and no traceback."""
    folder, killed = flags.folder, (1, -signal.SIGKILL)
    return [
        *_connected(folder / "port0", (1, 1), "worker 0", occupied=0),
        *_connected(folder / "port1", (1, 1), "worker 1", occupied=1),
        *_connected(folder / "killed", killed, "worker 1", number=signal.SIGKILL, struck=1),
        *_connected(folder / "chief", (143, 143), "SIGTERM", number=signal.SIGTERM, struck=0),
        *_connected(folder / "other", (143, 143), "SIGTERM", number=signal.SIGTERM, struck=1),
    ]


def failure_handler(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Repeats the scenarios of TensorFlow's failure_handler_test.py, with four workers.

    A random worker gets a SIGTERM: all save a checkpoint and exit, and go on when they are started
    again. An error on one worker ends all. (The third scenario, training during a grace period,
    has no equivalent: the runner saves at once.)
    """
    folder, draw = flags.folder, random.Random(flags.seed)
    (folder / "erring.py").write_text(ERRING)
    (folder / "erring.gin").write_text("import erring\ninclude 'digits.gin'\n")
    hosts = [f"localhost:{port}" for port in free_ports.free(4)]
    lengths = every(400, evaluation=200, checkpoint=200, summary=20)
    more = ["--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'", *lengths]
    program = processes.runner("train", "--gin_file=digits.gin", *more)
    once, twice = folder / "once", folder / "twice"
    with child_run.ChildRun(program, once, hosts=hosts) as start:
        start.finish()
    with child_run.ChildRun(program, twice, hosts=hosts) as start:
        start.wait_for(functools.partial(_has_passed, twice, 100))
        target = draw.randrange(len(hosts))
        start.workers[target].send(signal.SIGTERM)
        codes = [worker.wait() for worker in start.workers]
    saved = child_run.committed(twice)
    print(f"SIGTERM to worker {target}: exit codes {codes}, saved step {saved}", flush=True)
    wrong = [] if codes == [143] * 4 and saved else [f"after SIGTERM: {codes}, step {saved}"]
    with child_run.ChildRun(program, twice, hosts=hosts) as start:
        start.finish()
    wrong += results.differences(once, twice)
    command = processes.runner("train", f"--gin_file={folder / 'erring.gin'}", *more)
    with child_run.ChildRun(command, folder / "error", hosts=hosts) as start:
        codes = [worker.wait(300) for worker in start.workers]
        lines = [worker.last_lines()[0] for worker in start.workers]
    print(f"an error on one worker: exit codes {codes}", *lines, sep="\n", flush=True)
    return wrong if codes == [1] * 4 else [*wrong, f"after an error: {codes}"]


def _connected(
    folder: Path,
    expected: Sequence[int],
    word: str,
    *,
    occupied: int | None = None,
    number: int = 0,
    struck: int = 0,
) -> list[str]:
    """Starts two workers. Returns what is wrong with their exit codes and their last lines.

    Args:
        folder: The directory of the run. The logs are written next to it.
        expected: The exit codes of the workers.
        word: A text in the last line of each worker, except a killed one.
        occupied: The worker whose port another program uses.
        number: The signal for a worker as soon as TensorFlow connects the chief.
        struck: The worker that gets the signal.
    """
    numbers = free_ports.free(2)
    addresses = ",".join(f"localhost:{port}" for port in numbers)
    logs = [folder.with_name(f"{folder.name}-{index}.err") for index in range(2)]
    command = processes.runner("train", "--gin_file=digits.gin", f"--model_dir={folder}")
    command += [f"--worker_hosts={addresses}"]
    command += ["--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'"]
    command += ["--gin.RunConfig.workers_timeout=60", "--gin.TrainerConfig.train_steps=100000"]
    with contextlib.ExitStack() as stack:
        if occupied is not None:
            stack.enter_context(socket.create_server(("", numbers[occupied])))
        workers = []
        for index, log in enumerate(logs):
            with log.open("w") as errors:
                own = [*command, f"--task_index={index}"]
                workers.append(subprocess.Popen(own, stdout=subprocess.DEVNULL, stderr=errors))
            stack.callback(workers[index].kill)
        if number:
            processes.until(lambda: "Started server" in logs[0].read_text())
            workers[struck].send_signal(number)
        codes = tuple(worker.wait(600) for worker in workers)
    wrong = [] if codes == tuple(expected) else [f"{folder.name}: exit codes {codes}"]
    for code, log in zip(codes, logs, strict=True):
        last = log.read_text().splitlines()[-1]
        print(f"{folder.name}: {code}: {last}", flush=True)
        if "Traceback" in log.read_text() or (code >= 0 and word not in last):
            wrong.append(f"{log.name}: {last}")
    return wrong


def _has_passed(run: Path, step: int) -> bool:
    return child_run.last_row(run) > step


def _unfinished(run: Path) -> list[str]:
    """Returns the problem if a run is not done."""
    now = status.read(run)
    return [] if now and now.state == "done" else [f"{run}: status.json says {now}"]


def _interrupted(
    folder: Path, kills: int, terms: int, stops: int, more: Sequence[str]
) -> list[str]:
    counts = {"kills": kills, "terms": terms, "stops": stops, "seed": 0}
    flags = argparse.Namespace(folder=folder, mode="train_and_eval", **counts)
    return [f"{folder.name}: {line}" for line in interrupted.run(flags, list(more))]


def _poisoned(folder: Path) -> list[str]:
    """Returns flags for digits.gin with an image of NaNs.

    Each epoch of 23 batches diverges once, so checkpoints must be closer together than an epoch.
    """
    digits = datasets.load_digits()
    images = (digits.images / 16).astype(np.float32)
    images[700, 3, 3] = np.nan
    path = folder / "digits_nan.npz"
    np.savez(path, images=images[:1440], labels=digits.target[:1440])
    return [
        "--gin_file=digits.gin",
        f"--gin.train/ImageData.input_path='{path}'",
        "--gin.TrainerConfig.recovery_max_trials=1000",
        "--gin.RunConfig.rollback_rate=0.99",
    ]


def _on(host: str) -> list[str]:
    """Returns a command prefix that runs another command as if on a host of this name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]
