"""A trial in a process: an ordinary command, started, watched and ended. No TensorFlow here."""

import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import layout, signals, text
from runner.errors import ConfigError, RunnerError
from runner.run_folder import claim_file, watch
from runner.studies import space, trial, warm
from runner.studies.trial import Trial

_OUTPUT = "output.txt"
_TEST_OUTPUT = "test_output.txt"
_GRACE_SECONDS = 120.0
_SILENT_SECONDS = 120.0
_FEW_BEFORE_ANY_TRAINS = 2


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
        gpu: Which GPU it has for itself; None: as the environment says.
        fresh: Whether it is not to be forked.
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
        *,
        gpu: str | None,
        fresh: bool,
        goal: int,
    ) -> None:
        self.one = one
        self.gpu = gpu
        self.goal, self.tests = goal, not goal
        self.why_not = (
            "an imported module uses TensorFlow while it is imported, and forks would hang"
        )
        self._fresh = fresh
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
        environment = {**os.environ, signals.ENDS_WITH_STDIN: "1"}
        if self.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu
        mode = ["--mode=eval", "--data=test"] if self.tests else ["--mode=train_and_eval"]
        whole = [sys.executable, "-m", "runner", *mode, *command]
        with self._output.open("w") as file:
            options: Any = {"env": environment, "stdin": subprocess.PIPE}
            options |= {"stdout": file, "stderr": file}
            if self._fresh:
                options["start_new_session"] = True
            kind: Any = subprocess.Popen if self._fresh else warm.Popen
            self.process = kind(whole, **options)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self.process.poll() is not None

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
        if self._fresh or quiet < _SILENT_SECONDS or self._output.stat().st_size:
            return
        if _processor_seconds(self.process.pid) < quiet / 10:
            self.is_stuck = True
            self.why_not = (
                f"the fork for trial {self.one.number} hung: in {quiet:.0f} s it printed nothing "
                "and hardly used a processor"
            )
            self.process.kill()

    def stop(self) -> None:
        """Asks it to save and to end."""
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Waits for the end, notes a failure, and lets others have the trial; the exit code."""
        try:
            code: int = self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.is_stuck:
            code = warm.NOT_WARM
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if code != warm.NOT_WARM and not self.tests:
            self._note(code)
        self._holds.close()
        return code

    def _note(self, code: int) -> None:
        known = (RunnerError.exit_code, ConfigError.exit_code)
        folder = self.one.folder
        if code in known and not trial.is_held(folder):
            trial.note(folder, code, self.reason(), socket.gethostname())
        elif code < 0 and (code != -signal.SIGKILL or trial.read(folder).step <= self.one.step):
            reason = f"killed by {signal.Signals(-code).name}"
            trial.note(folder, code, reason, socket.gethostname())

    def reason(self) -> str:
        """What it said last."""
        lines = self._output.read_text(errors="replace").strip().splitlines()
        for line in reversed(lines):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return str(json.loads(line)["reason"])
        starts = [number for number, line in enumerate(lines) if line.startswith("runner: ")]
        said = " ".join(lines[starts[-1] :] if starts else lines[-1:])
        return re.sub(r"^runner: ", "", said) or "nothing was printed"


def _progress(one: Trial) -> tuple[Any, ...]:
    return one.state, one.step, one.failures, one.kills, one.tests


@dataclasses.dataclass(frozen=True)
class Room:
    """What this machine has room for.

    Attributes:
        jobs: How many trials run side by side.
        threads: How many threads an op of each may use; 0: as configured.
        gpus: The GPUs that they take turns with; empty if there are none.
    """

    jobs: int
    threads: int
    gpus: Sequence[str] = ()

    def __str__(self) -> str:
        what = f", each with one of {text.counted(len(self.gpus), 'GPU')}" if self.gpus else ""
        return f"{text.counted(self.jobs, 'trial')} side by side{what}"


def room(jobs: int, trials: int) -> Room:
    """What this machine has room for; `jobs`: what the user wants, 0 for as many as fit."""
    gpus, cores = _gpus(), len(os.sched_getaffinity(0))
    count = min(jobs or len(gpus) or cores, max(trials, 1))
    return Room(count, max(cores // count, 1) if count > 1 else 0, gpus)


def _gpus() -> list[str]:
    """The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them. TensorFlow is not asked."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [each for each in given.split(",") if each.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = len([line for line in listed.stdout.splitlines() if line.startswith("GPU ")])
    return [str(number) for number in range(count)]


def has_memory(jobs: Sequence[Job]) -> bool:
    """Whether another trial fits, if it needs as much as the largest that runs; the first does.

    What a trial needs is not known before one trains: until then there are no more than two.
    """
    if not jobs:
        return True
    if len(jobs) >= _FEW_BEFORE_ANY_TRAINS and not any(job.trains for job in jobs):
        return False
    peaks = [_kilobytes(job.process.pid, "VmHWM") for job in jobs]
    available = _kilobytes("meminfo", "MemAvailable")
    still_to_come = sum(max(peaks) - peak for peak in peaks)
    return not available or available > still_to_come + 1.2 * max(peaks)


def _kilobytes(process: int | str, name: str) -> int:
    """A line of /proc; 0 where it is missing, as when the process has just ended."""
    path = Path(f"/proc/{process}/status" if isinstance(process, int) else f"/proc/{process}")
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE):
            return int(found[1])
    return 0


def _processor_seconds(process: int) -> float:
    """What a process has used so far."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return math.inf
