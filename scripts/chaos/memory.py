"""Takes the memory away from a run, while it trains, saves or evaluates, and restarts it.

    python -m scripts.chaos memory --points=30 --seed=0

A limit for the address space (RLIMIT_AS) makes the next allocations fail. A limit for the memory
(cgroup) makes the kernel kill the process. What was saved before must be intact, the next attempt
must report that the last one ended, and the result must equal that of an undisturbed run.

Needs root, and `mount -t cgroup -o memory` or a version 2 hierarchy for the second kind.
"""

import argparse
import collections
import contextlib
import functools
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.checkpoints import checkpoint_files, integrity
from runner.core import layout
from runner.studies import warm
from scripts.chaos import power, results
from scripts.chaos import run as interrupted

ADDRESSES, MEMORY = "address space", "memory"
PHASES = ("training", "saving", "evaluation")
STEPS = 12000
FLAGS = [
    "--mode=train_and_eval",
    "--gin_file=digits.gin",
    f"--gin.TrainerConfig.train_steps={STEPS}",
    "--gin.TrainerConfig.validation_interval=400",
    "--gin.TrainerConfig.checkpoint_interval=200",
    "--gin.TrainerConfig.summary_interval=20",
]
SPARE = 4 << 20  # bytes that a process may still get, at most
PATIENCE = 60.0  # seconds until a process must have noticed
ENDED = (-9, -6, -11, 1)  # killed, or ended after a failed allocation
HEADER = "| limit | phase | attempts | exit codes | problems |"
CGROUPS = (  # the directory, the file of the limit, the file of the processes
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "tasks"),
    (Path("/sys/fs/cgroup"), "memory.max", "cgroup.procs"),
)


def memory(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Trains with and without failing allocations. Returns the problems."""
    warm.preload(power.MODULES)
    once, taken = flags.folder / "once", flags.folder / "taken"
    power.start(FLAGS, once, flags.folder / "once.log").end(grace=300)
    draw = random.Random(flags.seed)
    codes: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    problems: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    last: int | None = 0
    life = interrupted.Life(STEPS, 400, 0.0, 0.0, 0.0)
    with _group() as group:
        kinds = [ADDRESSES, MEMORY] if group else [ADDRESSES]
        for number in range(flags.points):
            limit, phase = kinds[number % len(kinds)], PHASES[number // len(kinds) % len(PHASES)]
            step = STEPS * (number + draw.random()) / (flags.points + 1)
            log = flags.folder / f"{number}.log"
            child = power.start(FLAGS, taken, log)
            watched = interrupted.Watched(taken, life)
            aims = {"training": watched.trains, "saving": watched.saves}
            _await(child, watched, step, aims.get(phase, watched.evaluates))
            known = _rows(taken)
            if child.code is None:
                spare = draw.randrange(SPARE)
                take = group if group and limit == MEMORY else _limit_addresses
                take(child.pid, spare)
            code = child.wait(PATIENCE)
            child.end()
            codes[limit, phase].append(code if code is not None else 0)
            problems[limit, phase] += _damage(taken, known)
            if code not in (0, *ENDED):  # 0: it came through
                problems[limit, phase].append(f"{number}: exit code {code}")
            if last and "previous attempt" not in log.read_text():
                problems[limit, phase].append(f"{number}: does not report the last attempt")
            last = code
    end = power.start(FLAGS, taken, flags.folder / "last.log")
    wrong = [f"{limit}, {phase}: {each}" for (limit, phase), p in problems.items() for each in p]
    if code := end.end(grace=300):
        wrong.append(f"the last attempt ended with {code}")
    print(HEADER, "|---|---|---:|---|---:|", sep="\n")
    for (limit, phase), found in codes.items():
        shown = ", ".join(f"{code}: {n}" for code, n in collections.Counter(found).items())
        count = len(problems[limit, phase])
        print(f"| {limit} | {phase} | {len(found)} | {shown} | {count} |", flush=True)
    return wrong + results.differences(once, taken)


def _await(
    child: warm.Fork, watched: interrupted.Watched, step: float, aim: Callable[[], bool]
) -> None:
    """Waits until a run has reached a step and a phase."""
    child.wait_until(lambda: watched.trains() and watched.step() >= step and aim())


def _limit_addresses(pid: int, spare: int) -> None:
    """Lets a process get `spare` more bytes of addresses."""
    status = Path(f"/proc/{pid}/status").read_text()
    size = int(status.partition("VmSize:")[2].split()[0]) << 10
    resource.prlimit(pid, resource.RLIMIT_AS, (size + spare, size + spare))


@contextlib.contextmanager
def _group() -> Iterator[Callable[[int, int], None] | None]:
    """Yields a function that lets a process use `spare` more bytes of memory, or None."""
    for folder, limit, processes in CGROUPS:
        group = folder / "runner-chaos"
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
        if (group / limit).exists():
            try:
                yield functools.partial(_limit_memory, group / limit, group / processes)
            finally:
                group.rmdir()
            return
    yield None


def _limit_memory(limit: Path, processes: Path, pid: int, spare: int) -> None:
    limit.write_text(str(max(spare, 1 << 20)))
    processes.write_text(str(pid))


def _rows(folder: Path) -> bytes:
    """Returns the complete rows of evaluations."""
    history = folder / layout.HISTORY
    content = history.read_bytes() if history.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def _damage(folder: Path, before: bytes) -> list[str]:
    """Returns what was saved and is not intact."""
    newest = checkpoint_files.committed(folder)[-1:]
    wrong = [f"{path.name}: {damage}" for path in newest if (damage := integrity.damage(path))]
    return wrong if _rows(folder).startswith(before) else [*wrong, "rows are lost"]
