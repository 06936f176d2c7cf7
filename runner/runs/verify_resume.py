"""`--mode=verify_resume`: checks that an interrupted experiment ends like an uninterrupted one.

The user's command trains for a few hundred steps in a scratch directory, first without
interruption, then with a SIGTERM and a SIGKILL in between. The results of the two runs are compared
bit by bit.
"""

import contextlib
import dataclasses
import glob
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.core import console, layout
from runner.errors import RunnerError
from runner.run_directory import claim, claim_file
from runner.run_directory.run import Run
from runner.run_directory.verification import child_run, comparison, diagnosis, tensors
from runner.runs.call import Call

if TYPE_CHECKING:
    from runner import config

_STEPS = 200
_ATTEMPTS = 3

# Fractions of the run for each interval. Some checkpoints fall between two training rows, so the
# metrics' partial sums must survive as well.
_SHARES = {
    "train_steps": 1,
    "validation_interval": 2,
    "checkpoint_interval": 4,
    "summary_interval": 10,
    "steps_per_loop": 20,
}
_IN_EPOCHS = ("train", "validation_interval", "checkpoint_interval", "summary_interval")


@dataclasses.dataclass(frozen=True)
class Interruption:
    """A signal that ended an attempt of a run.

    Attributes:
        number: The signal.
        resumed: The step at which the next attempt continued.
    """

    number: signal.Signals
    resumed: int

    def __str__(self) -> str:
        return f"{self.number.name}, resumed at step {self.resumed:,}"


def verify_resume(call: Call) -> dict[str, Any]:
    """Trains once without and once with interruptions, and compares.

    SIGTERM or SIGINT also ends the child processes, and removes all files.

    Returns:
        The results of the run that was not interrupted, and a `verdict`.

    Raises:
        RunnerError: the resume is not bit-exact (the message names the first difference and its
            usual cause), or this could not be determined.
    """
    mode = "train_and_eval" if _evaluates(call.config) else "train"
    command = [sys.executable, "-m", "runner", f"--mode={mode}", *call.loaded_from()]
    command += shortening(call.config.trainer.train_steps)
    hosts = _hosts(call.config)
    with _scratch(call.model_dir) as folder:
        once = folder / "once"
        console.say(f"training without interruption in {once}")
        with child_run.ChildRun(command, once, note=console.say, hosts=hosts) as start:
            results = start.finish()
        killed, interruptions = _interrupted(command, folder, hosts)
        parts = comparison.compare(once, killed)
        console.say(comparison.render(parts))
        told = "; ".join(map(str, interruptions))
        if comparison.differing(parts):
            obstacle = Run(killed).attempts[-1]["inexact"]
            kind, difference = diagnosis.first(parts)
            raise RunnerError(
                f"resuming is not bit-exact ({told})\n"
                f"first difference: {kind}, {difference}\n"
                f"usual cause: {diagnosis.explain(parts, interruptions[0].resumed, obstacle)}"
            )
        verdict = f"resuming is bit-exact: {_counts(parts)} ({told})"
        if len(hosts) > 1:
            verdict += f"; {_with_one_worker(command, folder, hosts, once)}"
    console.say(verdict)
    return {**results, "model_dir": str(call.model_dir), "verdict": verdict}


def shortening(train_steps: int) -> list[str]:
    """Returns flags that make a run short but exercise everything.

    Args:
        train_steps: The run's own length, which is not increased.
    """
    steps = min(_STEPS, train_steps)
    values = [f"trainer.{name}={max(1, steps // n)}" for name, n in _SHARES.items()]
    values += [f"run.epochs.{name}=0" for name in _IN_EPOCHS]
    values.append("run.loggers=[]")
    return [f"--params_override={','.join(values)}"]


def _hosts(experiment: "config.Experiment") -> Sequence[str]:
    """Returns the workers to start, all of them on this machine."""
    hosts = experiment.runtime.worker_hosts
    return [each.strip() for each in hosts.split(",")] if hosts else ()


