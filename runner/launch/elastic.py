"""`--workers`: the same command, on several workers that are kept going. No TensorFlow."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.core import layout, signals
from runner.devices import cluster
from runner.errors import ConfigError
from runner.launch import supervisor
from runner.launch.bounds import Bounds
from runner.launch.slots import Slots
from runner.studies import places

PROGRAM = ("-m", "runner")
"""What a worker runs."""


def machines(given: argparse.Namespace) -> cluster.Cluster | None:
    """The machines that the flags or the environment name, and which of them this one is.

    Raises:
        ConfigError: they are not named well.
    """
    hosts = getattr(given, "worker_hosts", None)
    index = getattr(given, "task_index", None)
    if index and not index.isdecimal():
        raise ConfigError(f"--task_index={index}: expected a number")
    return cluster.find(os.environ, hosts, int(index) if index else -1)


def supervise(given: argparse.Namespace, arguments: Sequence[str], stop: signals.Stop) -> int:
    """Runs a command with `--workers`; its exit code.

    Args:
        given: Its flags.
        arguments: Those of the command of each worker.
        stop: Whether a signal has come.

    Raises:
        ConfigError: there are fewer machines, or GPUs, than workers; or the machines are not named.
        RunnerError: see `runner.launch.supervisor.supervise`.
    """
    bounds, folder = Bounds.parse(given.workers), Path(given.model_dir)
    found = machines(given)
    if found is None and given.task_index:
        raise ConfigError(
            f"--task_index={given.task_index}: of which machines? give --worker_hosts"
        )
    command = [sys.executable, *PROGRAM, *arguments]
    layout.check(folder)
    if found is None or found.size == 1:
        slots = Slots(bounds.most, gpus=places.gpus())
        return supervisor.supervise(supervisor.Plan(command, folder, bounds, slots), stop)
    if bounds.most > found.size:
        raise ConfigError(
            f"--workers={given.workers}, but there are {found.size} machines, and each has one "
            "worker of the run"
        )
    slots = Slots(1, found.hosts[found.index])
    plan = supervisor.Plan(command, folder, bounds, slots, found.hosts, found.index)
    return supervisor.supervise(plan, stop)
