"""Measures how long faults delay a supervised run on one or two workers of this machine."""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runner.core import layout
from runner.run_directory import status
from runner.run_directory.run import reached
from runner.run_directory.verification import child_run
from scripts import processes
from scripts.bench import rounds
from scripts.bench.comparison import Comparison

_FLAGS = (
    "--gin_file=digits.gin",
    "--gin.TrainerConfig.train_steps=1000000",
    "--gin.TrainerConfig.checkpoint_interval=500",
    "--gin.RunConfig.system_seconds=0",
)


_WARM_SECONDS = 10  # the supervisor imports TensorFlow while the first workers train


def restarts(options: argparse.Namespace) -> Iterator[Comparison]:
    """Measures how soon a killed worker trains again, and how soon SIGTERM ends both workers."""
    for what, measure in (
        (
            "the only worker killed -9, until it trains again, at most 2.5",
            _after_its_kill,
        ),
        ("one of two killed -9, until it trains again, at most 5", _after_a_kill),
        ("SIGTERM to all of two workers, until saved, at most 3", _stopped),
    ):
        seconds = rounds.transposed([measure() for _ in range(options.repeats)])
        yield Comparison(what, "s", seconds)


def _after_its_kill() -> dict[str, float]:
    """Kills the worker of `--workers=1`. Returns the seconds until a new step."""
    with _training(1) as (supervisor, folder):
        workers = folder / layout.WORKERS
        victim = json.loads((workers / "0.json").read_text())["pid"]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        trains = processes.until(lambda: _trains(workers, victim))
        supervisor.interrupt(signal.SIGTERM)
    return {"trains": trains - killed}


def _after_a_kill() -> dict[str, float]:
    """Kills a worker. Returns the seconds until a new step, and until each event before it."""
    with _training(2) as (supervisor, folder):
        workers = folder / layout.WORKERS
        victim = json.loads((workers / "1.json").read_text())["pid"]
        chief = json.loads((workers / "0.json").read_text())["pid"]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        ended = workers / "generation-1.end.json"
        events = {
            "noticed": processes.until(ended.exists),
            "others ended": processes.until(lambda: not Path(f"/proc/{chief}").exists()),
            "formed": processes.until(lambda: _heartbeat(workers, chief).get("formed")),
            "trains": processes.until(lambda: _trains(workers, chief)),
        }
        supervisor.interrupt(signal.SIGTERM)
    return {name: seconds - killed for name, seconds in events.items()}


def _stopped() -> dict[str, float]:
    """Sends SIGTERM. Returns the seconds until all workers have saved, and until the end."""
    with _training(2) as (supervisor, folder):
        workers = folder / layout.WORKERS
        pids = [json.loads((workers / f"{n}.json").read_text())["pid"] for n in (0, 1)]
        before = set(folder.glob("ckpt-*.index"))
        stopped = time.monotonic()
        for pid in (supervisor.chief.pid, *pids):
            os.kill(pid, signal.SIGTERM)
        saved = processes.until(lambda: set(folder.glob("ckpt-*.index")) - before)
        ended = processes.until(lambda: supervisor.chief.code is not None)
        state = status.read(folder)
        if not state or state.state != "preempted":
            sys.exit(f"exit code {supervisor.chief.code}, {state}")
    return {"saved": saved - stopped, "ended": ended - stopped}


@contextlib.contextmanager
def _training(count: int) -> Iterator[tuple[child_run.ChildRun, Path]]:
    """Starts a supervisor, and waits until its workers train."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        with child_run.ChildRun(
            processes.runner("train", f"--workers={count}", *_FLAGS), folder
        ) as supervisor:
            workers = folder / layout.WORKERS
            processes.until(lambda: _trains(workers, 0) and reached(folder) > 1000)
            time.sleep(_WARM_SECONDS)
            yield supervisor, folder


def _heartbeat(workers: Path, previous: int) -> dict[str, object]:
    """Waits for the heartbeat of a chief other than the process `previous`."""
    with contextlib.suppress(OSError, ValueError):
        heartbeat: dict[str, object] = json.loads((workers / "0.json").read_text())
        return heartbeat if heartbeat["pid"] != previous else {}
    return {}


def _trains(workers: Path, previous: int) -> bool:
    return _heartbeat(workers, previous).get("step") is not None
