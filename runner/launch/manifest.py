"""Writes a Kubernetes manifest: a Job, or a JobSet for one run on several nodes."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from runner.core import layout, text
from runner.errors import GaveUpError
from runner.launch import start
from runner.launch.job import Job

PORT = 2222  # where a worker listens for the others
JOBSET = "jobset.x-k8s.io/v1alpha2"
QUEUE = "kueue.x-k8s.io/queue-name"

_Object = dict[str, Any]
_CONTAINER = "runner"
_WORKERS = "worker"
_FINAL = [2, 3, 4, 5, GaveUpError.exit_code]  # rerunning the command would end the same way
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_GPU = "nvidia.com/gpu"
_GROUP = 1000  # of the Dockerfile's user, who otherwise could not write to a new volume
# The training flags that an evaluator needs.
_CONFIGURING = re.compile(
    r"--(experiment|gin_file|gin_params|config_file|params_override|model_dir|tf_data_service)="
)


def manifest(job: Job, name: str) -> _Object:
    """Returns the object to create.

    Args:
        job: The job, validated.
        name: A name that is valid in Kubernetes.
    """
    config = job.config
    shared = config.nodes > 1 and not job.is_study
    metadata: _Object = {"name": name}
    if config.namespace:
        metadata["namespace"] = config.namespace
    if config.queue:
        metadata["labels"] = {QUEUE: config.queue}
    if not shared:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": _job(job, name, hosts=[]),
        }
    hosts = [f"{name}-{_WORKERS}-0-{index}.{name}:{PORT}" for index in range(config.nodes)]
    worker = {
        "name": _WORKERS,
        "replicas": 1,
        "template": {"spec": _job(job, name, hosts=hosts)},
    }
    network = {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True}
    return {
        "apiVersion": JOBSET,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"network": network, "replicatedJobs": [worker]},
    }


def mounts(job: Job) -> Mapping[str, str]:
    """Returns the persistent volume claims by mount path."""
    pairs = (each.partition(":") for each in job.config.volumes)
    return {str(PurePosixPath(path)): claim for claim, _, path in pairs}


def _job(job: Job, name: str, *, hosts: list[str]) -> _Object:
    """Returns a Job's specification. `hosts` are the workers of one run, each in a pod."""
    pods = job.config.nodes
    many = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    return {
        **(many if pods > 1 else {}),
        "backoffLimit": job.config.tries * pods,
        "podFailurePolicy": {"rules": list(_rules())},
        "template": {"spec": _pod(job, name, hosts)},
    }


def _rules() -> Iterator[_Object]:
    """Yields the rules for a pod's exit. The first match applies, and no match is a failure.

    Final exit codes come first, because a pod that gives up after a preemption is also a preempted
    pod.
    """
    yield {"action": "FailJob", "onExitCodes": _ends(_FINAL)}
    preempted = {"type": "DisruptionTarget", "status": "True"}
    yield {"action": "Ignore", "onPodConditions": [preempted]}
    yield {"action": "Ignore", "onExitCodes": _ends([start.PREEMPTED])}


def _ends(codes: list[int]) -> _Object:
    return {"containerName": _CONTAINER, "operator": "In", "values": codes}


