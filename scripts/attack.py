"""Tests that nothing is lost by interruptions, clocks, hosts without locks, streams, ports.

    python scripts/attack.py                       # all of them, an hour on two cores
    python scripts/attack.py --only=clocks,hosts

chaos   100 interruptions of digits, CIFAR, aspects and a run that diverges: SIGKILL, SIGTERM, and
        SIGSTOP with a takeover, in random order (`chaos.py`). CIFAR needs its files (--cifar)
nan     5 SIGKILLs and 5 SIGTERMs of a run with one image of NaNs
clocks  three evaluators of every checkpoint, two of them with clocks an hour off (needs faketime)
hosts   a trainer is suspended, taken over by another host without locks, and resumed (needs
        unshare, as root)
streams runs whose stdin, stdout or stderr is closed, has no reader or is on a full disk
moved   a run's directory is moved five times while it trains, and resumed in its new place
params  a run that has lost params.yaml is started with another seed
ports   two workers, of which one's port is taken, or one is killed or gets SIGTERM while TensorFlow
        connects them: both end, each with a line that says why
hostile buckets whose names lead out of the local copy, on the disk and in S3 (needs moto): the
        modes that only read refuse them, and write nothing outside

The exit code is 0 only if the run withstands every attack.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from sklearn import datasets

import s3_server

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's startup messages

from runner.core import files
from runner.launch import ports as free_ports
from runner.run_folder import status
from runner.verification import child_run, comparison

SCRIPTS = Path(__file__).parent
# Debian 12's libfaketime breaks Python's time.sleep, but not its events.
SLEEPING = """
import sys, threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)
from runner import main
sys.argv[0] = "runner"
main.console()
"""
# What a shell writes to lose a stream, for the descriptor {0}.
LOSSES = {"closed": "{0}>&-", "full": "{0}>/dev/full", "no reader": "{0}> >(head -c 1)"}
# Writes as tasks, libraries and child processes do.
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
EMA = "--gin_params=OptimizationConfig.ema=@EMAConfig()"
CHECKPOINTS = 40


def every(steps: int, *, evaluation: int, checkpoint: int, summary: int) -> list[str]:
    """Flags for a run's length and intervals."""
    values = {
        "train_steps": steps,
        "validation_interval": evaluation,
        "checkpoint_interval": checkpoint,
        "summary_interval": summary,
    }
    return [f"--gin.TrainerConfig.{name}={value}" for name, value in values.items()]


def chaos(folder: Path, cifar: Path | None) -> bool:
    """25 interruptions of each kind of run."""
    poisoned = [*_poisoned(folder), *every(1000, evaluation=40, checkpoint=20, summary=10)]
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
    if cifar:
        runs["cifar"] = [
            "--gin_file=cifar10_small.gin",
            f"--gin.TRAIN='{cifar / 'train_10k.npz'}'",
            f"--gin.TEST='{cifar / 'test_2k.npz'}'",
            *("--gin.train/ImageData.subset=''", "--gin.validation/ImageData.subset=''"),
            "--params_override=run.epochs.train=12,run.epochs.checkpoint_interval=0.2",
        ]
    else:
        print("chaos: skipping CIFAR; give its files with --cifar")
    held = [_struck(folder / name, 12, 8, 5, flags) for name, flags in runs.items()]
    return all(held)


def nan(folder: Path, _: Path | None) -> bool:
    """Rollbacks must equal those of an undisturbed run."""
    flags = [*_poisoned(folder), *every(400, evaluation=40, checkpoint=20, summary=10)]
    return _struck(folder / "nan", 5, 5, 0, flags)


