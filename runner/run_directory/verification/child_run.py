"""Starts a run in a child process, watches it through its files, and interrupts it.

with child_run.ChildRun([sys.executable, "-m", "runner", ...], model_dir, note=print) as run:
    if run.wait_for(lambda: child_run.last_row(model_dir) >= 100):
        run.interrupt(signal.SIGKILL)
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from runner.checkpoints import checkpoint_files, restore
from runner.core.child import Child
from runner.run_directory.run import run_in

_NOTE_SECONDS = 10.0


class ChildRun:
    """One attempt of a run, whose output goes to files next to the run's directory.

    Args:
        command: The command, without `--model_dir`.
        model_dir: The run's directory.
        note: Called occasionally with its progress.
        hosts: The addresses of several workers, all started on this machine, or empty for one.

    Attributes:
        chief: The only process, or the first worker.
        log: A file with the stderr output of this and earlier attempts.
    """

    def __init__(
        self,
        command: Sequence[str],
        model_dir: Path,
        *,
        note: Callable[[str], object] = lambda _: None,
        hosts: Sequence[str] = (),
    ) -> None:
        self._model_dir, self._note = model_dir, note
        self.log = model_dir.with_name(f"{model_dir.name}.log")

        def of(worker: int) -> Child:
            own = [f"--worker_hosts={','.join(hosts)}", f"--task_index={worker}"] if hosts else []
            name = f"{model_dir.name}-{worker}" if worker else model_dir.name
            full = [*command, f"--model_dir={model_dir}", *own]
            return start(full, model_dir.with_name(name))

        self.chief, *self._others = map(of, range(max(len(hosts), 1)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.workers:
            child.end()

    @property
    def workers(self) -> tuple[Child, ...]:
        """All its processes, the chief first."""
        return self.chief, *self._others

    def finish(self) -> dict[str, Any]:
        """Waits for the end and returns the results of the chief.

        Raises:
            RunnerError: a worker failed. The message ends with the last lines it printed.
        """
        self.wait_for(lambda: False)
        results, *_ = [child.results() for child in self.workers]
        return results

    def wait_for(self, moment: Callable[[], bool]) -> bool:
        """Waits until `moment()` is true. Returns False if the run ends first."""
        noted = time.monotonic()

        def has_come() -> bool:
            nonlocal noted
            if time.monotonic() - noted > _NOTE_SECONDS:
                noted = time.monotonic()
                self._note(f"  at step {last_row(self._model_dir):,}")
            return moment()

        return self.chief.wait_until(has_come)

    def interrupt(self, number: signal.Signals) -> bool:
        """Sends a signal and waits for the end. Returns False if the run had already finished.

        With several workers, the last one gets the signal and all end. SIGKILL goes to each.

        Raises:
            RunnerError: a worker failed for another reason.
        """
        workers = [*self._others[::-1], self.chief]
        targets = workers if number == signal.SIGKILL else workers[:1]
        codes = [_interrupted(child, number) for child in targets]
        return all(codes) and self.chief.wait() != 0


def start(
    command: Sequence[str], place: Path, *, environment: Mapping[str, str] | None = None
) -> Child:
    """Starts a command with its stderr in `PLACE.log` and its stdout in `PLACE.out`."""
    log, answer = (place.with_name(place.name + suffix) for suffix in (".log", ".out"))
    return Child(command, environment=environment, log=log, answer=answer)


def _interrupted(child: Child, number: signal.Signals) -> int | None:
    """Sends a signal to a process and returns its exit code.

    Raises:
        RunnerError: it failed for another reason.
    """
    child.send(number)
    if (code := child.wait()) not in (0, -number, 128 + number):
        raise child.failure()
    return code


def last_row(model_dir: Path) -> int:
    """Returns the step of the newest training row, or 0 if there is none."""
    run = run_in(model_dir)
    return int(run.newest_rows[-1]["step"]) if run and run.newest_rows else 0


def committed(model_dir: Path) -> int:
    """Returns the step of the newest checkpoint, or 0 if there is none."""
    newest = checkpoint_files.latest(model_dir)
    return restore.step_of(newest) if newest else 0
