"""The Ray executor: runs each command as a core task in a separate process on some node.

    with ray_connection.connected(job) as cluster:
        task = cluster.start(["--mode=train", ...], output, None)

Only a command's exit code comes back through Ray. All other results are in its directory, which all
nodes share. Ray does not retry tasks. The caller does, based on the contents of the directory. No
TensorFlow.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import text
from runner.errors import ConfigError, RunnerError
from runner.launch import ray_process, ray_task
from runner.launch.job import Job
from runner.studies import places

_PROBE_SECONDS = 120.0
_GIB = 2**30


class Cluster:
    """The executor of a study's trials on the nodes of a Ray cluster.

    Args:
        ray: The library, connected.
        job: The job to launch. A trial gets the resources of its `LaunchConfig`.

    Attributes:
        program: The Python arguments before a command's flags.
    """

    forks = False
    program: Sequence[str] = ("-m", "runner")

    def __init__(self, ray: Any, job: Job) -> None:
        self._ray = ray
        self._job = job
        self._needs = _needs(job.config)
        self._environment = _environment(job)
        self._address: str = ray.get_runtime_context().gcs_address
        self._run = ray.remote(ray_task.run).options(max_retries=0, **_options(self._needs))

    def room(self, jobs: int, trials: int) -> places.Room:
        """Returns the current capacity."""
        fitting = sum(_times(self._needs, node["Resources"]) for node in self._nodes())
        count = min(jobs or fitting, max(trials, 1))
        return places.Room(max(count, 1), int(self._needs["CPU"]))

    def has_memory(self, jobs: Sequence[places.Job]) -> bool:
        """Returns True, because Ray manages the memory of `LaunchConfig.memory_gb`."""
        del jobs
        return True

    def start(
        self, arguments: Sequence[str], output: Path, gpu: str | None, *, answer: Path | None = None
    ) -> ray_process.Task:
        """Starts the command with these arguments on some node, now or when one is free.

        Args:
            arguments: Its flags.
            output: The file for its output.
            gpu: Unused. Ray chooses.
            answer: The file for its stdout, or None to use `output`.
        """
        del gpu
        output.write_bytes(b"")
        command = ray_task.Command(
            [*self.program, *arguments],
            str(self._job.work_dir),
            self._environment,
            str(output.absolute()),
            str(answer.absolute()) if answer else "",
        )
        return ray_process.Task(self._ray, self._run.remote(command), output, self._address)

    def check(self, folder: Path) -> None:
        """Checks that the nodes can run the job.

        Raises:
            ConfigError: no node is large enough, or a node lacks a directory or the runner.
        """
        nodes = self._nodes()
        if not any(_times(self._needs, node["Resources"]) for node in nodes):
            raise ConfigError(self._too_much(nodes))
        places_of = folder.absolute(), *folder.absolute().parents
        folders = [str(self._job.work_dir), str(next(each for each in places_of if each.is_dir()))]
        asked = {
            self._ray.remote(ray_task.missing)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=self._on(node))
            .remote(folders): node
            for node in nodes
        }
        for ref, node in asked.items():
            name = node["NodeManagerHostname"]
            try:
                missing = self._ray.get(ref, timeout=_PROBE_SECONDS)
            except self._ray.exceptions.RayTaskError as error:
                why = ray_process.cause(error)
                raise ConfigError(
                    f"node {name} of the Ray cluster cannot run this runner ({why}): install the "
                    "same version there"
                ) from error
            except self._ray.exceptions.RayError:  # the node has just disappeared
                continue
            if missing:
                raise ConfigError(
                    f"node {name} of the Ray cluster cannot access {' and '.join(missing)}: use "
                    "directories that all nodes share, under the same paths"
                )

    @property
    def described(self) -> str:
        """A description: `on the Ray cluster at 10.0.0.1:6379: 2 nodes, 8 CPUs, 2 GPUs`."""
        nodes = self._nodes()
        found = [text.counted(len(nodes), "node")]
        for kind in ("CPU", "GPU"):
            if count := sum(node["Resources"].get(kind, 0) for node in nodes):
                found.append(text.counted(int(count), kind))
        return f"on the Ray cluster at {self._address}: {', '.join(found)}"

    def _nodes(self) -> list[dict[str, Any]]:
        """Returns the live nodes.

        Raises:
            RunnerError: this machine's node is not alive, so no task can be started.
        """
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        own = self._ray.get_runtime_context().get_node_id()
        if all(node["NodeID"] != own for node in alive):
            raise RunnerError(
                "the Ray node of this machine is gone; rerun the command once one is running"
            )
        return alive

    def _on(self, node: Mapping[str, Any]) -> Any:
        """Pins a task to a node. The task does not run on any other node."""
        from ray.util import scheduling_strategies

        return scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)

    def _too_much(self, nodes: Sequence[Mapping[str, Any]]) -> str:
        """Explains why no task could start. Ray would wait forever."""
        for kind, (field, unit) in _FIELDS.items():
            most = max((node["Resources"].get(kind, 0) for node in nodes), default=0)
            if self._needs[kind] > most:
                given = getattr(self._job.config, field)
                return (
                    f"LaunchConfig.{field} = {given}: no node of the Ray cluster has more than "
                    f"{most / unit:.3g}"
                )
        return (
            "no node of the Ray cluster has all the resources that LaunchConfig requests (cpus, "
            "gpus and memory_gb)"
        )


_FIELDS = {"CPU": ("cpus", 1), "GPU": ("gpus", 1), "memory": ("memory_gb", _GIB)}


def _needs(config: Any) -> dict[str, float]:
    """Returns the resources that a command needs on a node, by Ray's names."""
    return {"CPU": config.cpus or 1, "GPU": config.gpus, "memory": config.memory_gb * _GIB}


def _environment(job: Job) -> dict[str, str]:
    """Returns the variables of `LaunchConfig.environment`. No others are sent."""
    named = [each for each in job.config.environment if "=" not in each]
    return {**{name: os.environ[name] for name in named}, **job.set_here}


def _options(needs: Mapping[str, float]) -> dict[str, Any]:
    memory = {"memory": int(needs["memory"])} if needs["memory"] else {}
    return {"num_cpus": needs["CPU"], "num_gpus": needs["GPU"], **memory}


def _times(needs: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """Returns how many times the required resources fit on a node."""
    return int(min(resources.get(kind, 0) // each for kind, each in needs.items() if each))
