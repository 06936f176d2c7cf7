"""A run in a child process, watched through the files in its folder, and interrupted.

with child_run.ChildRun([sys.executable, "-m", "runner", ...], model_dir, note=print) as child:
    if child.wait_for(lambda: child_run.last_row(model_dir) >= 100):
        child.interrupt(signal.SIGKILL)
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from runner.checkpoints import checkpoint_files, restore
from runner.core import layout, signals
from runner.errors import RunnerError

_POLL_SECONDS = 0.001
_NOTE_SECONDS = 10.0
_LAST_WORDS = 5


class Child:
    """A command of the runner in a process that ends with this one, even if this is killed.

    Args:
        command: The command.
        place: A path, beside which files hold what it prints.
        note: Called now and then.
        scratch: Its folder for temporary files, which it leaves there if it is killed.

    Attributes:
        process: The process.
        log: A file with what it and earlier ones at this place printed to stderr.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Path,
        *,
        note: Callable[[], object] = lambda: None,
        scratch: Path | None = None,
    ) -> None:
        self._note = note
        temporary = {"TMPDIR": str(scratch)} if scratch else {}
        self._printed = place.with_name(f"{place.name}.out")
        self.log = place.with_name(f"{place.name}.log")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._printed.unlink(missing_ok=True)  # left by an earlier start
        with self._printed.open("w") as out, self.log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, signals.ENDS_WITH_STDIN: "1", **temporary},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()

    def finish(self) -> dict[str, Any]:
        """Waits for the end and returns the results.

        Raises:
            RunnerError: it failed; the message ends with the last lines it printed.
        """
        self.wait_for(lambda: False)
        if self.process.returncode:
            raise RunnerError(self._failure())
        results: dict[str, Any] = json.loads(self._printed.read_text().splitlines()[-1])
        return results

    def wait_for(self, moment: Callable[[], bool]) -> bool:
        """Waits until `moment()` is true; False if the process ended first."""
        told = time.monotonic()
        while self.process.poll() is None:
            if moment():
                return True
            if time.monotonic() - told > _NOTE_SECONDS:
                told = time.monotonic()
                self._note()
            time.sleep(_POLL_SECONDS)
        return False

    def interrupt(self, number: signal.Signals) -> bool:
        """Sends a signal and waits for the end; False if the run had finished before.

        Raises:
            RunnerError: it failed for another reason.
        """
        self.process.send_signal(number)
        code = self.process.wait()
        if code not in (0, -number, 128 + number):
            raise RunnerError(self._failure())
        return code != 0

    def _failure(self) -> str:
        words = self.log.read_text(errors="replace").strip().splitlines()
        reasons = (number for number, word in enumerate(words) if word.startswith("runner: "))
        lines = "".join(f"\n    {word}" for word in words[max(reasons, default=-_LAST_WORDS) :])
        return f"training failed with exit code {self.process.returncode}; its last lines:{lines}"


class ChildRun(Child):
    """One start of a run; what it prints goes to files beside the run's folder.

    Args:
        command: The command, without `--model_dir`.
        model_dir: The run's folder.
        note: Called now and then with its progress.
        hosts: Of each of several workers, which are all started here; empty: there is one.
    """

    def __init__(
        self,
        command: Sequence[str],
        model_dir: Path,
        *,
        note: Callable[[str], object] = lambda _: None,
        hosts: Sequence[str] = (),
    ) -> None:
        def of(worker: int) -> list[str]:
            own = [f"--worker_hosts={','.join(hosts)}", f"--task_index={worker}"] if hosts else []
            return [*command, f"--model_dir={model_dir}", *own]

        super().__init__(of(0), model_dir, note=lambda: note(f"  at step {last_row(model_dir):,}"))
        self._others = [
            Child(of(worker), model_dir.with_name(f"{model_dir.name}-{worker}"))
            for worker in range(1, len(hosts))
        ]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for other in self._others:
            other.__exit__()

    def finish(self) -> dict[str, Any]:
        """Waits for the end and returns the results, of several workers the first one's.

        Raises:
            RunnerError: it failed; the message ends with the last lines it printed.
        """
        results = super().finish()
        for other in self._others:
            other.finish()
        return results

    def interrupt(self, number: signal.Signals) -> bool:
        """Sends a signal and waits for the end; False if the run had finished before.

        Of several workers the last gets it, which is to end all; SIGKILL is for each.

        Raises:
            RunnerError: it failed for another reason.
        """
        if not self._others:
            return super().interrupt(number)
        if number == signal.SIGKILL:
            ended = [each.interrupt(number) for each in self._others]
            return super().interrupt(number) and all(ended)
        return self._others[-1].interrupt(number) and self.process.wait() != 0


def last_row(model_dir: Path) -> int:
    """The step of the newest training row; 0 if there is none."""
    try:
        text = (model_dir / layout.TRAINING_ROWS).read_bytes()
    except FileNotFoundError:
        return 0
    rows = text[: text.rfind(b"\n") + 1].splitlines()
    return int(json.loads(rows[-1])["step"]) if rows else 0


def committed(model_dir: Path) -> int:
    """The step of the newest committed checkpoint; 0 if there is none."""
    newest = checkpoint_files.latest(model_dir)
    return restore.step_of(newest) if newest else 0
