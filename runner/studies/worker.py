"""Starts, watches and ends the process of a trial, an ordinary command. No TensorFlow."""

import contextlib
import json
import math
import os
import signal
import socket
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import child, layout
from runner.errors import ConfigError, RunnerError
from runner.run_directory import claim_file, watch
from runner.run_directory.run import is_held
from runner.studies import places, space, trial, warm
from runner.studies.trial import Trial

_KINDS = {
    "train": (["--mode=train_and_eval"], "output.txt"),
    "test": (["--mode=eval", "--data=test"], "test_output.txt"),
    "export": (["--mode=export"], "export_output.txt"),
}
_GRACE_SECONDS = 120.0
_SILENT_SECONDS = 120.0


def arguments(
    facts: Mapping[str, Any],
    divided: Mapping[str, Any] = types.MappingProxyType({}),
    *,
    threads: int = 0,
    pause_at: int = 0,
    formats: Sequence[str] = (),
) -> list[str]:
    """Returns the flags that turn the study's configuration into a trial's.

    Args:
        facts: The contents of trial.json.
        divided: The overrides that make the trial validate on its fold, by path.
        threads: How many threads an op may use. 0 uses the configured number.
        pause_at: The step at which the trial pauses, or 0 if it does not pause.
        formats: The formats to export, or empty for those of the configuration.
    """
    found = [
        f"--gin_params={space.gin(name, value)}"
        for name, value in facts["parameters"].items()
        if name != space.FILE
    ]
    values = ["run.study=null", "run.notify=''", f"run.seed={facts['seed']}"]
    values.append("run.test.at_end=false")
    values += [f"{path}={json.dumps(value)}" for path, value in divided.items()]
    if pause_at:
        values.append(f"run.pause_at={pause_at}")
    if threads:
        values.append(f"run.intra_op_threads={threads}")
    if formats:
        values.append(f"run.export.formats={json.dumps(list(formats))}")
    return [*found, f"--params_override={','.join(values)}"]


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Holds a lock within the block, or yields False if another local process holds it."""
    with path.open("a+", encoding="utf-8") as file:
        yield claim_file.lock(file) is not False


class Job:
    """A trial that this process has started. It ends with this process.

    Args:
        one: The trial.
        command: The flags of its command, without `--model_dir`.
        place: Its executor.
        gpu: The GPU reserved for it. None leaves the choice to the executor.
        kind: What it does: `train`, `test` or `export`.
        goal: The step that it trains to, or 0 if it does not train.

    Attributes:
        one: The trial, as it was at the start.
        kind: What it does.
        goal: The step that the trial trains to, or 0.
        why_not: Why it cannot be forked, after `end` has returned `warm.NOT_WARM`.
        is_stuck: Whether the reason is that it hung.
    """

    def __init__(
        self,
        one: Trial,
        command: Sequence[str],
        place: places.Place,
        *,
        gpu: str | None,
        kind: str,
        goal: int,
    ) -> None:
        self.one = one
        self.gpu = gpu
        self.kind, self.goal = kind, goal
        self.why_not = (
            "an imported module uses TensorFlow at import time, so forked trials would hang"
        )
        self._place, self._is_fork = place, place.forks
        self.is_stuck = False
        self._began = time.monotonic()
        self._rows = watch.Glance(one.folder / layout.TRAINING_ROWS)
        self._rows.changed()
        self._trains = False
        self._holds = contextlib.ExitStack()
        self._mode, output = _KINDS[kind]
        self._output = one.folder / output
        self.is_held = self._hold()
        if self.is_held:
            self._start([*command, f"--model_dir={one.folder}"])
        else:
            self._holds.close()

    def _hold(self) -> bool:
        """Returns whether no other worker has the trial, or has had it since it was read."""
        if not self._holds.enter_context(alone(self.one.folder / layout.TRIAL)):
            return False
        now = trial.read(self.one.folder)
        return _progress(now) == _progress(self.one)

    def _start(self, command: Sequence[str]) -> None:
        self.child = self._place.start([*self._mode, *command], self._output, self.gpu)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self.child.code is not None

    @property
    def trains(self) -> bool:
        """Whether this attempt of the trial has trained."""
        self._trains = self._trains or self._rows.changed()
        return self._trains

    def end_if_stuck(self) -> None:
        """Kills a fork that has hung: it printed no output and used almost no CPU.

        For example, a lock that a thread held at the time of the fork is never released in the
        fork. `end` reports the hang.
        """
        quiet = time.monotonic() - self._began
        if not self._is_fork or quiet < _SILENT_SECONDS or self._output.stat().st_size:
            return
        if _processor_seconds(self.child.pid) < quiet / 10:
            self.is_stuck = True
            self.why_not = (
                f"the fork for trial {self.one.number} hung: in {quiet:.0f} s it printed no output "
                "and used almost no CPU"
            )
            self.child.kill()

    def stop(self) -> None:
        """Sends it SIGTERM, so that it saves a checkpoint and ends."""
        self.child.send(signal.SIGTERM)

    def end(self) -> int:
        """Waits for the end, records a failure, and releases the trial. Returns the exit code."""
        code = self.child.end(_GRACE_SECONDS)
        if self.is_stuck:
            code = warm.NOT_WARM
        if code != warm.NOT_WARM and self.kind == "train":
            self._note(code)
        self._holds.close()
        return code

    def _note(self, code: int) -> None:
        known = (RunnerError.exit_code, ConfigError.exit_code)
        folder = self.one.folder
        if code in known and not is_held(folder):
            trial.note(folder, code, self.reason(), socket.gethostname())
        elif code < 0 or code == places.LOST:
            number = signal.SIGKILL if code == places.LOST else -code
            if number != signal.SIGKILL or trial.read(folder).step <= self.one.step:
                by = "the loss of its node" if code == places.LOST else child.signal_name(number)
                trial.note(folder, -number, f"killed by {by}", socket.gethostname())

    def reason(self) -> str:
        """Returns the last message of its output."""
        return self.child.reason() or "it printed no output"


def _progress(one: Trial) -> tuple[Any, ...]:
    return one.state, one.step, one.failures, one.kills, one.tests, len(one.best)


def _processor_seconds(process: int) -> float:
    """Returns the CPU time that a process has used so far, in seconds."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return math.inf
