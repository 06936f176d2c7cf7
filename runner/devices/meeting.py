"""The workers of a run meet before TensorFlow connects them, and see that they belong together.

TensorFlow waits for a missing worker without a word, and finds out about different configurations
by hanging or by training nonsense. So the others call on the chief's port first: each says what it
would train with, and the chief tells all of them whether they can go on. Standard library only.
"""

import contextlib
import errno
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.devices.cluster import Cluster
from runner.errors import ConfigError, RunnerError

_TAKEN_SECONDS = 10.0  # an earlier start of this run may still be leaving its port
_CALL_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_FIELD = "RunConfig.workers_timeout"

Facts = Mapping[str, Mapping[str, str]]
"""What has to be the same for all: by subject (such as `configuration`) and name.

An empty value is not known, and agrees with every other.
"""


def meet(cluster: Cluster, facts: Facts, *, seconds: float) -> None:
    """Returns when all workers are there and have the same `facts`.

    Args:
        cluster: The workers.
        facts: This worker's.
        seconds: How long to wait for all of them.

    Raises:
        ConfigError: workers differ, or two say that they are the same one.
        RunnerError: one did not come in time; all that came are told which.
    """
    end = time.monotonic() + seconds
    if not cluster.is_chief:
        _call(cluster, {"index": cluster.index, "size": cluster.size, "facts": facts}, end, seconds)
        return
    with contextlib.ExitStack() as lines:
        door = lines.enter_context(_listener(cluster))
        calls: list[socket.socket] = []
        answer: dict[str, Any] = {"error": f"{cluster.name(0)} was stopped", "code": 1}
        try:
            came: dict[int, Facts] = {}
            for call, said in _arrivals(cluster, door, lines, end, seconds):
                calls.append(call)
                came[_index(cluster, said, came)] = said["facts"]
            _compare(cluster, facts, came)
            answer = {}
        except RunnerError as error:
            answer = {"error": str(error), "code": error.exit_code}
            raise
        finally:
            for call in calls:
                with contextlib.suppress(OSError):
                    call.sendall(json.dumps(answer).encode() + b"\n")


def _listener(cluster: Cluster) -> socket.socket:
    """The chief's port."""
    port = int(cluster.hosts[0].rpartition(":")[2])
    end = time.monotonic() + _TAKEN_SECONDS
    while True:
        try:
            return socket.create_server(("", port), backlog=cluster.size)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RunnerError(f"{cluster.name(0)} cannot listen: {error.strerror}") from error
            if time.monotonic() > end:
                raise RunnerError(
                    f"{cluster.name(0)}: port {port} is taken on this machine: by another chief, "
                    "or by another program"
                ) from error
        time.sleep(_AGAIN_SECONDS)


def _arrivals(
    cluster: Cluster,
    door: socket.socket,
    lines: contextlib.ExitStack,
    end: float,
    seconds: float,
) -> Iterator[tuple[socket.socket, Mapping[str, Any]]]:
    """The calls of the others, with what each says, until all have come."""
    missing = set(range(1, cluster.size))
    while missing:
        door.settimeout(max(end - time.monotonic(), 0.001))
        try:
            call, _ = door.accept()
        except TimeoutError as error:
            names = ", ".join(map(cluster.name, sorted(missing)))
            raise RunnerError(f"{names} did not come within {seconds:g} s ({_FIELD})") from error
        lines.enter_context(call)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a stranger
            said = _read(call)
            missing.discard(int(said["index"]))
            yield call, said


def _index(cluster: Cluster, said: Mapping[str, Any], came: Mapping[int, Facts]) -> int:
    """Which worker a call is of."""
    index, size = int(said["index"]), said["size"]
    if size != cluster.size:
        raise ConfigError(
            f"worker {index} expects {size} workers, and {cluster.name(0)} {cluster.size}"
        )
    if index in came or not 0 < index < size:
        raise ConfigError(f"two processes say that they are {cluster.name(index)}")
    return index


def _compare(cluster: Cluster, facts: Facts, came: Mapping[int, Facts]) -> None:
    for index, theirs in sorted(came.items()):
        for subject, mine in facts.items():
            if names := _differing(mine, theirs.get(subject, {})):
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                raise ConfigError(
                    f"{cluster.name(index)} has other {subject} than {cluster.name(0)}: "
                    f"{', '.join(names[:3])}{more}"
                )


def _differing(mine: Mapping[str, str], theirs: Mapping[str, str]) -> Sequence[str]:
    def differs(name: str) -> bool:
        values = {mine.get(name), theirs.get(name)}
        return len(values) > 1 and "" not in values

    return [name for name in sorted({*mine, *theirs}) if differs(name)]


def _call(cluster: Cluster, said: Mapping[str, Any], end: float, seconds: float) -> None:
    """Calls on the chief until it answers."""
    host, _, port = cluster.hosts[0].rpartition(":")
    while True:
        with contextlib.suppress(OSError, ValueError):  # nobody is there yet, or not the chief
            left = max(end - time.monotonic(), 0.001)
            address = (host.strip("[]"), int(port))
            with socket.create_connection(address, timeout=min(left, _CALL_SECONDS)) as line:
                line.sendall(json.dumps(said).encode() + b"\n")
                answer = _read(line, seconds=left + _CALL_SECONDS)  # it waits for others, too
                break
        if time.monotonic() > end:
            raise RunnerError(
                f"{cluster.name(0)}, the chief, did not answer within {seconds:g} s ({_FIELD})"
            )
        time.sleep(_AGAIN_SECONDS)
    if "error" in answer:
        kind = ConfigError if answer.get("code") == ConfigError.exit_code else RunnerError
        raise kind(answer["error"])


def _read(line: socket.socket, *, seconds: float = _CALL_SECONDS) -> Mapping[str, Any]:
    line.settimeout(seconds)
    with line.makefile("rb") as file:
        said = json.loads(file.readline())
    if not isinstance(said, dict):
        raise ValueError(f"{said!r} is not what a worker says")
    return said
