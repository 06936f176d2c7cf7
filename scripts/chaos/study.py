"""Kills a study and its trials at random moments, and compares it with an undisturbed one.

    python -m scripts.chaos study --kills=20 --gin_file=digits.gin --jobs=2 --seeds=2 \
        --vary="CosineLrConfig.initial_learning_rate=log(1e-4, 1)" --trials=6 \
        --params_override=run.study.strategy=tpe

A kill hits one trial, or the study with all its trials, or the study alone. In the last case, the
trials end when their stdin closes. The script then repeats the command. It divides the steps of all
trials together into slices, one for each kill. Each kill waits for a random step in its slice, or
comes while the study is starting.

Trials, bits, rows and tables must be the same.
"""

import argparse
import collections
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from runner.core import layout
from runner.run_directory import claim_file
from runner.run_directory.run import is_held
from runner.run_directory.verification import child_run
from runner.studies import trial
from scripts import processes
from scripts.chaos import results

_AIMS = {"a trial": 3, "the study": 2, "the study and its trials": 2}
_START_SHARE = 0.2  # of kills, while the study starts
_START_SECONDS = 8.0
_TABLES = (layout.STUDY, "trials.csv")


class Study:
    """A study that is started again after each kill.

    Args:
        command: The command without the directory.
        folder: The study's directory.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = [*command, f"--model_dir={folder}"]
        self._folder = folder
        self._start()

    def _start(self) -> None:
        self._child = child_run.start(self._command, self._folder)
        self._began = time.monotonic()

    @property
    def steps(self) -> int:
        """The steps of all trials so far."""
        return sum(map(child_run.last_row, layout.trials(self._folder)))

    def wait_for(self, step: int, seconds: float) -> bool:
        """Waits until the trials have done `step` steps or, if `seconds` is set, for that time."""

        def reached() -> bool:
            if seconds:
                return time.monotonic() - self._began >= seconds
            return self.steps >= step

        return self._child.wait_until(reached)

    def kill(self, aim: str, chance: random.Random) -> str:
        """Kills the target. Returns what was hit."""
        running = self._running()
        if aim == "a trial" and running:
            number = chance.choice(sorted(running))
            os.kill(running[number], signal.SIGKILL)
            return f"trial {number}"
        self._child.send(signal.SIGKILL)
        hit = "the study"
        if aim == "the study and its trials":
            for process in running.values():
                os.kill(process, signal.SIGKILL)
            hit = f"the study and {len(running)} trials"
        self._child.wait()
        self._start()
        return hit

    def finish(self) -> None:
        """Waits for the end of the study."""
        with self._child:
            self._child.results()

    def _running(self) -> dict[int, int]:
        """Returns the processes of the running trials, by number."""
        pids = {}
        for folder in layout.trials(self._folder):
            if is_held(folder) and (seen := claim_file.look(folder / layout.CLAIM)):
                pids[int(folder.name[:4])] = seen.holder.pid
        return pids


def study(flags: argparse.Namespace, more: list[str]) -> list[str]:
    """Runs a study undisturbed and with kills. Returns the problems."""
    once, killed = flags.folder / "once", flags.folder / "killed"
    command = processes.runner("study", *more)
    print(f"undisturbed, in {once}:", flush=True)
    Study(command, once).finish()
    steps = sum(map(child_run.last_row, layout.trials(once)))
    print(f"  {len(trial.all_of(once))} trials, {steps:,} steps\nkilled, in {killed}:", flush=True)
    hits = strike(Study(command, killed), flags.kills, steps, random.Random(flags.seed))
    print(f"\n{hits.total()} kills: {', '.join(f'{n} of {what}' for what, n in hits.items())}\n")
    missed = flags.kills - hits.total()
    return differences(once, killed) + ([f"{missed} kills came too late"] if missed else [])


def strike(study: Study, kills: int, steps: int, chance: random.Random) -> collections.Counter[str]:
    """Kills at random moments, and lets the study end. Counts what was hit."""
    hits: collections.Counter[str] = collections.Counter()
    aims = chance.choices(list(_AIMS), list(_AIMS.values()), k=kills)
    for number, aim in enumerate(aims):
        at = int((number + chance.random()) * steps / kills)
        starting = chance.random() < _START_SHARE
        if not study.wait_for(at, _START_SECONDS * chance.random() if starting else 0.0):
            print("the study ended first", flush=True)
            break
        time.sleep(0.2 * chance.random())
        now, hit = study.steps, study.kill(aim, chance)
        hits[hit.rstrip("0123456789 ") if hit.startswith("trial") else aim] += 1
        print(f"{number + 1:>4}  at step {now:>7,}  {hit}", flush=True)
    study.finish()
    return hits


def differences(once: Path, killed: Path) -> list[str]:
    """Returns the differences between two studies."""
    names = [[path.name for path in layout.trials(folder)] for folder in (once, killed)]
    wrong = [f"the trials differ: {names}"] if names[0] != names[1] else []
    for name in sorted(set(names[0]) & set(names[1])):
        pair = (once / layout.TRIALS / name, killed / layout.TRIALS / name)
        print(f"\n{name}")
        wrong += [f"{name}: {difference}" for difference in results.differences(*pair)]
        wrong += _different_files(*pair, [layout.TRIAL])
    return wrong + _different_files(once, killed, _TABLES)


def _different_files(once: Path, killed: Path, names: Sequence[str]) -> list[str]:
    return [
        f"{killed.name}/{name} differs"
        for name in names
        if (once / name).read_bytes() != (killed / name).read_bytes()
    ]
