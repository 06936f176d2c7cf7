"""Finds the processes that train one run together, and the index of this process.

The description comes from TF_CONFIG, from Model Garden's `RuntimeConfig.worker_hosts` and
`task_index`, or from Slurm. Standard library only.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.errors import ConfigError

_FORM = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
_FIRST_PORT = 12_000
_PORTS = 20_000
_OTHERS = ("evaluator", "ps")  # tasks that do not train


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of one run.

    Attributes:
        hosts: `name:port` of each worker. The first is the chief.
        index: The index of this process among them.
    """

    hosts: tuple[str, ...]
    index: int

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.hosts)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes and decides."""
        return self.index == 0

    def __str__(self) -> str:
        return f"worker {self.index} of {self.size}"

    def name(self, index: int) -> str:
        """Returns a worker's name in messages: `worker 1 (b:2222)`."""
        return f"worker {index} ({self.hosts[index]})"

    def tf_config(self) -> str:
        """Returns the value of the environment variable TF_CONFIG for TensorFlow."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task})


def find(
    environ: Mapping[str, str], worker_hosts: str | None = None, task_index: int = -1
) -> Cluster | None:
    """Returns this process's cluster, or None for a single process or a TF_CONFIG's evaluator.

    Args:
        environ: The environment. TF_CONFIG has priority over `worker_hosts`, and that over Slurm.
        worker_hosts: `name:port` of each worker, separated by commas.
        task_index: The index of this process among them.

    Raises:
        ConfigError: if they do not describe a cluster.
    """
    if (text := environ.get("TF_CONFIG", "").strip()) not in ("", "{}"):
        return _of_tf_config(text)
    if worker_hosts:
        hosts = [each.strip() for each in worker_hosts.split(",")]
        index = 0 if len(hosts) == 1 else task_index
        if index < 0:
            raise ConfigError(
                f"RuntimeConfig.task_index, or --task_index, is missing: which of {len(hosts)} "
                f"workers is this, from 0 to {len(hosts) - 1}?"
            )
        return _checked(hosts, index, "RuntimeConfig.worker_hosts")
    return _of_slurm(environ)


def _of_tf_config(text: str) -> Cluster | None:
    try:
        found = json.loads(text)
        jobs, task = found.get("cluster", {}), found.get("task", {})
        hosts = [*jobs.get("chief", []), *jobs.get("worker", [])]
        kind, index = task.get("type", "worker"), int(task.get("index", 0))
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"TF_CONFIG cannot be read ({error}); expected {_FORM}") from error
    if jobs.get("ps") or kind == "ps":
        raise ConfigError("TF_CONFIG names parameter servers (ps), which are not supported")
    if not hosts or kind in _OTHERS:
        return None
    if kind not in ("chief", "worker"):
        raise ConfigError(f"TF_CONFIG: the task's type {kind!r} is not chief, worker or evaluator")
    if kind == "worker":
        index += len(jobs.get("chief", []))
    return _checked(hosts, index, "TF_CONFIG")


def _checked(hosts: list[Any], index: int, where: str) -> Cluster:
    """Returns the cluster if it is valid."""
    for host in hosts:
        if not re.fullmatch(r"(\[[\da-fA-F:.]+\]|[^\s:/]+):\d{1,5}", str(host)):
            raise ConfigError(f"{where}: {host!r} is not a host and a port, such as node1:2222")
    if twice := next((host for host in hosts if hosts.count(host) > 1), ""):
        raise ConfigError(f"{where} names {twice} twice; each worker needs its own port")
    if not 0 <= index < len(hosts):
        raise ConfigError(
            f"{where}: of {len(hosts)} workers, this one's index must be from 0 to "
            f"{len(hosts) - 1}, not {index}"
        )
    return Cluster(tuple(map(str, hosts)), index)


def _of_slurm(environ: Mapping[str, str]) -> Cluster | None:
    """Returns the cluster of a step that `srun` has started, with one worker per task."""
    try:
        size = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
        if size < 2 or "SLURM_STEP_NODELIST" not in environ:
            return None
        index, job = int(environ["SLURM_PROCID"]), int(environ["SLURM_JOB_ID"])
        tasks = list(_expanded(environ["SLURM_STEP_TASKS_PER_NODE"]))
        nodes = host_names(environ["SLURM_STEP_NODELIST"])
    except (KeyError, ValueError) as error:
        raise ConfigError(f"Slurm's environment cannot be read: {error}") from error
    port = _FIRST_PORT + job % _PORTS
    hosts = [
        f"{node}:{port + number}"
        for node, count in zip(nodes, tasks, strict=False)
        for number in range(count)
    ]
    if len(hosts) != size:
        raise ConfigError(f"Slurm's step has {size} tasks, but its nodes have {len(hosts)}")
    return _checked(hosts, index, "Slurm's environment")


def _expanded(counts: str) -> Iterator[int]:
    """Yields Slurm's `2(x3),1` as 2, 2, 2, 1."""
    for each in counts.split(","):
        count, _, times = each.partition("(x")
        yield from [int(count)] * int(times.rstrip(")") or 1)


def host_names(text: str) -> list[str]:
    """Returns Slurm's `n[1-2,05],login` as n1, n2, n05, login."""
    found: list[str] = []
    for each in re.findall(r"(?:[^,\[]+(?:\[[^\]]*\])?)+", text):
        names = [""]
        for literal, numbers in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", each):
            ends = [literal] if literal else list(_numbers(numbers))
            names = [name + end for name in names for end in ends]
        found += names
    return found


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
