"""A trial in a process: an ordinary command, started, watched and ended. No TensorFlow here."""

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
from runner.run_folder import claim_file, watch
from runner.run_folder.run import is_held
from runner.studies import places, space, trial, warm
from runner.studies.trial import Trial

_OUTPUT = "output.txt"
_TEST_OUTPUT = "test_output.txt"
_GRACE_SECONDS = 120.0
_SILENT_SECONDS = 120.0


def arguments(
    facts: Mapping[str, Any],
    divided: Mapping[str, Any] = types.MappingProxyType({}),
    *,
    threads: int = 0,
    pause_at: int = 0,
) -> list[str]:
    """The flags that make a trial's configuration of the study's.

    Args:
        facts: Those of trial.json.
        divided: What makes its fold validate, by path.
        threads: How many an op may use; 0: as configured.
        pause_at: Where it is to pause; 0: nowhere.
    """
    found = [f"--gin_params={space.gin(*each)}" for each in facts["parameters"].items()]
    values = ["run.study=null", "run.notify=''", f"run.seed={facts['seed']}"]
    values.append("run.test.at_end=false")
    values += [f"{path}={json.dumps(value)}" for path, value in divided.items()]
    if pause_at:
        values.append(f"run.pause_at={pause_at}")
    if threads:
        values.append(f"run.intra_op_threads={threads}")
    return [*found, f"--params_override={','.join(values)}"]


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Within the block, no other process of this machine is; False if one is already."""
    with path.open("a+", encoding="utf-8") as file:
        yield claim_file.lock(file) is not False


class Job:
    """A trial that this process has started; it ends with this process.

    Args:
        one: The trial.
        command: The flags of its command, without `--model_dir`.
        place: Where it runs.
        gpu: Which GPU it has for itself; None: as the place says.
        goal: The step that it trains to; 0: it is tested instead.

    Attributes:
        one: The trial, as it was.
        goal: As given.
        tests: Whether it is tested.
        why_not: Why it cannot be forked, where `end` has returned `warm.NOT_WARM`.
        is_stuck: Whether that is because it hung.
    """

    def __init__(
        self,
        one: Trial,
        command: Sequence[str],
        place: places.Place,
        *,
        gpu: str | None,
        goal: int,
    ) -> None:
        self.one = one
        self.gpu = gpu
        self.goal, self.tests = goal, not goal
        self.why_not = (
            "an imported module uses TensorFlow while it is imported, and forks would hang"
        )
        self._place, self._is_fork = place, place.forks
        self.is_stuck = False
        self._began = time.monotonic()
        self._rows = watch.Glance(one.folder / layout.TRAINING_ROWS)
        self._rows.changed()
        self._trains = False
        self._holds = contextlib.ExitStack()
        self._output = one.folder / (_OUTPUT if goal else _TEST_OUTPUT)
        self.is_held = self._hold()
        if self.is_held:
            self._start([*command, f"--model_dir={one.folder}"])
        else:
            self._holds.close()

    def _hold(self) -> bool:
        """Whether no other worker has the trial, or has had it since it was read."""
        if not self._holds.enter_context(alone(self.one.folder / layout.TRIAL)):
            return False
        now = trial.read(self.one.folder)
        return _progress(now) == _progress(self.one)

    def _start(self, command: Sequence[str]) -> None:
        mode = ["--mode=eval", "--data=test"] if self.tests else ["--mode=train_and_eval"]
        self.child = self._place.start([*mode, *command], self._output, self.gpu)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self.child.code is not None

    @property
    def trains(self) -> bool:
        """Whether this start of the trial has trained."""
        self._trains = self._trains or self._rows.changed()
        return self._trains

    def end_if_stuck(self) -> None:
        """Kills a fork that neither prints nor works, and never will: `end` says so.

        A lock that a thread held at the time of the fork, say, is never released in the fork.
        """
        quiet = time.monotonic() - self._began
        if not self._is_fork or quiet < _SILENT_SECONDS or self._output.stat().st_size:
            return
        if _processor_seconds(self.child.pid) < quiet / 10:
            self.is_stuck = True
            self.why_not = (
                f"the fork for trial {self.one.number} hung: in {quiet:.0f} s it printed nothing "
                "and hardly used a processor"
            )
            self.child.kill()

    def stop(self) -> None:
        """Asks it to save and to end."""
        self.child.send(signal.SIGTERM)

    def end(self) -> int:
        """Waits for the end, notes a failure, and lets others have the trial; the exit code."""
        code = self.child.end(_GRACE_SECONDS)
        if self.is_stuck:
            code = warm.NOT_WARM
        if code != warm.NOT_WARM and not self.tests:
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
        """What it said last."""
        return self.child.reason() or "nothing was printed"


def _progress(one: Trial) -> tuple[Any, ...]:
    return one.state, one.step, one.failures, one.kills, one.tests


def _processor_seconds(process: int) -> float:
    """What a process has used so far."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return math.inf
