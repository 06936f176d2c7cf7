"""Ray as the place where commands run: each is a core task with a process of its own on some node.

    with ray_connection.connected(job) as cluster:
        task = cluster.start(["--mode=train", ...], output, None)

What a command has to say is in its folder, which all nodes see: nothing but its exit code comes
back through Ray. Ray does not start a task again: whoever started it does, by what the folder says.
No TensorFlow.
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
    """The place where a study's trials run: the nodes of a cluster of Ray.

    Args:
        ray: The library, connected.
        job: What is launched; a trial gets what its `LaunchConfig` says.

    Attributes:
        program: What Python runs with a command's flags.
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
        """What there is room for now."""
        fitting = sum(_times(self._needs, node["Resources"]) for node in self._nodes())
        count = min(jobs or fitting, max(trials, 1))
        return places.Room(max(count, 1), int(self._needs["CPU"]))

    def has_memory(self, jobs: Sequence[places.Job]) -> bool:
        """True: Ray counts the memory that `LaunchConfig.memory_gb` asks for."""
        del jobs
        return True

    def start(
        self, arguments: Sequence[str], output: Path, gpu: str | None, *, answer: Path | None = None
    ) -> ray_process.Task:
        """Starts the command with these arguments on some node, now or when one is free.

        Args:
            arguments: Its flags.
            output: The file for all that it prints.
            gpu: Not used: Ray chooses.
            answer: The file for its stdout; None: the same.
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
        """Checks that nodes can run what is launched.

        Raises:
            ConfigError: none is large enough, or one does not see a folder or has no runner.
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
                    "same one there"
                ) from error
            except self._ray.exceptions.RayError:  # the node has just gone
                continue
            if missing:
                raise ConfigError(
                    f"node {name} of the Ray cluster does not see {' and '.join(missing)}: use "
                    "folders that all nodes share, under the same paths"
                )

    @property
    def described(self) -> str:
        """`on the Ray cluster at 10.0.0.1:6379: 2 nodes, 8 CPUs, 2 GPUs`."""
        nodes = self._nodes()
        found = [text.counted(len(nodes), "node")]
        for kind in ("CPU", "GPU"):
            if count := sum(node["Resources"].get(kind, 0) for node in nodes):
                found.append(text.counted(int(count), kind))
        return f"on the Ray cluster at {self._address}: {', '.join(found)}"

    def _nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive.

        Raises:
            RunnerError: that of this machine is not, without which no task can be started.
        """
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        own = self._ray.get_runtime_context().get_node_id()
        if all(node["NodeID"] != own for node in alive):
            raise RunnerError(
                "the Ray node of this machine is gone; rerun the command once there is one"
            )
        return alive

    def _on(self, node: Mapping[str, Any]) -> Any:
        """Runs a task on a certain node, or nowhere."""
        from ray.util import scheduling_strategies

        return scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)

    def _too_much(self, nodes: Sequence[Mapping[str, Any]]) -> str:
        """Why nothing could ever start: Ray would wait for ever."""
        for kind, (field, unit) in _FIELDS.items():
            most = max((node["Resources"].get(kind, 0) for node in nodes), default=0)
            if self._needs[kind] > most:
                given = getattr(self._job.config, field)
                return (
                    f"LaunchConfig.{field} = {given}: no node of the Ray cluster has more than "
                    f"{most / unit:.3g}"
                )
        return (
            "no node of the Ray cluster has all that LaunchConfig asks for: cpus, gpus, memory_gb"
        )


_FIELDS = {"CPU": ("cpus", 1), "GPU": ("gpus", 1), "memory": ("memory_gb", _GIB)}


def _needs(config: Any) -> dict[str, float]:
    """What a command needs of a node, by Ray's names."""
    return {"CPU": config.cpus or 1, "GPU": config.gpus, "memory": config.memory_gb * _GIB}


def _environment(job: Job) -> dict[str, str]:
    """What `LaunchConfig.environment` names: nothing else of this process's is sent."""
    named = [each for each in job.config.environment if "=" not in each]
    return {**{name: os.environ[name] for name in named}, **job.set_here}


def _options(needs: Mapping[str, float]) -> dict[str, Any]:
    memory = {"memory": int(needs["memory"])} if needs["memory"] else {}
    return {"num_cpus": needs["CPU"], "num_gpus": needs["GPU"], **memory}


def _times(needs: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """How often what is needed fits into a node."""
    return int(min(resources.get(kind, 0) // each for kind, each in needs.items() if each))