def clocks(folder: Path, _: Path | None) -> bool:
    """Each evaluator must see every checkpoint, although only one is kept."""
    if not shutil.which("faketime"):
        print("clocks: skipped, faketime is not installed")
        return False
    run = folder / "run"
    steps = [*every(100 * CHECKPOINTS, evaluation=100, checkpoint=100, summary=100)]
    flags = ["--gin_file=digits.gin", *steps, "--gin.TrainerConfig.max_to_keep=1"]
    flags += ["--gin.EvaluatorConfig.policy='every'"]
    runner = [sys.executable, "-c", SLEEPING, *flags, f"--model_dir={run}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = []
    for name, shift in {"right": "+0s", "fast": "+1h", "slow": "-1h"}.items():
        own = [*runner, "--mode=continuous_eval", f"--gin.EvaluatorConfig.name='{name}'"]
        shifted = ["faketime", "--exclude-monotonic", "-f", shift, *own]
        running.append(subprocess.Popen(shifted, **quiet))
    _wait(lambda: len(list(run.glob("eval-*/evaluator.json"))) == len(running))
    subprocess.run([*runner, "--mode=train"], check=True, **quiet)
    codes = [process.wait() for process in running]
    counts = {}
    for path in sorted(run.glob("eval-*/history.jsonl")):
        counts[path.parent.name] = len({row["step"] for row in files.read_json_lines(path)})
    print(f"clocks: {CHECKPOINTS} checkpoints, evaluated {counts}, exit codes {codes}")
    return not any(codes) and list(counts.values()) == [CHECKPOINTS] * len(running)


def hosts(folder: Path, _: Path | None) -> bool:
    """The resumed process must write nothing, and say why it exits."""
    flags = [
        *("--mode=train_and_eval", "--gin_file=digits.gin", EMA),
        *every(3000, evaluation=500, checkpoint=100, summary=20),
    ]
    program = [sys.executable, str(SCRIPTS / "chaos_host.py"), *flags]
    once, both = folder / "once", folder / "both"
    with child_run.ChildRun(program, once) as start:
        start.finish()
    first = child_run.ChildRun([*_on("first"), *program], both)
    _wait(lambda: child_run.last_row(both) > 500)
    trainer = int(json.loads((both / "claim.json").read_text())["pid"])
    os.kill(trainer, signal.SIGSTOP)
    second = child_run.ChildRun([*_on("second"), *program], both)
    _wait(lambda: second.log.read_text().count("taking over") > 0)
    second.finish()
    kept = {path: path.read_bytes() for path in both.glob("*.json*")}
    os.kill(trainer, signal.SIGCONT)
    code = first.process.wait()
    said = first.log.read_text().splitlines()[-1]
    changed = [path.name for path, before in kept.items() if path.read_bytes() != before]
    parts = comparison.compare(once, both)
    print(comparison.render(parts))
    print(f"hosts: the suspended process exited with {code} ({said}); files it changed: {changed}")
    state = status.read(both)
    return not (comparison.differing(parts) or changed) and code == 1 and state.state == "done"


def streams(folder: Path, _: Path | None) -> bool:
    """The exit code and every bit must be those of a run that has its streams."""
    (folder / "noisy.py").write_text(NOISY)
    (folder / "noisy.gin").write_text(NOISY_DIGITS)
    flags = ["--mode=train_and_eval", "--gin_file=noisy.gin", "--alsologtostderr", EMA]
    flags += every(200, evaluation=100, checkpoint=50, summary=20)
    program = shlex.join([sys.executable, "-m", "runner", *flags])
    losses = {"nothing": "", "all closed": "<&- >&- 2>&-"}
    for number, stream in ((1, "stdout"), (2, "stderr")):
        losses |= {f"{stream} {how}": shell.format(number) for how, shell in LOSSES.items()}
    held = []
    for lost, redirection in losses.items():
        name = lost.replace(" ", "_")
        command = ["bash", "-c", f"{program} --model_dir={name} {redirection}"]
        code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
        parts = comparison.compare(folder / "nothing", folder / name)
        differing = comparison.differing(parts)
        state = status.read(folder / name).state
        print(f"streams: {lost}: exit code {code}, {state}, differing: {differing}", flush=True)
        held.append(not differing and code == 0 and state == "done")
    return all(held)


def moved(folder: Path, _: Path | None) -> bool:
    """The old directory must not come back, and the run must equal one that was never moved."""
    program = [
        *(sys.executable, "-m", "runner", "--mode=train_and_eval", "--gin_file=digits.gin", EMA),
        *every(1500, evaluation=500, checkpoint=20, summary=20),
    ]
    once, place, held = folder / "once", folder / "0", True
    with child_run.ChildRun(program, once) as start:
        start.finish()
    for number in range(1, 6):
        start, new = child_run.ChildRun(program, place), folder / str(number)
        _wait(lambda at=place, step=250 * number: child_run.last_row(at) > step)
        place.rename(new)
        code, said = start.process.wait(), start.log.read_text().splitlines()[-1]
        print(f"moved: exit code {code} ({said}); the old directory is back: {place.exists()}")
        held = held and code == 1 and f"moved to {new}" in said and not place.exists()
        place = new
    with child_run.ChildRun(program, place) as start:
        start.finish()
    parts = comparison.compare(once, place)
    print(comparison.render(parts))
    return held and not comparison.differing(parts)


def params(folder: Path, _: Path | None) -> bool:
    """The start must be refused, and change nothing."""
    run = folder / "run"
    program = [
        *(sys.executable, "-m", "runner", "--mode=train_and_eval", "--gin_file=digits.gin"),
        *every(400, evaluation=200, checkpoint=200, summary=100),
    ]
    with child_run.ChildRun(program, run) as start:
        start.finish()
    (run / "params.yaml").unlink()
    kept = {path: path.read_bytes() for path in run.rglob("ckpt-*")}
    other = [*program, "--gin.RunConfig.seed=5", "--gin.TrainerConfig.train_steps=600"]
    with child_run.ChildRun(other, run) as start:
        code, said = start.process.wait(), start.log.read_text()
    same = kept == {path: path.read_bytes() for path in run.rglob("ckpt-*")}
    named = "params.yaml is missing" in said and "--allow_config_change" in said
    print(f"params: exit code {code}, the file is named: {named}, the checkpoints are kept: {same}")
    return code == 2 and named and same


def ports(folder: Path, _: Path | None) -> bool:
    """Both workers must end by themselves, with the right codes and no traceback."""
    gone = (1, -signal.SIGKILL)
    return all(
        [
            _connected(folder / "port0", (1, 1), "worker 0", taken=0),
            _connected(folder / "port1", (1, 1), "worker 1", taken=1),
            _connected(folder / "killed", gone, "worker 1", number=signal.SIGKILL, struck=1),
            _connected(folder / "chief", (143, 143), "SIGTERM", number=signal.SIGTERM, struck=0),
            _connected(folder / "other", (143, 143), "SIGTERM", number=signal.SIGTERM, struck=1),
        ]
    )


def _connected(
    folder: Path,
    expected: Sequence[int],
    word: str,
    *,
    taken: int | None = None,
    number: int = 0,
    struck: int = 0,
) -> bool:
    """Starts two workers; whether they end as expected, and each says this word at its end.

    Args:
        folder: What they print goes beside it.
        expected: Their exit codes.
        word: What the last line must contain of each that is not killed.
        taken: Whose port another program has.
        number: The signal that one gets when TensorFlow has begun to connect the chief.
        struck: Which one.
    """
    found = free_ports.free(2)
    hosts = ",".join(f"localhost:{port}" for port in found)
    logs = [folder.with_name(f"{folder.name}-{index}.err") for index in range(2)]
    command = [sys.executable, "-m", "runner", "--mode=train", "--gin_file=digits.gin"]
    command += [f"--model_dir={folder}", f"--worker_hosts={hosts}"]
    command += ["--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'"]
    command += ["--gin.RunConfig.workers_timeout=60", "--gin.TrainerConfig.train_steps=100000"]
    with contextlib.ExitStack() as stack:
        if taken is not None:
            stack.enter_context(socket.create_server(("", found[taken])))
        workers = []
        for index, log in enumerate(logs):
            with log.open("w") as errors:
                own = [*command, f"--task_index={index}"]
                workers.append(subprocess.Popen(own, stdout=subprocess.DEVNULL, stderr=errors))
            stack.callback(workers[index].kill)
        if number:
            _wait(lambda: "Started server" in logs[0].read_text())
            workers[struck].send_signal(number)
        codes = tuple(worker.wait(600) for worker in workers)
    said = [log.read_text() for log in logs]
    held = codes == tuple(expected) and not any("Traceback" in text for text in said)
    for code, text in zip(codes, said, strict=True):
        last = text.splitlines()[-1]
        print(f"ports: {folder.name}: {code}: {last}", flush=True)
        held &= code < 0 or word in last
    return held


HOSTILE = ("../escaped", "train/../../escaped", "/{outside}/escaped", "a//b", "..\\escaped", "e\0")
READING = ("report", "status", "runs", "compare")


def hostile(folder: Path, _: Path | None) -> bool:
    """No file may appear outside the copy, and each refusal is one line."""
    (folder / "outside").mkdir()
    content = "harm"
    held = []
    with s3_server.running() as server:
        for number, name in enumerate(HOSTILE):
            name = name.format(outside=folder / "outside")
            listing = {"files": {name: [len(content), None, 1]}, "texts": {name: content}}
            local = folder / f"bucket-{number}" / "run"
            local.mkdir(parents=True)
            (local / "mirror.json").write_text(json.dumps(listing))
            urls = [f"file://{local}", f"s3://{server.bucket}/{number}/run"]
            _put(server, f"{number}/run/mirror.json", json.dumps(listing))
            for url, mode in zip(
                urls, (READING[number % 4], READING[-1 - number % 4]), strict=True
            ):
                held.append(_refused(folder, mode, url, server.environment, "mirror.json"))
        _put(server, "keys/run/a/../../../escaped", content)
        url = f"s3://{server.bucket}/keys/run"
        held += [_refused(folder, mode, url, server.environment, "escaped") for mode in READING]
    escaped = [path for path in folder.rglob("*") if path.name == "escaped"]
    print(f"hostile: {len(held)} readings, {held.count(True)} refused; files outside: {escaped}")
    return all(held) and not escaped


def _put(server: s3_server.Server, key: str, content: str) -> None:
    """Writes an object with exactly this key, as whoever owns a bucket can."""
    code = (
        "import boto3, sys; boto3.client('s3').put_object("
        "Bucket=sys.argv[1], Key=sys.argv[2], Body=sys.argv[3].encode())"
    )
    command = [sys.executable, "-c", code, server.bucket, key, content]
    subprocess.run(command, env={**os.environ, **server.environment}, check=True)


def _refused(folder: Path, mode: str, url: str, environment: Mapping[str, str], word: str) -> bool:
    """Whether a mode that only reads refuses a bucket in one line that has this word."""
    own = {**os.environ, **environment, "XDG_CACHE_HOME": str(folder / "cache")}
    where = [f"--runs={url},{url}"] if mode == "compare" else [f"--model_dir={url}"]
    where += ["--output=page.html"] if mode == "report" else []
    command = [sys.executable, "-m", "runner", f"--mode={mode}", *where]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
    line = done.stderr.strip().rpartition("\n")[2]
    if done.returncode in (1, 2) and "Traceback" not in done.stderr and word in line:
        return True
    print(f"hostile: {mode} {url}: exit code {done.returncode}\n{done.stderr}")
    return False


def _struck(folder: Path, kills: int, terms: int, stops: int, flags: Sequence[str]) -> bool:
    print(f"\n{folder.name}: {kills} SIGKILL, {terms} SIGTERM, {stops} SIGSTOP", flush=True)
    counts = [f"--kills={kills}", f"--terms={terms}", f"--stops={stops}", f"--folder={folder}"]
    program = [sys.executable, str(SCRIPTS / "chaos.py"), *counts, *flags]
    return subprocess.run(program, check=False).returncode == 0


def _poisoned(folder: Path) -> list[str]:
    """Flags for digits with one image of NaNs.

    Each epoch of 23 batches diverges once, so commits must be closer together than an epoch.
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
    """A command prefix that runs another command as if on a host of this name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]


def _wait(moment: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not moment():
        if time.monotonic() > end:
            raise TimeoutError(moment)
        time.sleep(0.05)


ATTACKS = {
    each.__name__: each
    for each in (params, moved, nan, clocks, hosts, streams, ports, hostile, chaos)
}


def main() -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--only", default=",".join(ATTACKS), help=", ".join(ATTACKS))
    parser.add_argument("--cifar", type=Path, help="the folder of train_10k.npz and test_2k.npz")
    flags = parser.parse_args()
    held = {}
    for name in flags.only.split(","):
        folder = Path(tempfile.mkdtemp(prefix=f"attack-{name}-"))
        held[name] = ATTACKS[name](folder, flags.cifar)
        print(f"{name}: {'held off' if held[name] else f'NOT held off, see {folder}'}", flush=True)
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
