"""What faults cost a run on two workers of this machine.

python scripts/benchmark_restarts.py [--rounds=3]

A worker killed -9: how long until training goes on, and what that consists of. SIGTERM to all: how
long until all is saved and the command has ended.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.core import layout, signals
from runner.run_folder import status

COMMAND = (
    *(sys.executable, "-m", "runner", "--workers=2", "--mode=train", "--gin_file=digits.gin"),
    "--gin.TrainerConfig.train_steps=1000000",
    "--gin.TrainerConfig.checkpoint_interval=500",
    "--gin.RunConfig.system_seconds=0",
)
_DEADLINE = 300.0


def main() -> None:
    """Prints the figures of each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--rounds", type=int, default=3)
    for _ in range(parser.parse_args().rounds):
        print(json.dumps(after_a_kill()), flush=True)
        print(json.dumps(stopped()), flush=True)


def after_a_kill() -> dict[str, float]:
    """Seconds from SIGKILL to a worker until a new step: in all, and until each thing on the way.

    Returns:
        `noticed` by the supervisor; `others ended`; `formed`: all have found each other again;
        `trains`: a step of the new start is done.
    """
    with _training() as (supervisor, folder):
        workers = folder / layout.WORKERS
        victim = json.loads((workers / "1.json").read_text())["pid"]
        chief = json.loads((workers / "0.json").read_text())["pid"]
        at = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        found = {
            "noticed": _until(lambda: (workers / "generation-1.end.json").exists()),
            "others ended": _until(lambda: not Path(f"/proc/{chief}").exists()),
            "formed": _until(lambda: _formed(workers, chief)),
            "trains": _until(lambda: _trains(workers, chief)),
        }
        _end(supervisor)
    return {f"killed -9: {name}": when - at for name, when in found.items()}


def stopped() -> dict[str, float]:
    """Seconds from SIGTERM to all processes until all have saved, and until the command ends."""
    with _training() as (supervisor, folder):
        workers = folder / layout.WORKERS
        pids = [json.loads((workers / f"{n}.json").read_text())["pid"] for n in (0, 1)]
        before = {path.name for path in folder.glob("ckpt-*.index")}
        at = time.monotonic()
        for pid in (supervisor.pid, *pids):
            os.kill(pid, signal.SIGTERM)
        saved = _until(lambda: {path.name for path in folder.glob("ckpt-*.index")} - before)
        code = supervisor.wait(_DEADLINE)
        ended = time.monotonic()
        if code != 128 + signal.SIGTERM or status.read(folder).state != "preempted":
            sys.exit(f"exit code {code}, {status.read(folder)}")
    return {"SIGTERM to all: saved": saved - at, "SIGTERM to all: ended": ended - at}


@contextlib.contextmanager
def _training() -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A supervisor whose workers train."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        process = subprocess.Popen(
            [*COMMAND, f"--model_dir={folder}"],
            env={**os.environ, signals.ENDS_WITH_STDIN: "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with process:
            _until(lambda: _trains(folder / layout.WORKERS, 0) and status.reached(folder) > 1000)
            try:
                yield process, folder
            finally:
                process.kill()


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    supervisor.terminate()
    supervisor.wait(_DEADLINE)


def _shows(workers: Path, but: int) -> dict[str, object]:
    """The signs of life of a chief that is not process `but`."""
    with contextlib.suppress(OSError, ValueError):
        said: dict[str, object] = json.loads((workers / "0.json").read_text())
        return said if said["pid"] != but else {}
    return {}


def _formed(workers: Path, but: int) -> bool:
    return bool(_shows(workers, but).get("formed"))


def _trains(workers: Path, but: int) -> bool:
    return _shows(workers, but).get("step") is not None


def _until(true: Callable[[], object]) -> float:
    """Waits until something is true; the time then."""
    end = time.monotonic() + _DEADLINE
    while not true():
        if time.monotonic() > end:
            sys.exit("it never came")
        time.sleep(0.005)
    return time.monotonic()


if __name__ == "__main__":
    main()
