"""Cuts the power while programs run, starts them again on what the disk has kept, and compares.

    python -m scripts.chaos power --cuts=1000 --file_systems=ext4,xfs,btrfs --seed=0
    python -m scripts.chaos power --names=run,study --cuts=20

Each scenario runs once on a disk that records every write (`disk.py`). Afterwards the power is cut
at many moments of the recording: just before and after flushes, and at random writes. For each cut,
the same commands start again on what the disk has kept. The result must equal that of an
undisturbed run, and what a program has announced before the cut must be on the disk.

- `run`: training with evaluations, averages and best checkpoints.
- `evaluator`: training with one checkpoint, and a second process that evaluates each.
- `study`: a study of two trials.
- `mirror`: a run in a bucket. Its local copy is cut again and again, also while it is resumed.

In half of the recordings, another program flushes a file of its own all the time. A file system
then makes the names of files durable whose contents are not.

Needs root and the packages that `disk.py` lists, for `mirror` also moto.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import math
import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing import event_accumulator

from runner.core import files, layout
from runner.history import records
from runner.run_directory.verification import comparison, tensors
from runner.storage import bucket as remote
from runner.storage import fetching
from runner.studies import warm
from scripts import processes, s3_server
from scripts.chaos import disk
from scripts.chaos import run as interrupted

MODULES = (
    "scripts.chaos.impatient",
    "runner.runs.train",
    "runner.runs.evaluator_run",
    "tasks.image_classification",
)
MIRROR = "mirror"
ANNOUNCED = re.compile(r"(?:evaluated|(?P<trial>\S+): done at) step (?P<step>\d+)\b")
SHORT = [
    "--gin_file=digits.gin",
    "--gin.TrainerConfig.train_steps=60",
    "--gin.TrainerConfig.validation_interval=20",
    "--gin.TrainerConfig.checkpoint_interval=10",
    "--gin.TrainerConfig.summary_interval=5",
    "--gin_params=OptimizationConfig.ema=@EMAConfig()",
]
ONE_KEPT = "--gin.TrainerConfig.max_to_keep=1"
EVERY = "--gin.EvaluatorConfig.policy='every'"
RATES = ["--vary=CosineLrConfig.initial_learning_rate=0.01,0.1", "--seeds=1"]
TRIALS = ("0000-initial_learning_rate=0.01,seed=0", "0001-initial_learning_rate=0.1,seed=0")
SHARES = {"run": 7, "evaluator": 1, "study": 1, MIRROR: 1}  # of the cuts: the others take longer
FASTEST = 0.005  # seconds between two looks at a log
HEADER = "| scenario | file system | cuts | rows announced | lost | bits | rows | problems |"


class Said(NamedTuple):
    """A line that a program had printed at a time."""

    time: float  # of time.monotonic, not before the line was printed
    place: Path  # the directory, relative to the scenario's
    step: int


class Scenario(NamedTuple):
    """Programs that write in one directory. All other directories are relative to it.

    Attributes:
        commands: The flags of each program, without the directory.
        announced: The directory with the evaluations that each program announces in its log.
            A study announces the ends of its trials.
        runs: The directories of runs.
        evaluators: The directories of evaluators.
        tables: Files that a study makes.
    """

    commands: Sequence[Sequence[str]]
    announced: Sequence[str] = (".",)
    runs: Sequence[str] = (".",)
    evaluators: Sequence[str] = ()
    tables: Sequence[str] = ()


EVALUATOR = "eval-continuous"
SCENARIOS = {
    "run": Scenario([["--mode=train_and_eval", *SHORT]]),
    "evaluator": Scenario(
        [["--mode=train", *SHORT, ONE_KEPT], ["--mode=continuous_eval", *SHORT, ONE_KEPT, EVERY]],
        announced=(".", EVALUATOR),
        evaluators=(EVALUATOR,),
    ),
    "study": Scenario(
        [["--mode=study", *SHORT, *RATES]],
        runs=tuple(f"trials/{name}" for name in TRIALS),
        tables=(layout.STUDY, "trials.csv"),
    ),
}


class Counts:
    """What happened to the cuts of a scenario."""

    def __init__(self) -> None:
        self.cuts = self.announced = self.lost = self.bits = self.rows = 0
        self.problems: list[str] = []

    def row(self, name: str, kind: str) -> str:
        """Returns a row of the table."""
        cells = (name, kind, self.cuts, self.announced, self.lost, self.bits, self.rows)
        return f"| {' | '.join(map(str, cells))} | {len(self.problems)} |"


def power(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Cuts the power of each scenario on each file system. Returns the problems."""
    warm.preload(MODULES)
    names = flags.names.split(",") if flags.names else list(SHARES)
    kinds = flags.file_systems.split(",")
    cuts = flags.cuts / len(kinds) / sum(SHARES[name] for name in names)
    wrong: list[str] = []
    rows = [HEADER, "|---|---|---:|---:|---:|---:|---:|---:|"]
    for name in names:
        once = flags.folder / name
        started(SCENARIOS["run" if name == MIRROR else name], once, once.with_suffix(".log"))
        for kind in kinds:
            share = math.ceil(cuts * SHARES[name])
            draw = random.Random(f"{flags.seed} {name} {kind}")
            with tempfile.TemporaryDirectory(prefix="power-", dir=flags.disks) as folder:
                if name == MIRROR:
                    counts = _mirror(kind, once, Path(folder), share, draw)
                else:
                    counts = _branches(SCENARIOS[name], kind, once, Path(folder), share, draw)
            rows.append(counts.row(name, kind))
            print(rows[-1], flush=True)
            wrong += [f"{name}, {kind}: {problem}" for problem in counts.problems]
    print("", *rows, sep="\n", flush=True)
    return wrong


