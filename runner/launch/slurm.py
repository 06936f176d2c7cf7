"""Submits a Slurm batch job: one run on several nodes, or an array of workers for a study."""

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from runner.core import text
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError, RunnerError
from runner.launch.job import Job, Plan, Submitted

_PRINTED = r"[^\x00-\x1f\x7f]"
_EARLY = 60  # seconds by which Slurm's signal may arrive early


def plan(job: Job) -> Plan:
    """Returns a script for sbatch.

    Raises:
        ConfigError: the time limit leaves no time to train, or a value or an option is not valid in
            a script for Slurm.
    """
    config = job.config
    limit = text.seconds(config.time)
    if limit and limit <= config.grace_seconds + _EARLY:
        raise ConfigError(
            f"LaunchConfig.time = {config.time!r} leaves no time to train, because Slurm signals "
            f"the run up to {config.grace_seconds + _EARLY} s early (LaunchConfig.grace_seconds)"
        )
    if "\\" in str(job.logs):
        raise ConfigError(
            f"{job.logs}: Slurm cannot write a job's log in a directory with a backslash in its "
            "path: choose another --model_dir"
        )
    for each in config.options:
        if not re.fullmatch(rf"--[a-z][a-z-]*(={_PRINTED}+)?", each):
            raise ConfigError(
                f"LaunchConfig.options: {each!r} is not an sbatch option such as '--account=mine'"
            )
    script = _script(job)
    return Plan(script, lambda: _submit(job, script))


def _script(job: Job) -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH {each}" for each in _options(job)), ""]
    for name, value in job.set_here.items():
        lines.append(f"export {name}={shlex.quote(value)}")
    return "\n".join([*lines, f"exec {shlex.join(_command(job))}"])


def _options(job: Job) -> Iterator[str]:
    config, several = job.config, job.is_study and job.config.nodes > 1
    yield f"--job-name={_quoted(job.name)}"
    yield f"--nodes={1 if several else config.nodes}"
    yield "--ntasks-per-node=1"
    if several:
        yield f"--array=0-{config.nodes - 1}"
    if config.cpus:
        yield f"--cpus-per-task={config.cpus}"
    if config.gpus:
        yield f"--gpus-per-node={config.gpus}"
    if config.memory_gb:
        yield f"--mem={round(config.memory_gb * 1024)}M"
    if config.time:
        yield f"--time={config.time}"
    if config.queue:
        yield f"--partition={_quoted(config.queue)}"
    yield f"--chdir={_quoted(str(job.work_dir))}"
    logs = str(job.logs).replace("%", "%%")
    yield f"--output={_quoted(f'{logs}/{_log_name(job)}')}"
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--signal=B:TERM@{config.grace_seconds}"
    for each in config.options:
        name, equals, value = each.partition("=")
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        yield each if is_quoted else f"{name}{equals}{_quoted(value)}" if equals else name


def _command(job: Job) -> list[str]:
    """Returns the command of the script, which starts the job's command on each node."""
    shared = job.config.nodes > 1 and not job.is_study
    start = [sys.executable, "-m", "runner.launch.start", "--launcher=slurm"]
    start += [f"--logs={job.logs}", f"--tries={job.config.tries}"]
    if job.folder:
        start.append(f"--folder={job.folder}")
    if not shared:
        return [*start, "--", *job.command]
    if job.is_training:
        start.append("--by_status")
    each = ["srun", f"--nodes={job.config.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    return [*start, "--", *each, *job.command]


def _log_name(job: Job) -> str:
    """Returns the name of a log, in which Slurm inserts the job's number."""
    return f"slurm-{'%A_%a' if job.is_study and job.config.nodes > 1 else '%j'}.log"


def _quoted(value: str) -> str:
    """Quotes a value for a Slurm script's comment.

    Raises:
        ConfigError: it has a control character. A comment ends at the end of its line, and bash
            would run the rest.
    """
    if not re.fullmatch(f"{_PRINTED}*", value):
        raise ConfigError(
            f"--launch=slurm: {text.quoted(value)} contains a control character, such as a line "
            "break, which a script for Slurm cannot have: choose another name"
        )
    if re.fullmatch(r"[\w%+,./:=@-]+", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _submit(job: Job, script: str) -> Submitted:
    if not shutil.which("sbatch"):
        raise RunnerError(
            "sbatch was not found: submit the job from a machine of the cluster, such as its login "
            "node"
        )
    _check_nodes(job)
    job.logs.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["sbatch", "--parsable"],
        input=script,
        capture_output=True,
        text=True,
        errors="surrogateescape",  # for paths that are not UTF-8
    )
    if done.returncode:
        with contextlib.suppress(OSError):  # only if they are empty
            job.logs.rmdir()
            job.logs.parent.rmdir()
        said = done.stderr.strip().removeprefix("sbatch: error: ")
        raise RunnerError(f"sbatch rejected the job: {said}")
    number = done.stdout.strip().partition(";")[0]
    name = _log_name(job).replace("%A_%a", f"{number}_*").replace("%j", number)
    return Submitted(number, f"{job.logs}/{name}", f"scancel {number}")


def _check_nodes(job: Job) -> None:
    """Raises ConfigError for a job that no partition could ever start, but Slurm might queue."""
    config = job.config
    asked = ["sinfo", "--noheader", "--Node", "--format=%P|%c|%m|%G"]
    found = subprocess.run(asked, capture_output=True, text=True)
    rows = [line.split("|") for line in found.stdout.splitlines()]
    partitions = list(dict.fromkeys(row[0].rstrip("*") for row in rows))
    if found.returncode or not rows:
        return  # sbatch will report the error
    if config.queue and config.queue not in partitions:
        raise ConfigError(
            f"LaunchConfig.queue = {config.queue!r}: no such partition; available: "
            f"{', '.join(partitions)}{did_you_mean(config.queue, partitions)}"
        )
    queue = config.queue or next((row[0][:-1] for row in rows if row[0].endswith("*")), "")
    there = [row for row in rows if row[0].rstrip("*") == queue]
    able = [row for row in there if _has_room(config, *row[1:])]
    needed = 1 if job.is_study else config.nodes
    if there and len(able) < needed:
        most = [max(_number(row[column]) for row in there) for column in (1, 2)]
        wanted = {"nodes": needed, "cpus": config.cpus, "gpus": config.gpus}
        wanted |= {"memory_gb": config.memory_gb}
        given = ", ".join(f"{name} = {value:g}" for name, value in wanted.items() if value)
        raise ConfigError(
            f"LaunchConfig: {given}, but partition {queue} has {len(there)} nodes of up to "
            f"{most[0]} CPUs and {most[1] / 1024:.3g} GB, {len(able)} of them large enough"
        )


def _has_room(config: Any, processors: str, megabytes: str, devices: str) -> bool:
    """Returns whether a node has the requested resources per node."""
    gpus = sum(map(int, re.findall(r"\bgpu:(?:[\w.-]+:)?(\d+)", devices)))
    return (
        config.cpus <= _number(processors)
        and config.memory_gb * 1024 <= _number(megabytes)
        and config.gpus <= gpus
    )


def _number(shown: str) -> int:
    return int(shown.rstrip("+"))