def _interrupted(
    command: Sequence[str], folder: Path, hosts: Sequence[str]
) -> tuple[Path, list[Interruption]]:
    """Returns a run that finished after two interruptions, and the interruptions."""
    for attempt in range(1, _ATTEMPTS + 1):
        run = folder / f"interrupted-{attempt}"
        console.say("training again, interrupted by a SIGTERM and a SIGKILL")
        interruptions = []
        for number, moment in ((signal.SIGTERM, _begun), (signal.SIGKILL, _past_a_commit)):
            with child_run.ChildRun(command, run, note=console.say, hosts=hosts) as start:
                if not (start.wait_for(moment(run)) and start.interrupt(number)):
                    break
            interruptions.append(Interruption(number, child_run.committed(run)))
            console.say(f"  {interruptions[-1]}")
        else:
            with child_run.ChildRun(command, run, note=console.say, hosts=hosts) as start:
                start.finish()
            return run, interruptions
        console.say(f"  the run finished before {number.name} was sent")
    raise _too_short(_ATTEMPTS)


def _with_one_worker(command: Sequence[str], folder: Path, hosts: Sequence[str], once: Path) -> str:
    """Describes how much weights differ if one worker continues where several have stopped."""
    run = folder / "one-worker"
    console.say(f"training again, with 1 worker instead of {len(hosts)} after a SIGTERM")
    with child_run.ChildRun(command, run, note=console.say, hosts=hosts) as start:
        if not (start.wait_for(_begun(run)) and start.interrupt(signal.SIGTERM)):
            raise _too_short(1)
    step = child_run.committed(run)
    with child_run.ChildRun(command, run, note=console.say, hosts=hosts[:1]) as start:
        start.finish()
    weights = next(part for part in comparison.compare(once, run) if part.kind == "weights")
    return f"with one worker from step {step:,} on, weights differ by at most {weights.apart:.2g}"


def _too_short(times: int) -> RunnerError:
    return RunnerError(
        f"training ended {times} times before it could be interrupted; increase "
        f"TrainerConfig.train_steps (at most {_STEPS} steps are run)"
    )


def _begun(run: Path) -> Callable[[], bool]:
    """Returns a check for a training row."""
    return lambda: child_run.last_row(run) > 0


def _past_a_commit(run: Path) -> Callable[[], bool]:
    """Returns a check for a new checkpoint that training has continued from."""
    before = child_run.committed(run)
    return lambda: before < child_run.committed(run) < child_run.last_row(run)


def _evaluates(experiment: "config.Experiment") -> bool:
    """Returns whether there are validation data. Model Garden's default has a batch size of 0."""
    data = getattr(experiment.task, "validation_data", None)
    return data is not None and getattr(data, "global_batch_size", 1) > 0


def _counts(parts: Sequence[tensors.Part]) -> str:
    """Returns `45 tensors, 10 training rows, 2 evaluations, no bit differs`."""
    rows = (comparison.TRAINING_ROWS, comparison.EVALUATIONS, comparison.DECISIONS)
    counts = [f"{part.compared} {part.kind}" for part in parts if part.kind in rows]
    held = sum(part.compared for part in parts if part.kind not in rows)
    return ", ".join([f"{held} tensors", *counts, "no bit differs"])


@contextlib.contextmanager
def _scratch(model_dir: Path) -> Iterator[Path]:
    """Yields a directory next to `model_dir`, which is kept after an error.

    Removes such directories that killed processes left behind.
    """
    beside = model_dir.absolute().parent
    prefix = f"{model_dir.name}-verify_resume-"
    try:
        beside.mkdir(parents=True, exist_ok=True)
        for left in beside.glob(f"{glob.escape(prefix)}*"):
            if claim_file.abandoned(left / layout.CLAIM):
                shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=beside))
    except OSError as error:
        raise RunnerError(
            f"cannot create a temporary directory next to {model_dir}: {error}"
        ) from error
    try:
        with claim.claimed(folder, note=console.say):
            yield folder
    except RunnerError as error:
        raise RunnerError(f"{error}\nthe runs are kept in {folder}") from error
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