def _pod(job: Job, name: str, hosts: list[str]) -> _Object:
    config, claims = job.config, list(mounts(job).values())
    volume = {claim: f"volume-{index}" for index, claim in enumerate(dict.fromkeys(claims))}
    pod: _Object = {
        "restartPolicy": "Never",  # required by a podFailurePolicy
        "terminationGracePeriodSeconds": config.grace_seconds,
    }
    if seconds := text.seconds(config.time):
        pod["activeDeadlineSeconds"] = seconds
    if config.service_account:
        pod["serviceAccountName"] = config.service_account
    if config.node_labels:
        pairs = (each.partition("=") for each in config.node_labels)
        pod["nodeSelector"] = {label: value for label, _, value in pairs}
    if claims:
        pod["securityContext"] = {
            "fsGroup": _GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",  # does not check all files at each start
        }
        pod["volumes"] = [
            {"name": each, "persistentVolumeClaim": {"claimName": claim}}
            for claim, each in volume.items()
        ]
    seen = [{"name": volume[claim], "mountPath": path} for path, claim in mounts(job).items()]
    if config.evaluator:
        pod["initContainers"] = [_evaluator(job, seen)]
    main = _container(job, _CONTAINER, _command(job, name, hosts), seen)
    main["env"] = [*main.get("env", []), *_cluster(hosts)]
    main["resources"] = _resources(config)
    if hosts:
        main["ports"] = [{"containerPort": PORT}]
    pod["containers"] = [{field: value for field, value in main.items() if value}]
    return pod


def _container(job: Job, name: str, command: list[str], seen: list[_Object]) -> _Object:
    """Returns the settings that the containers of a pod share."""
    variables = (each.partition("=") for each in job.config.environment)
    made: _Object = {
        "name": name,
        "image": job.config.image,
        "command": [_verbatim(word) for word in command],
        "env": [
            {"name": name, "value": _verbatim(value if equals else os.environ[name])}
            for name, equals, value in variables
        ],
        "envFrom": [{"secretRef": {"name": each}} for each in job.config.secret_names],
        "volumeMounts": seen,
    }
    return {field: value for field, value in made.items() if value}


def _verbatim(value: str) -> str:
    """Escapes a value for Kubernetes, which expands `$(NAME)` and turns `$$` into `$`."""
    return value.replace("$", "$$")


def _command(job: Job, name: str, hosts: list[str]) -> list[str]:
    logs = job.folder / layout.LAUNCH if job.folder else Path("/tmp", layout.LAUNCH)
    shared = job.config.nodes > 1
    first = ["python", "-m", "runner.launch.start", "--launcher=kubernetes", f"--logs={logs}"]
    first += [f"--job={name}", f"--tries={job.config.tries}"]
    first += [f"--folder={job.folder}"] if job.folder else []
    first += ["--by_status"] if shared and hosts and job.is_training else []
    return [*first, "--", "python", "-m", "runner", *job.arguments]


def _evaluator(job: Job, seen: list[_Object]) -> _Object:
    """Evaluates alongside training in the same pod, and then until the last checkpoint is done."""
    flags = [each for each in job.arguments if _CONFIGURING.match(each)]
    if job.config.gpus:  # they belong to the other container
        flags.append("--params_override=runtime.num_gpus=0")
    command = ["python", "-m", "runner", "--mode=continuous_eval", *flags]
    # The pod is terminated as soon as training has ended. The sleep delays the signal until
    # the evaluator has ended, too.
    wait = {"exec": {"command": ["sleep", str(job.config.grace_seconds)]}}
    return {
        **_container(job, "evaluator", command, seen),
        "restartPolicy": "Always",
        "lifecycle": {"preStop": wait},
    }


def _cluster(hosts: list[str]) -> list[_Object]:
    """Returns the variables that tell TensorFlow about the workers and its own index."""
    if not hosts:
        return []
    cluster = json.dumps({"worker": hosts})
    task = '{"type": "worker", "index": $(WORKER_INDEX)}'
    return [
        {"name": "WORKER_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "TF_CONFIG", "value": f'{{"cluster": {cluster}, "task": {task}}}'},
    ]


def _resources(config: Any) -> _Object:
    """Returns a pod's resource requests. For GPUs and memory they are also its limits."""
    memory = {"memory": f"{round(config.memory_gb * 1024)}Mi"} if config.memory_gb else {}
    requests = {**({"cpu": str(config.cpus)} if config.cpus else {}), **memory}
    limits = {**memory, **({_GPU: str(config.gpus)} if config.gpus else {})}
    both = {"requests": requests, "limits": limits}
    return {kind: values for kind, values in both.items() if values}