def started(scenario: Scenario, folder: Path, log: Path) -> list[int]:
    """Starts the programs of a scenario in a directory. Returns the exit codes at their end."""
    children = [start(flags, folder, numbered(log, at)) for at, flags in _all(scenario)]
    return [child.end(grace=300) for child in children]


def start(flags: Sequence[str], folder: Path | str, log: Path, **environment: str) -> warm.Fork:
    """Starts a program, whose output goes to `log`, in a fork."""
    command = processes.runner("", *flags, f"--model_dir={folder}")
    return warm.Fork(command, log=log, environment=environment)


def _all(scenario: Scenario) -> Iterator[tuple[int, Sequence[str]]]:
    return iter(enumerate(scenario.commands))


def numbered(log: Path, number: int) -> Path:
    """Returns the log of one of a scenario's programs."""
    return log.with_name(f"{log.name}.{number}")


def _branches(
    scenario: Scenario, kind: str, once: Path, folder: Path, cuts: int, draw: random.Random
) -> Counts:
    """Records a scenario, twice, and cuts the recordings. Each cut starts from the recording."""
    counts = Counts()
    for flushes in (False, True):
        place = folder / f"{flushes}"
        place.mkdir()
        _branch(scenario, kind, once, place, flushes, max(cuts // 2, 1), draw, counts)
        shutil.rmtree(place)
    return counts


def _branch(
    scenario: Scenario,
    kind: str,
    once: Path,
    folder: Path,
    flushes: bool,
    cuts: int,
    draw: random.Random,
    counts: Counts,
) -> None:
    with disk.Disk(folder, kind) as recorded:
        with _flushing(recorded.path) if flushes else contextlib.nullcontext():
            said, codes = _recorded(scenario, recorded.path / "it", folder)
        ended = time.monotonic()
    if any(codes):
        counts.problems.append(f"the recorded programs ended with {codes}")
    end = sum(1 for write in recorded.writes if write.time < ended)
    moments = _moments(recorded.writes[:end], cuts, draw)
    seeds = [draw.random() for _ in moments]

    def survive(at: int, seed: float) -> None:
        one = random.Random(seed)
        loss = one.choice(disk.LOSSES)
        shown = f"cut {at} of {end}, {loss} lost, seed {seed}"
        known = [line for line in said if line.time < recorded.writes[at - 1].time]
        with recorded.after_cut(at, loss, one) as path:
            log = folder / f"{at}-{seed}.log"
            _survive(scenario, once, path / "it", known, log, shown, counts)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(survive, moments, seeds))


def _recorded(scenario: Scenario, folder: Path, logs: Path) -> tuple[list[Said], list[int]]:
    """Runs a scenario. Returns what its programs announced, and their exit codes."""
    said: list[Said] = []
    log = logs / "recorded.log"
    children = [start(flags, folder, numbered(log, at)) for at, flags in _all(scenario)]
    seen = [0] * len(children)
    while True:
        running = any(child.code is None for child in children)
        for at, place in enumerate(scenario.announced):
            text = numbered(log, at).read_text()
            now = time.monotonic()  # after the reading: it was printed before
            lines = list(ANNOUNCED.finditer(text[: text.rfind("\n") + 1]))
            for line in lines[seen[at] :]:
                trial = line["trial"] and Path(layout.TRIALS, line["trial"])
                said.append(Said(now, trial or Path(place), int(line["step"])))
            seen[at] = len(lines)
        if not running:
            return said, [child.end() for child in children]
        time.sleep(FASTEST)


def _moments(writes: Sequence[disk.Write], cuts: int, draw: random.Random) -> list[int]:
    """Returns positions for cuts: two thirds next to flushes, the others anywhere."""
    flushes = [at for at, write in enumerate(writes) if write.is_flush]
    near = [at + after for at in flushes for after in (0, 1) if at + after]
    chosen = draw.sample(near, min(len(near), 2 * cuts // 3))
    return sorted(chosen + draw.choices(range(1, len(writes) + 1), k=cuts - len(chosen)))


def _survive(
    scenario: Scenario,
    once: Path,
    folder: Path,
    known: Sequence[Said],
    log: Path,
    shown: str,
    counts: Counts,
) -> None:
    """Starts the programs after a cut, and counts what differs."""
    lost = [line for line in known if line.step not in _evaluated(folder / line.place)]
    problems = [f"{line.place}: step {line.step} was announced and is lost" for line in lost]
    codes = started(scenario, folder, log)
    if any(codes):
        problems.append(f"exit codes {codes}")
        for at, code in enumerate(codes):
            if code:
                problems += numbered(log, at).read_text().splitlines()[-2:-1]
    else:
        parts, more = compared(scenario, once, folder)
        counts.bits += sum(part.bits for part in parts)
        counts.rows += sum(part.missing for part in parts)
        problems += [f"{part.kind}: {part.differences[0]}" for part in parts if part.differences]
        problems += more
    counts.cuts += 1
    counts.announced += len(known)
    counts.lost += len(lost)
    if problems:
        counts.problems.append(f"{shown}: {'; '.join(problems)}")
        print(counts.problems[-1], flush=True)


def _evaluated(folder: Path) -> set[int]:
    """Returns the steps that the history in a directory has, without a cut-off last line."""
    try:
        return {int(row["step"]) for row in files.read_json_lines(folder / layout.HISTORY)}
    except ValueError:
        return set()


@contextlib.contextmanager
def _flushing(folder: Path) -> Iterator[None]:
    """Flushes a file in `folder` all the time, in the block."""
    ends = threading.Event()

    def flush() -> None:
        with (folder / "other").open("wb", buffering=0) as file:
            while not ends.wait(0.02):
                file.write(b"x")
                os.fsync(file.fileno())

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def compared(scenario: Scenario, once: Path, cut: Path) -> tuple[list[tensors.Part], list[str]]:
    """Compares everything that a scenario leaves. Returns the parts, and differences of files."""
    parts, wrong = [], []
    for name in scenario.runs:
        parts += comparison.compare(once / name, cut / name)
        wrong += interrupted.others(once / name, cut / name)
        one, other = _scalars(once / name), _scalars(cut / name)
        wrong += [
            f"{name}: TensorBoard's point {point} differs" for point in sorted(one ^ other)[:1]
        ]
    for name in scenario.evaluators:
        rows = [files.read_json_lines(folder / name / layout.HISTORY) for folder in (once, cut)]
        parts.append(comparison.compare_rows(name, *rows))
    wrong += [f"{name} differs" for name in scenario.tables if not _same(once / name, cut / name)]
    return parts, wrong


def _scalars(run: Path) -> set[tuple[str, int, float]]:
    """Returns what TensorBoard shows of a run: tags, steps and values, without speeds."""
    found = set()
    for part in ("train", "validation"):
        events = event_accumulator.EventAccumulator(str(run / part)).Reload()
        for tag in events.Tags()["scalars"]:
            if tag not in records.PACE:
                found |= {(f"{part}/{tag}", e.step, e.value) for e in events.Scalars(tag)}
    return found


def _same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def _mirror(kind: str, once: Path, folder: Path, cuts: int, draw: random.Random) -> Counts:
    """Cuts a run in a bucket again and again until it has ended, and begins the next one."""
    counts = Counts()
    with s3_server.running() as server:
        os.environ.update(server.environment)
        runs = 0
        while counts.cuts < cuts:
            runs += 1
            place, url = folder / f"{runs}", f"s3://{server.bucket}/{kind}-{runs}"
            place.mkdir()
            problems = _cut_until_done(kind, place, url, cuts, draw, counts)
            if not problems:
                fetching.Replica(remote.Bucket(url), place / "copy").bring()
                parts, problems = compared(SCENARIOS["run"], once, place / "copy")
                counts.bits += sum(part.bits for part in parts)
                counts.rows += sum(part.missing for part in parts)
                problems += [f"{p.kind}: {p.differences[0]}" for p in parts if p.differences]
            counts.problems += [f"run {runs}: {problem}" for problem in problems]
            shutil.rmtree(place)
    return counts


def _cut_until_done(
    kind: str, folder: Path, url: str, cuts: int, draw: random.Random, counts: Counts
) -> list[str]:
    """Starts a run in a bucket until it ends, and cuts the power of its machine after a while."""
    image = None
    for attempt in itertools.count():
        here = folder / f"{attempt}"
        here.mkdir()
        log = here / "log"
        with disk.Disk(here, kind, image) as recorded:
            child = start(
                ["--mode=train_and_eval", *SHORT], url, log, XDG_CACHE_HOME=str(recorded.path)
            )
            last = counts.cuts >= cuts
            code = child.wait(None if last else draw.uniform(0.3, 4.0))
            child.kill()
            child.end()
            position = recorded.position
        if code is not None:
            return [f"exit code {code}", *log.read_text().splitlines()[-3:]] if code else []
        counts.cuts += 1
        image = here / "cut.img"
        recorded.cut(image, position, draw.choice(disk.LOSSES), draw)
    raise AssertionError
