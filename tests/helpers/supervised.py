"""Workers and supervisors without TensorFlow, as processes.

    python supervised.py supervise FOLDER 2..3 --steps=100 [--names=a,b,c --machine=1 --silence=1]

A worker finds the others through files, trains steps of a few milliseconds while all of them live,
and commits now and then, until `FOLDER/enough` is there or all steps are done. Without one of them
it hangs, whatever signal comes, as in a collective; five seconds after one is gone, it fails.
What it does otherwise stands in `FOLDER/orders/<index>`, or `<index>-of-<size>`: `exit 1`, `hang`,
for one start of it, or `always exit 1`.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from runner.core import signals
from runner.devices import worker_heartbeat
from runner.launch import bounds, gathering, round, rules, slots, supervisor

STEP_SECONDS = 0.01
COMMIT_EVERY = 10
FAILS_SECONDS = 5.0


def work(folder: Path, steps: int) -> int:
    signals.end_with_parent()
    worker_heartbeat.begin(seconds=0.1)
    if order := take_order(folder):
        if order == "exit 1":  # as a mistake in a task
            print("runner: in your code:\n    raise", file=sys.stderr)
            print(json.dumps({"status": "failed", "reason": f"was told to {order}"}))
        else:
            print(f"runner: was told to {order}", file=sys.stderr)
        if order.startswith("exit"):
            return int(order.split()[1])
        while True:  # hangs
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1)
    stops = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    signal.signal(signal.SIGINT, lambda number, _: stops.append(number))
    index, size, here = place(folder)
    (here / str(index)).write_text(str(os.getpid()))
    while len(pids := [each.read_text() for each in here.glob("[0-9]*")]) < size or "" in pids:
        if stops:
            return 128 + stops[0]
        time.sleep(STEP_SECONDS)
    worker_heartbeat.formed()
    return train(folder, steps, index, here, list(map(int, pids)), stops)


def take_order(folder: Path) -> str:
    config = json.loads(os.environ["TF_CONFIG"])
    index, size = config["task"]["index"], len(config["cluster"]["worker"])
    for path in (folder / "orders" / str(index), folder / "orders" / f"{index}-of-{size}"):
        if path.exists():
            order = path.read_text()
            if not order.startswith("always "):
                path.unlink()
            return order.removeprefix("always ")
    return ""


def place(folder: Path) -> tuple[int, int, Path]:
    config = json.loads(os.environ["TF_CONFIG"])
    hosts = config["cluster"]["worker"]
    here = folder / "here" / "-".join(host.rpartition(":")[2] for host in hosts)
    here.mkdir(parents=True, exist_ok=True)
    return config["task"]["index"], len(hosts), here


def train(folder, steps, index, here, pids, stops) -> int:
    saved, stop = folder / "checkpoint", here / "stop"
    step = int(saved.read_text()) if saved.exists() else 0
    while step < steps and not (folder / "enough").exists():
        waited = 0.0
        while not (all(map(lives, pids)) or (here / "done").exists() or stop.exists()):
            time.sleep(STEP_SECONDS)
            waited += STEP_SECONDS
            if waited > FAILS_SECONDS and any(map(is_gone, pids)):
                return 1
        if stops and not stop.exists():
            stop.write_text(str(stops[0]))
        if stop.exists() and (number := stop.read_text()):
            return leave(folder, index, step, 128 + int(number))
        time.sleep(STEP_SECONDS)
        step += 1
        worker_heartbeat.at(step, steps=1, seconds=STEP_SECONDS, waited=0.0)
        if index == 0:
            note(folder / "steps.log", f"{len(pids)} {step}")
        if index == 0 and step % COMMIT_EVERY == 0:
            saved.write_text(str(step))
    (here / "done").touch()
    return leave(folder, index, step, 0)


def leave(folder, index, step, code) -> int:
    if index == 0:
        (folder / "checkpoint").write_text(str(step))
        print(json.dumps({"status": "done" if code == 0 else "preempted", "step": step}))
    return code


def lives(pid: int) -> bool:
    return state(pid) not in "ZXT"


def is_gone(pid: int) -> bool:
    return state(pid) in "ZX"


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def note(path: Path, line: str) -> None:
    with path.open("a") as file:
        print(line, file=file)


def supervise(flags: argparse.Namespace) -> int:
    gathering._LAST_CALL_SECONDS = 0.5
    round._CRASH_GRACE_SECONDS = 0.3
    round._GRACE_SECONDS = 1000.0  # what ends sooner does so by itself
    round._SETTLE_SECONDS = 0.2
    round._STUCK_SECONDS = flags.silence
    supervisor._LOOK_SECONDS = 0.1
    rules.START_SECONDS = 0.0
    round._SILENT_SECONDS = flags.silence
    wanted = bounds.Bounds.parse(flags.workers)
    names = flags.names.split(",") if flags.names else [""]
    here = slots.Slots(1 if flags.names else wanted.most)
    command = [sys.executable, __file__, "work", str(flags.folder), f"--steps={flags.steps}"]
    plan = supervisor.Plan(command, flags.folder, wanted, here, names, flags.machine)
    with signals.served() as stop:
        try:
            return supervisor.supervise(plan, stop)
        except Exception as error:
            print(f"runner: {error}", file=sys.stderr)
            return getattr(error, "exit_code", 9)
        except signals.Interrupted as error:
            return error.exit_code


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("folder", type=Path)
    parser.add_argument("workers", nargs="?")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--names", default="")
    parser.add_argument("--machine", type=int, default=0)
    parser.add_argument("--silence", type=float, default=1000.0)
    flags = parser.parse_args()
    return work(flags.folder, flags.steps) if flags.what == "work" else supervise(flags)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
