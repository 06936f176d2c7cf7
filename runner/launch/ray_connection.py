"""Connects this process to a Ray cluster as a driver. No TensorFlow."""

import contextlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.core import console, heartbeat, http2, installation, signals, text
from runner.errors import ConfigError, RunnerError
from runner.launch import ray_process
from runner.launch.job import Job
from runner.launch.ray import Cluster

_STORE_BYTES = 80_000_000  # of a cluster that is started here and stores no objects
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 2.0
_RAYS_PATIENCE, _RAYS_SECONDS = "RAY_gcs_rpc_server_reconnect_timeout_s", 60.0


@contextlib.contextmanager
def connected(job: Job) -> Iterator[Cluster]:
    """Makes this process a driver of a cluster within the block.

    It uses the cluster at `LaunchConfig.address`, at $RAY_ADDRESS, or on this machine. If there is
    none, it starts one here that ends with the block.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"--launch=ray: ray is not installed: {installation.command_for('ray')}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _own_signals():
        import ray

        _connect(ray, job.config.address)
    try:
        answers = sys.stdout

        def answer(_: object) -> None:
            sys.stdout = answers

        head = _Head(ray.get_runtime_context().gcs_address, job.stop)
        # Ray prints pages about a lost node to stdout, which is reserved for the answer.
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            job.stop.abandoning(answer),
            heartbeat.beating(head.look, seconds=_LOOK_SECONDS, waits=False),
        ):
            yield Cluster(ray, job)
    finally:
        with _own_signals():
            ray.shutdown()


@contextlib.contextmanager
def place(job: Job) -> Iterator[Cluster]:
    """Yields the checked executor of a study's trials on the cluster's nodes."""
    with connected(job) as cluster:
        cluster.check(job.folder or job.work_dir)
        console.say(cluster.described)
        yield cluster


class _Head:
    """The head of a cluster. If it is lost, Ray's calls block, and after a while Ray aborts.

    Args:
        address: Its address.
        stop: Abandons the process.
    """

    def __init__(self, address: str, stop: signals.Stop) -> None:
        self._address = address
        self._stop = stop
        self._patience = 2 / 3 * float(os.environ.get(_RAYS_PATIENCE, _RAYS_SECONDS))
        self._answered = time.monotonic()

    def look(self) -> None:
        """Ends the process if the head has not answered for too long."""
        if ray_process.answers(self._address):
            self._answered = time.monotonic()
        elif (silence := time.monotonic() - self._answered) > self._patience:
            self._stop.abandon(
                RunnerError(
                    f"the head of the Ray cluster at {self._address} has not answered for "
                    f"{text.duration(silence)}; rerun the command once it is back"
                )
            )


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    given = f"LaunchConfig.address = {address!r}" if address else "--launch=ray"
    if not address and (address := os.environ.get("RAY_ADDRESS", "")):
        given = f"RAY_ADDRESS={address}"
    if "://" in address:
        raise ConfigError(
            f"{given}: use the address of the cluster itself, such as 10.0.0.1:6379, and run the "
            "command on one of its machines"
        )
    is_here = address in ("", "auto", "local")
    try:
        if is_here:
            _connect_here(ray, address or "auto", quiet)
        else:
            _check_answers(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(f"{given}: {_failure(error, is_here=is_here)}") from error


def _check_answers(address: str) -> None:
    """Raises OSError if there is no cluster at an address. Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_SECONDS) as connection:
        encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
        if not encrypted and not http2.is_spoken(connection):
            raise ConnectionError("another program listens there")


def _failure(error: Exception, *, is_here: bool) -> str:
    """Explains in one line why there is no connection."""
    if str(error).startswith("Version mismatch"):  # of Ray or Python, on several lines
        return " ".join(str(error).split())
    what = "Ray cannot start here" if is_here else "no Ray cluster answers at this address"
    return f"{what} ({ray_process.cause(error)})"


def _connect_here(ray: Any, address: str, quiet: Mapping[str, Any]) -> None:
    """Connects to the cluster of this machine, or starts one."""
    if address == "auto":
        with contextlib.suppress(ConnectionError):
            ray.init(address=address, **quiet)
            return
    ray.init(address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
    console.say("started a Ray cluster for this command, because none runs on this machine")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restores the signal handlers after the block, because Ray replaces the one of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
