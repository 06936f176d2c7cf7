"""`--workers`: runs a command on several fault-tolerant workers. No TensorFlow."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.core import layout, signals
from runner.devices import cluster
from runner.errors import ConfigError
from runner.launch import supervisor
from runner.launch.bounds import Bounds
from runner.launch.slots import Slots
from runner.studies import places

PROGRAM = ("-m", "runner")
"""The Python arguments of a worker."""


def machines(options: Any) -> cluster.Cluster | None:
    """Returns the machines from a mode's options or the environment, and the index of this one.

    Raises:
        ConfigError: the list of machines is not valid.
    """
    index = options.task_index
    return cluster.find(os.environ, options.worker_hosts, -1 if index is None else index)


def supervise(
    options: Any,
    folder: Path,
    arguments: Sequence[str],
    stop: signals.Stop,
    warm_up: Callable[[], object] | None = None,
) -> int:
    """Runs a command with `--workers` and returns its exit code.

    Args:
        options: The mode's options.
        folder: The run's directory.
        arguments: The command's arguments for each worker.
        stop: Reports whether a signal has arrived.
        warm_up: See `runner.launch.supervisor.Plan`.

    Raises:
        ConfigError: there are fewer machines or GPUs than workers, or the list of machines is
            missing.
        RunnerError: see `runner.launch.supervisor.supervise`.
    """
    bounds = Bounds.parse(options.workers)
    found = machines(options)
    if found is None and options.task_index is not None:
        raise ConfigError(
            f"--task_index={options.task_index} needs the list of machines: pass --worker_hosts"
        )
    command = [sys.executable, *PROGRAM, *arguments]
    layout.check(folder)
    if found is None or found.size == 1:
        slots = Slots(bounds.most, gpus=places.gpus())
        plan = supervisor.Plan(command, folder, bounds, slots, warm_up=warm_up)
        return supervisor.supervise(plan, stop)
    if bounds.most > found.size:
        raise ConfigError(
            f"--workers={options.workers}, but there are only {found.size} machines, and each runs "
            "one worker"
        )
    slots = Slots(1, found.hosts[found.index])
    plan = supervisor.Plan(command, folder, bounds, slots, found.hosts, found.index, warm_up)
    return supervisor.supervise(plan, stop)
