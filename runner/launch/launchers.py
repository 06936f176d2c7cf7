"""The launchers of remote commands: a table, and the checks that all share. No TensorFlow."""

import contextlib
import dataclasses
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

from runner.core import console, secrets
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.launch.job import Job, Plan
from runner.run_directory import submitted
from runner.studies import places

# A launcher imports its modules when it is called, so that the table loads without them.


def local(job: Job) -> Plan:
    """In the background on this machine."""
    from runner.launch import local

    return local.plan(job)


def slurm(job: Job) -> Plan:
    """On the nodes of a Slurm cluster, as a batch job."""
    from runner.launch import slurm

    return slurm.plan(job)


def kubernetes(job: Job) -> Plan:
    """In pods of a Kubernetes cluster, as a Job or a JobSet."""
    from runner.launch import kubernetes

    return kubernetes.plan(job)


def ray(job: Job) -> Plan:
    """On a Ray cluster, with one task per trial of a study. This process waits for the end."""
    from runner.launch import ray_run

    return ray_run.plan(job)


def _ray_place(job: Job) -> contextlib.AbstractContextManager[places.Place]:
    from runner.launch import ray_connection

    return ray_connection.place(job)


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A row of the table.

    Attributes:
        plan: Makes the plan without side effects. Raises ConfigError if it cannot be submitted.
        reads: The fields of `LaunchConfig` that it reads in addition to `environment` and `name`.
        shares_files: Whether the job has access to this machine's files, under the same paths.
        place: The executor of a study's trials if the study stays in this process, or None if it
            does not.
    """

    plan: Callable[[Job], Plan]
    reads: frozenset[str] = frozenset()
    shares_files: bool = True
    place: Callable[[Job], contextlib.AbstractContextManager[places.Place]] | None = None

    @property
    def summary(self) -> str:
        """The destination of its jobs, in a few words."""
        return (self.plan.__doc__ or "").splitlines()[0]


_RESOURCES = ("nodes", "cpus", "gpus", "memory_gb", "time", "queue", "grace_seconds", "tries")
_OF_PODS = (
    *(
        "image",
        "namespace",
        "volumes",
        "secret_names",
        "service_account",
        "node_labels",
        "evaluator",
    ),
)
LAUNCHERS: Mapping[str, Launcher] = {
    "slurm": Launcher(slurm, frozenset({*_RESOURCES, "options"})),
    "kubernetes": Launcher(kubernetes, frozenset({*_RESOURCES, *_OF_PODS}), shares_files=False),
    "local": Launcher(local),
    "ray": Launcher(
        ray, reads=frozenset({"address", "cpus", "gpus", "memory_gb"}), place=_ray_place
    ),
}
_OF_NODES = ("multi_worker_mirrored", "parameter_server")
_ALL_READ = {"environment", "name"}


def check(name: str) -> None:
    """Raises ConfigError if no launcher has this name."""
    if name not in LAUNCHERS:
        known = ", ".join(LAUNCHERS)
        raise ConfigError(
            f"--launch={name}: unknown launcher; available: {known}{did_you_mean(name, LAUNCHERS)}"
        )


def launch(name: str, job: Job, *, dry_run: bool = False) -> dict[str, Any] | None:
    """Submits a job, or prints what would be submitted.

    Returns:
        The job's id, its log, and how to watch and to cancel it, or its answer if it has ended, for
        JSON. None for a dry run.

    Raises:
        ConfigError: a mistake in flags or configuration, before the job was submitted.
        RunnerError: the cluster rejected the job.
    """
    check_job(name, job)
    plan = LAUNCHERS[name].plan(job)
    _check_shown(plan.text)
    if dry_run:
        console.answers().say(plan.text)
        return None
    made = plan.submit()
    if isinstance(made, dict):
        return made
    if LAUNCHERS[name].shares_files and job.folder and (job.is_training or job.is_study):
        submitted.note(job.folder, submitted.Submission(name, made.job, time.time(), *made[1:]))
    watch = f"runner --mode=status --watch --model_dir={shlex.quote(job.model_dir)}"
    ways = {"log": made.log, "cancel": made.cancel}
    ways |= {"watch": watch} if job.model_dir else {}
    console.say(f"submitted to {name}: job {made.job}")
    for what, how in ways.items():
        console.say(f"  {what:<7} {how}")
    found = {"status": "submitted", "launcher": name, "job": made.job, **ways}
    return found | ({"model_dir": job.model_dir} if job.model_dir else {})


def check_job(name: str, job: Job) -> None:
    """Raises ConfigError for a job that this launcher can never submit."""
    check(name)
    _check_idle(name, job.config)
    _check_nodes(job)
    _check_workers(job)
    _check_text(job)
    _check_bucket(name, job)


def _check_idle(name: str, config: Any) -> None:
    """Raises ConfigError for a field that is set and that this launcher does not read."""
    read = LAUNCHERS[name].reads | _ALL_READ
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in read and value != field.default:
            readers = [each for each, row in LAUNCHERS.items() if field.name in row.reads]
            there = f"; it is only for --launch={' or '.join(readers)}" if readers else ""
            raise ConfigError(
                f"LaunchConfig.{field.name} = {value!r} has no effect with --launch={name}{there}"
            )


def _check_nodes(job: Job) -> None:
    """Raises ConfigError for several nodes if all but one would be idle."""
    if job.config.nodes > 1 and not job.is_study and job.strategy not in _OF_NODES:
        with_it = f" with distribution_strategy = {job.strategy!r}" if job.strategy else ""
        raise ConfigError(
            f"LaunchConfig.nodes = {job.config.nodes}: --mode={job.mode}{with_it} uses one node. "
            "To distribute one run over several nodes, set RuntimeConfig.distribution_strategy = "
            "'multi_worker_mirrored'. To distribute the trials of a study, use --mode=study"
        )


def _check_workers(job: Job) -> None:
    """Raises ConfigError for a number of workers that the nodes would reject, or leave idle."""
    if job.workers is None:
        return
    nodes, most = job.config.nodes, job.workers.most
    if nodes not in (1, most):
        raise ConfigError(
            f"--workers={job.workers.given} and LaunchConfig.nodes = {nodes}: each node runs one "
            f"worker. Set LaunchConfig.nodes = {most}, or 1 to run all workers on one node"
        )
    if nodes == 1 and 0 < job.config.gpus < most:
        raise ConfigError(
            f"--workers={job.workers.given} and LaunchConfig.gpus = {job.config.gpus}: each worker "
            f"on a node needs a GPU. Set LaunchConfig.gpus = {most}"
        )


def _check_text(job: Job) -> None:
    """Raises ConfigError if a job would show a password, or needs a variable that is not set."""
    for argument in job.arguments:
        if (masked := secrets.masked(argument)) != argument:
            raise ConfigError(
                f"{masked}: others can read a job's command, so it must not contain a secret. Have "
                "your code read the secret from the environment or from a file"
            )
    for each in job.config.environment:
        if "=" not in each and each not in os.environ:
            raise ConfigError(
                f"LaunchConfig.environment lists {each}, which is not set in this environment"
            )
    for name, value in job.set_here.items():
        if secrets.is_secret(name) or secrets.masked(value) != value:
            raise ConfigError(
                f"LaunchConfig.environment: the value of {name} looks like a secret, and would be "
                f"stored with the run. Set the variable in the shell, and list {json.dumps(name)} "
                "without a value"
            )


def _check_bucket(name: str, job: Job) -> None:
    """Raises ConfigError for a study in a bucket whose trials would run on several machines."""
    several = job.config.nodes > 1 or LAUNCHERS[name].place
    if job.is_study and "://" in job.model_dir and several:
        raise ConfigError(
            f"--model_dir={job.model_dir}: a study in a bucket runs on one machine at a time; use "
            "a directory that all nodes share"
        )


def _check_shown(text: str) -> None:
    """Raises ConfigError if the text to submit contains a secret of the environment."""
    for name, value in os.environ.items():
        is_path = value.startswith("/")
        if len(value) > 7 and not is_path and secrets.is_secret(name) and value in text:
            raise ConfigError(
                f"the job would show the value of {name}, a secret environment variable, to others"
            )
