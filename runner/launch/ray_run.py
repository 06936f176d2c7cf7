"""Runs a command as one Ray task, waits for it, and restarts it. No TensorFlow."""

import contextlib
import datetime
import json
import shlex
from pathlib import Path
from typing import Any

from runner.core import child, console, growing_file, text
from runner.errors import RunnerError
from runner.launch import ray, ray_connection
from runner.launch.job import Job, Plan
from runner.run_directory.run import reached
from runner.studies import places

_POLL_SECONDS = 0.2
_MOST_LOSSES = 3  # in a row, without a completed step


class TaskError(RunnerError):
    """The command ended with a non-zero exit code.

    Attributes:
        exit_code: Its exit code.
        results: Its answer.
    """

    def __init__(self, code: int, message: str, results: dict[str, Any]) -> None:
        super().__init__(message)
        self.exit_code = code
        self.results = results


def plan(job: Job) -> Plan:
    """Plans one task for the command, or a task for each trial of a study."""
    return Plan(_text(job), lambda: _run(job))


def _text(job: Job) -> str:
    config = job.config
    needs = [text.counted(config.cpus or 1, "CPU")]
    needs += [text.counted(config.gpus, "GPU")] if config.gpus else []
    needs += [f"{config.memory_gb:g} GB"] if config.memory_gb else []
    what = "a task for each trial" if job.is_study else "one task"
    where = " ".join(config.address.split()) or "$RAY_ADDRESS, or on this machine"
    values = [
        shlex.quote(each) if "=" in each else f'{each}="${each}"' for each in config.environment
    ]
    command = shlex.join(job.command)
    return "\n".join(
        [
            f"# on the Ray cluster at {where}: {what}, with {', '.join(needs)}",
            f"cd {shlex.quote(str(job.work_dir))}",
            f"env {' '.join(values)} {command}" if values else command,
        ]
    )


def _run(job: Job) -> dict[str, Any]:
    """Runs a command to its end and returns its answer.

    Raises:
        ConfigError: it cannot run there.
        TaskError: it has failed.
        signals.Interrupted: a signal arrived, and the command has saved a checkpoint and ended.
    """
    with ray_connection.connected(job) as cluster:
        cluster.check(job.folder or job.work_dir)
        console.say(cluster.described)
        job.logs.mkdir(parents=True, exist_ok=True)
        task = _Task(job, cluster)
        with job.stop.deferred():
            code = task.run()
        job.stop.check()
    answer = task.answer
    if code:
        said = f"the task {child.ending(code)}: see {task.log}"
        raise TaskError(child.exit_status(code), said, answer)
    return answer


class _Task:
    """A command that is restarted when its node is lost.

    Attributes:
        log: The file for its stderr.
    """

    def __init__(self, job: Job, cluster: ray.Cluster) -> None:
        self._job = job
        self._cluster = cluster
        self._stop = job.stop
        began = datetime.datetime.now(datetime.UTC)
        self.log = job.logs / f"ray-{began:%Y%m%dT%H%M%S.%f}.log"
        self._out = self.log.with_suffix(".out")

    @property
    def answer(self) -> dict[str, Any]:
        """Its answer on stdout, or empty without one. Prints the other lines."""
        found: dict[str, Any] = {}
        lines: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # it was never started
            lines = self._out.read_text(errors="replace").splitlines()
        with contextlib.suppress(IndexError, ValueError, TypeError):  # killed without an answer
            found = dict(json.loads(lines[-1]))
            lines.pop()
        for line in lines:
            console.answers().say(line)
        return found

    def run(self) -> int:
        """Runs the task and returns its exit code."""
        losses = 0
        while True:
            before = self._reached
            code = self._once()
            if code != places.LOST or self._stop.requested:
                return code
            losses = losses + 1 if self._reached == before else 1
            if losses > _MOST_LOSSES:
                raise RunnerError(f"{losses} nodes in a row were lost before a step was completed")
            console.say("the node was lost; restarting on another node")

    def _once(self) -> int:
        task = self._cluster.start(self._job.arguments, self.log, None, answer=self._out)
        printed, asked = growing_file.GrowingFile(self.log), False
        while (code := task.wait(_POLL_SECONDS)) is None:
            if self._stop.requested and not asked:
                asked = True
                task.send(self._stop.number or 0)
            self._show(printed)
        self._show(printed)
        return code

    def _show(self, printed: growing_file.GrowingFile) -> None:
        """Prints its new complete lines."""
        for line in printed.take():
            console.say(line.decode(errors="replace").rstrip("\r\n"))

    @property
    def _reached(self) -> int:
        return reached(Path(self._job.model_dir)) if self._job.model_dir else 0
