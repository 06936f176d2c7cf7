"""Kills a run in a bucket again and again, on two machines in turn, and cuts its way to the bucket.

    python scripts/chaos_mirror.py --faults=20 [--gin_file=digits_cnn.gin] [--seed=0]
        [--gin.TrainerConfig.train_steps=2000]

The bucket is on this machine; a machine is a cache folder. At a random step the run is killed
(SIGKILL), stopped (SIGTERM), suspended until another machine has taken over, or loses the bucket
for a while. The next start may be on either machine; that of another machine waits until the
heartbeat has run out, for which a minute is made two seconds here.

The exit code is 0 only if the run that the bucket ends up with differs in no bit from one that was
not disturbed, and whoever was taken over wrote nothing.
"""

import argparse
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
FAULTS = ("kill", "term", "suspend", "cut")
MACHINES = ("a", "b")


def main() -> None:
    """Runs once undisturbed and once disturbed, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gin_file", default="digits_cnn.gin")
    given, more = parser.parse_known_args()
    draw = random.Random(given.seed)
    with s3_server.running() as (environment, name), tempfile.TemporaryDirectory() as made:
        way = buckets.Way(int(environment["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        os.environ.update(s3_server.environment(way.port))
        place, url = Path(made), f"s3://{name}/run"
        flags = ["--mode=train_and_eval", f"--gin_file={given.gin_file}", *more]
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
        if suspended:  # its folder is locked
            machine = next(each for each in MACHINES if each != suspended[-1][0])
        started = _start(flags, url, place, machine)
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
        elif fault == "cut":
            way.cut()
            time.sleep(draw.uniform(0.5, 3))
            way.mend()
            started.kill()
            started.wait()
        else:
            started.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
            if (code := started.wait()) not in (-signal.SIGKILL, 143, 0):
                wrong.append(f"{number}: {fault} ended with {code}")
    for _, each in suspended:
        each.kill()
        each.wait()
    return wrong


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
    """Waits until the run has done a step, or has ended; how far it is."""
    folder = place / machine / "runner" / "buckets" / urls.folder_name(url)
    until = time.monotonic() + 120
    while process.poll() is None and _step(folder) < step and time.monotonic() < until:
        time.sleep(0.02)
    return _step(folder)


def _step(folder: Path) -> int:
    try:
        return int((folder / "step.txt").read_text())
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    main()
