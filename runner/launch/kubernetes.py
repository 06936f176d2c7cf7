"""Checks a Kubernetes job, and submits it with kubectl."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from runner.core import secrets
from runner.errors import ConfigError, RunnerError
from runner.launch import manifest
from runner.launch.job import Job, Plan, Submitted

_LONGEST = 40  # of a name, which also starts the names of pods (at most 63 characters)
_NAME = re.compile(rf"[a-z]([a-z0-9-]{{0,{_LONGEST - 2}}}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_KUEUE = "localqueues.kueue.x-k8s.io"


def plan(job: Job) -> Plan:
    """Returns a manifest for kubectl.

    Raises:
        ConfigError: a setting is missing, the pod would lack a file, or a secret would be exposed.
    """
    _check(job)
    made = json.loads(
        json.dumps(manifest.manifest(job, _name(job)))
    )  # a copy without shared parts, which YAML would write as aliases
    written = yaml.safe_dump(made, sort_keys=False, width=100).rstrip("\n")
    return Plan(written, lambda: _submit(job, made["kind"], made["metadata"]["name"], written))


def _check(job: Job) -> None:
    config = job.config
    if not config.image:
        raise ConfigError(
            "LaunchConfig.image is missing: set it to an image with the runner and your code"
        )
    _check_names(config)
    mounts = manifest.mounts(job)
    if len(mounts) < len(config.volumes):
        raise ConfigError(
            f"LaunchConfig.volumes = {config.volumes!r}: two volumes are mounted at the same path"
        )
    if job.folder and not any(job.folder.is_relative_to(path) for path in mounts):
        there = f" (mounted: {', '.join(mounts)})" if mounts else ""
        raise ConfigError(
            f"--model_dir={job.model_dir} would be lost with its pod: use a directory on a "
            f"volume{there}, such as --model_dir=/runs/digits with LaunchConfig.volumes = "
            "('claim:/runs',)"
        )
    for each in config.environment:
        name, equals, value = each.partition("=")
        value = value if equals else os.environ[name]
        if secrets.is_secret(name) or secrets.masked(value) != value:
            raise ConfigError(
                f"LaunchConfig.environment: {name} looks like a secret, and everyone who can read "
                "the job would see it. Store it in a Kubernetes Secret, and add the Secret's name "
                "to LaunchConfig.secret_names"
            )
    for flag in job.arguments:
        name, _, path = flag.partition("=")
        is_file = name in ("--gin_file", "--config_file") and path.startswith("/")
        if is_file and not any(PurePosixPath(path).is_relative_to(each) for each in mounts):
            raise ConfigError(
                f"{flag}: the image does not contain files of this machine. Use a path relative to "
                "the image's working directory, or a path on a volume"
            )
    if config.evaluator and (not job.is_training or config.nodes > 1):
        raise ConfigError(
            "LaunchConfig.evaluator = True needs a training mode on one node. Otherwise, launch "
            "--mode=continuous_eval as a separate job"
        )


def _check_names(config: Any) -> None:
    """Raises ConfigError for an object name that is not valid in any cluster."""
    for field in ("namespace", "queue", "service_account", "secret_names"):
        value = getattr(config, field)
        for each in [value] if isinstance(value, str) else value:
            if each and not _OBJECT.fullmatch(each):
                raise ConfigError(
                    f"LaunchConfig.{field}: {each!r} is not a valid name in Kubernetes. Names "
                    "consist of lowercase letters, digits, '-' and '.'"
                )


def _name(job: Job) -> str:
    """Returns the given name, or a name derived from the directory's."""
    if _NAME.fullmatch(job.name):
        return job.name
    plain = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"run-{plain}".strip("-")
    if not job.config.name:  # other directories may have similar names
        digest = hashlib.sha256(job.model_dir.encode()).hexdigest()[:6]
        return f"{plain[: _LONGEST - 7].strip('-')}-{digest}"
    raise ConfigError(
        f"LaunchConfig.name = {job.name!r} is not valid in Kubernetes. Use at most {_LONGEST} "
        "lowercase letters, digits and '-', with a letter first and no '-' last, such as "
        f"{plain[:_LONGEST].strip('-')!r}"
    )


def _submit(job: Job, kind: str, name: str, written: str) -> Submitted:
    if not shutil.which("kubectl"):
        raise RunnerError("kubectl was not found; --dry_run prints the manifest without it")
    where = [f"--namespace={job.config.namespace}"] if job.config.namespace else []
    if queue := job.config.queue:
        _check_queue(queue, where)
    done = _kubectl("create", "--filename=-", *where, given=written)
    said = done.stderr.strip()
    if "(AlreadyExists)" in said:
        raise RunnerError(
            f"a {kind} named {name} already exists: watch it, delete it (kubectl delete "
            f"{' '.join([kind.lower(), name, *where])}), or set another LaunchConfig.name"
        )
    if done.returncode and "no matches for kind" in said:
        raise RunnerError(
            "JobSet is not installed in the cluster, but a run on several nodes needs it: see "
            "https://jobset.sigs.k8s.io to install it"
        )
    if done.returncode:
        raise RunnerError(f"kubectl rejected the job: {secrets.masked(said)}")
    words = ["kubectl", "logs", "--follow", *where]
    pods = (
        f"--selector=jobset.sigs.k8s.io/jobset-name={name}" if kind == "JobSet" else f"job/{name}"
    )
    cancel = ["kubectl", "delete", kind.lower(), name, *where]
    return Submitted(name, " ".join([*words, pods]), " ".join(cancel))


def _check_queue(queue: str, where: Sequence[str]) -> None:
    """Raises ConfigError if Kueue has no such queue, because the job would wait forever."""
    found = _kubectl("get", _KUEUE, "--output=name", *where)
    if "resource type" in found.stderr:
        raise ConfigError(
            f"LaunchConfig.queue = {queue!r}: Kueue, which provides queues, is not installed in "
            "the cluster"
        )
    queues = [line.rpartition("/")[2] for line in found.stdout.splitlines()]
    if not found.returncode and queue not in queues:
        there = ", ".join(queues) or "none"
        raise ConfigError(f"LaunchConfig.queue = {queue!r}: no such queue; available: {there}")


def _kubectl(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True)
