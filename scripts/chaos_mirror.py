"""Kills a run in a bucket again and again, on two machines in turn, and cuts its way to the bucket.

    python scripts/chaos_mirror.py --faults=20 [--gin_file=digits_cnn.gin] [--seed=0]
        [--gin.TrainerConfig.train_steps=2000]

The bucket is on this machine; a machine is a cache folder. The run is killed (SIGKILL) in its first
seconds or at a random step, stopped (SIGTERM), suspended until another machine has taken over,
loses the bucket in mid-upload for a while and is stopped afterwards, or is killed while the bucket
is slow. The next start may be on either machine; that of another machine waits until the heartbeat
has run out, for which a minute is made two seconds here.

The exit code is 0 only if the run that the bucket ends up with differs in no bit from one that was
not disturbed, and whoever was taken over wrote nothing.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import buckets

import s3_server
from runner.storage import bucket, fetching, urls
from runner.verification import comparison

IMPATIENT = """
from runner.storage import lease
lease.PATIENCE_SECONDS, lease.BEAT_SECONDS = 2.0, 0.5
from runner.main import console
console()
"""
FAULTS = ("start", "kill", "term", "suspend", "cut", "slow")
OFTEN = [
    "--gin.TrainerConfig.steps_per_loop=10",
    *(f"--gin.TrainerConfig.{each}_interval=100" for each in ("checkpoint", "validation")),
]
MACHINES = ("a", "b")


def main() -> None:
    """Runs once undisturbed and once disturbed, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gin_file", default="digits_cnn.gin")
    given, more = parser.parse_known_args()
    draw = random.Random(given.seed)
    with s3_server.running() as server, tempfile.TemporaryDirectory() as made:
        way = buckets.Way(int(server.environment["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        os.environ.update(s3_server.environment(way.port))
        place, url = Path(made), f"s3://{server.bucket}/run"
        flags = ["--mode=train_and_eval", f"--gin_file={given.gin_file}", *OFTEN, *more]
        once = _start(flags, place / "once", place, "once")
        assert once.wait() == 0, "the undisturbed run failed"
        steps = _step(place / "once")
        wrong = _disturb(flags, url, place, way, draw, steps, given.faults)
        end = _start(flags, url, place, draw.choice(MACHINES))
        wrong += [f"the last start ended with {end.returncode}"] if end.wait() else []
        found = place / "found"
        fetching.Replica(bucket.Bucket(url), found).bring()
        parts = comparison.compare(place / "once", found)
        print(comparison.render(parts))
        wrong += [f"{part.kind}: {part.differing} differ" for part in parts if part.differences]
    print("\n".join(wrong) or f"{given.faults} faults: nothing differs")
    sys.exit(bool(wrong))


def _disturb(
    flags: list[str],
    url: str,
    place: Path,
    way: buckets.Way,
    draw: random.Random,
    steps: int,
    faults: int,
) -> list[str]:
    """Starts and disturbs the run; what went wrong."""
    wrong: list[str] = []
    suspended: list[tuple[str, subprocess.Popen[bytes]]] = []
    for number in range(faults):
        fault, machine = draw.choice(FAULTS), draw.choice(MACHINES)
        if suspended:  # its folder is locked, and another machine is to take over
            fault = draw.choice(("kill", "term", "cut", "slow"))
            machine = next(each for each in MACHINES if each != suspended[-1][0])
        started = _start(flags, url, place, machine)
        if fault == "start":
            time.sleep(draw.uniform(0, 8))
            started.kill()
            print(f"{number:3} start    on {machine}: {started.wait()}", flush=True)
            continue
        at = steps * (number + draw.random()) / (faults + 1)
        reached = _reach(started, place, machine, url, at)
        print(f"{number:3} {fault:8} on {machine} at step {reached:,} of {steps:,}", flush=True)
        if suspended:
            wrong += _wake(suspended.pop()[1])
        if started.poll() is not None:
            if started.returncode:
                wrong.append(f"{number}: ended with {started.returncode} by itself")
            continue
        if fault == "suspend":
            started.send_signal(signal.SIGSTOP)
            suspended.append((machine, started))
            continue
        code = _fault(fault, started, way, draw)
        if code not in (-signal.SIGKILL, 143, 0):
            wrong.append(f"{number}: {fault} ended with {code}")
    for _, each in suspended:
        each.kill()
        each.wait()
    return wrong


def _fault(
    fault: str, process: "subprocess.Popen[bytes]", way: buckets.Way, draw: random.Random
) -> int:
    """Disturbs a process until it has ended; its exit code."""
    if fault == "cut":
        way.after = draw.randrange(200_000)  # bytes from now
        time.sleep(draw.uniform(0.5, 4))
        way.mend()
        process.send_signal(signal.SIGTERM)
    elif fault == "slow":
        way.pause = draw.uniform(0.05, 0.5)
        time.sleep(draw.uniform(0.5, 4))
        process.kill()
        process.wait()
        way.mend()
    else:
        process.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
    return process.wait()


def _wake(process: "subprocess.Popen[bytes]") -> list[str]:
    """Lets a process go on that was taken over."""
    process.send_signal(signal.SIGCONT)
    code = process.wait()
    return [] if code == 1 else [f"one that was taken over ended with {code}"]


def _start(
    flags: list[str], model_dir: Path | str, place: Path, machine: str
) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", IMPATIENT, *flags, f"--model_dir={model_dir}"]
    with (place / f"{machine}.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, "XDG_CACHE_HOME": str(place / machine)},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def _reach(
    process: "subprocess.Popen[bytes]", place: Path, machine: str, url: str, step: float
) -> int:
    """Waits until this start has done a step, or has ended; how far it is."""
    folder = place / machine / "runner" / "buckets" / urls.folder_name(url)
    before, until = _written(folder), time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if _written(folder) != before and _step(folder) >= step:
            break
        time.sleep(0.02)
    return _step(folder)


def _written(folder: Path) -> int:
    """When a run last noted its step; 0: never."""
    with contextlib.suppress(OSError):
        return (folder / "step.txt").stat().st_mtime_ns
    return 0


def _step(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "step.txt").read_text())
    return 0


if __name__ == "__main__":
    main()
