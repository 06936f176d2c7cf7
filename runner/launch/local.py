"""Runs the command in the background on this machine, with its log in the run's directory."""

import datetime
import shlex

from runner.core import child
from runner.launch.job import Job, Plan, Submitted


def plan(job: Job) -> Plan:
    """Plans a separate process, which outlives this one and its terminal."""
    return Plan(_text(job), lambda: _submit(job))


def _text(job: Job) -> str:
    """Returns the equivalent shell command."""
    values = [shlex.quote(f"{name}={value}") for name, value in job.set_here.items()]
    words = ["nohup", *(["env", *values] if values else []), *map(shlex.quote, job.command)]
    return f"cd {shlex.quote(str(job.work_dir))}\n{' '.join(words)} &"


def _submit(job: Job) -> Submitted:
    began = datetime.datetime.now(datetime.UTC)
    log = job.logs / f"local-{began:%Y%m%dT%H%M%S.%f}.log"
    process = child.Child(
        job.command,
        tie=child.Tie.DETACHED,
        directory=job.work_dir,
        environment=job.set_here,
        log=log,
    )
    return Submitted(str(process.pid), str(log), f"kill {process.pid}")
