"""The rendezvous of a run's workers before TensorFlow connects them.

TensorFlow waits silently for a missing worker. Workers with different configurations hang or train
nonsense. Each worker therefore first checks that its port is free, connects to the chief and sends
the facts of its training. The chief tells all workers whether to continue. The connections stay
open until TensorFlow has connected the workers, so that an earlier end of a worker is detected at
once. Standard library only.
"""

import contextlib
import errno
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from runner.core import signals
from runner.devices.cluster import Cluster
from runner.errors import ConfigError, RunnerError

_TAKEN_SECONDS = 10.0  # an earlier attempt of this run may still be leaving its port
_CALL_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_PROBE_SECONDS = 1.0
_LOOK_SECONDS = 0.01
_LONGEST = 1 << 24  # limit for a worker's message, in bytes
FIELD = "RunConfig.workers_timeout"
"""The field that sets how long workers wait for each other."""

_FORMED = {"formed": True}

Facts = Mapping[str, Mapping[str, str]]
"""The facts that must be the same for all, by subject (such as `configuration`) and name.

An empty value is unknown and matches any other.
"""


class Lines:
    """The open connections of a worker: from the chief to all others, or from another to the chief.

    Args:
        cluster: The workers.
        lines: The connections by the number of the worker at the other end.
    """

    def __init__(self, cluster: Cluster, lines: Mapping[int, "_Line"]) -> None:
        self._cluster = cluster
        self._lines = dict(lines)
        self._connected: set[int] = set()

    def check(self) -> None:
        """Checks the connections without waiting.

        Raises:
            RunnerError: if another worker has ended before TensorFlow had connected it, or has
                failed.
            signals.Interrupted: if another worker was stopped by a signal.
        """
        for index, line in self._lines.items():
            try:
                said = line.heard()
            except (OSError, ValueError) as error:
                raise RunnerError(
                    f"{self._cluster.name(index)} was lost before all workers were connected; "
                    "rerun the command on all workers"
                ) from error
            _raise_told(said or {})
            if said:
                self._connected.add(index)

    def agree(self, *, seconds: float, check: Callable[[], object]) -> None:
        """Waits until TensorFlow has also connected all others. Raises like the method `check`.

        Args:
            seconds: The maximum time.
            check: Called repeatedly. An exception that it raises ends the waiting.
        """
        if not self._cluster.is_chief:
            self.tell(_FORMED)
        end = time.monotonic() + seconds
        while True:
            self.check()
            missing = sorted(self._lines.keys() - self._connected)
            if not missing:
                return
            check()
            if time.monotonic() > end:
                names = ", ".join(map(self._cluster.name, missing))
                raise RunnerError(f"{names} was not connected within {seconds:g} s ({FIELD})")
            time.sleep(_LOOK_SECONDS)

    def unreachable(self) -> list[str]:
        """Returns the names of the other workers whose ports do not accept connections."""
        others = (index for index in range(self._cluster.size) if index != self._cluster.index)
        return [self._cluster.name(index) for index in others if not _answers(self._cluster, index)]

    def tell(self, said: Mapping[str, Any]) -> None:
        """Sends a message to all workers at the other ends."""
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.say(said)


@contextlib.contextmanager
def met(
    cluster: Cluster,
    facts: Facts,
    *,
    seconds: float,
    check: Callable[[], object] = lambda: None,
) -> Iterator[Lines]:
    """Waits for all workers with the same `facts`, then yields for TensorFlow to connect them.

    The block ends once all are connected, or with an error that a worker reports. In the block, the
    port of this worker is free.

    Args:
        cluster: The workers.
        facts: The facts of this worker.
        seconds: How long to wait for all workers.
        check: Called repeatedly while this waits. An exception that it raises ends the waiting.

    Raises:
        ConfigError: if workers differ, or two claim to be the same worker.
        RunnerError: if one does not join in time, or its port is taken. All workers that have
            joined learn which one it is.
        signals.Interrupted: if one was stopped by a signal.
    """
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        meet = _gathered if cluster.is_chief else _called
        lines = Lines(cluster, meet(cluster, facts, stack, _Wait(end, seconds, check)))
        try:
            yield lines
            lines.agree(seconds=seconds, check=check)
        except BaseException as error:
            lines.tell(_told(cluster, error))
            raise
        if cluster.is_chief:
            lines.tell(_FORMED)


class _Wait(NamedTuple):
    """How long a worker waits for the others, and the check that may end the waiting."""

    end: float
    seconds: float
    check: Callable[[], object]

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def again(self) -> None:
        """Checks and pauses before the next attempt."""
        self.check()
        time.sleep(_AGAIN_SECONDS)


class _Line:
    """A connection on which each message is a line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def say(self, said: Mapping[str, Any]) -> None:
        self._connection.settimeout(_CALL_SECONDS)
        self._connection.sendall(json.dumps(said).encode() + b"\n")

    def hear(self, seconds: float, check: Callable[[], object]) -> Mapping[str, Any]:
        """Waits for the next message from the other end and returns it, calling `check` meanwhile.

        Raises:
            OSError: if no message arrives in time, or the connection is closed.
            ValueError: if the message cannot be from a worker.
        """
        end = time.monotonic() + seconds
        while (said := self._whole()) is None:
            check()
            left = end - time.monotonic()
            if left < 0:
                raise TimeoutError("the other end sent nothing")
            self._connection.settimeout(min(max(left, 0.001), _AGAIN_SECONDS))
            with contextlib.suppress(TimeoutError):
                self._receive()
        return said

    def heard(self) -> Mapping[str, Any] | None:
        """Returns the next message if it has arrived, otherwise None. Raises like `hear`."""
        self._connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while (said := self._whole()) is None:
                self._receive()
            return said
        return None

    def _receive(self) -> None:
        more = self._connection.recv(1 << 16)
        if not more:
            raise ConnectionResetError(errno.ECONNRESET, "the other end is closed")
        self._rest += more

    def _whole(self) -> Mapping[str, Any] | None:
        """Returns the first complete message, or None if there is none yet."""
        text, ended, rest = self._rest.partition(b"\n")
        if not ended:
            if len(text) > _LONGEST:
                raise ValueError("the message is too long for a worker's")
            return None
        self._rest = rest
        said = json.loads(text)
        if not isinstance(said, dict):
            raise ValueError(f"{said!r} is not a worker's message")
        return said


def _gathered(
    cluster: Cluster, facts: Facts, stack: contextlib.ExitStack, wait: _Wait
) -> Mapping[int, _Line]:
    """Returns the chief's connections to the others, once all have joined and may continue."""
    calls: list[_Line] = []
    try:
        with _port(cluster, wait) as door:
            lines, theirs = _arrivals(cluster, door, stack, calls, wait)
        _compare(cluster, facts, theirs)
    except BaseException as error:
        for call in calls:
            with contextlib.suppress(OSError):
                call.say(_told(cluster, error))
        raise
    for line in lines.values():  # the port is free, so they may call TensorFlow there now
        with contextlib.suppress(OSError):
            line.say({})
    return lines


def _port(cluster: Cluster, wait: _Wait) -> socket.socket:
    """Opens the port of this worker, on which TensorFlow will listen.

    Raises:
        RunnerError: if it is taken.
    """
    own = cluster.name(cluster.index)
    port = int(cluster.hosts[cluster.index].rpartition(":")[2])
    end = time.monotonic() + _TAKEN_SECONDS
    while True:
        try:
            return socket.create_server(("", port), backlog=cluster.size)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RunnerError(
                    f"{own} cannot listen on port {port}: {error.strerror}"
                ) from error
            if time.monotonic() > end:
                raise RunnerError(
                    f"{own}: port {port} is taken on its machine: by another worker of this "
                    "number, or by another program"
                ) from error
        wait.again()


def _arrivals(
    cluster: Cluster,
    door: socket.socket,
    stack: contextlib.ExitStack,
    calls: list[_Line],
    wait: _Wait,
) -> tuple[Mapping[int, _Line], Mapping[int, Facts]]:
    """Returns the others' connections and facts, once all have joined.

    Every connection is added to `calls`.
    """
    lines: dict[int, _Line] = {}
    facts: dict[int, Facts] = {}
    while True:
        _forget_gone(lines)
        missing = set(range(1, cluster.size)) - set(lines)
        if not missing:
            return lines, facts
        if wait.left < 0:
            names = ", ".join(map(cluster.name, sorted(missing)))
            raise RunnerError(f"{names} did not come within {wait.seconds:g} s ({FIELD})")
        wait.check()
        door.settimeout(_AGAIN_SECONDS)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # none, or a stranger
            connection, _ = door.accept()
            call = _Line(stack.enter_context(connection))
            said = call.hear(_CALL_SECONDS, wait.check)
            index, size, theirs = int(said["index"]), said["size"], said["facts"]
            calls.append(call)
            _raise_told(said)
            _forget_gone(lines)
            _check_index(cluster, index, size, lines)
            lines[index], facts[index] = call, theirs


def _forget_gone(lines: dict[int, _Line]) -> None:
    """Removes closed connections, because their workers may connect again.

    Raises:
        signals.Interrupted: if one was stopped by a signal.
    """
    for index, line in list(lines.items()):
        try:
            _raise_told(line.heard() or {})
        except (OSError, ValueError):
            del lines[index]


def _check_index(cluster: Cluster, index: int, size: int, lines: Mapping[int, _Line]) -> None:
    """Checks that a connection is from another worker that has not joined yet.

    Raises:
        ConfigError: if it is not.
    """
    if size != cluster.size:
        raise ConfigError(
            f"worker {index} expects {size} workers, and {cluster.name(0)} {cluster.size}"
        )
    if index in lines or not 0 < index < size:
        raise ConfigError(f"two processes claim to be {cluster.name(index)}")


def _compare(cluster: Cluster, facts: Facts, came: Mapping[int, Facts]) -> None:
    for index, theirs in sorted(came.items()):
        if said := difference(cluster, index, facts, theirs):
            raise ConfigError(said)


def difference(cluster: Cluster, index: int, chief: Facts, theirs: Facts) -> str:
    """Describes the first subject in which a worker differs from the chief, or returns ""."""
    for subject, values in chief.items():
        if names := _differing(values, theirs.get(subject, {})):
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return (
                f"{cluster.name(index)} has other {subject} than {cluster.name(0)}: "
                f"{', '.join(names[:3])}{more}"
            )
    return ""


def _differing(mine: Mapping[str, str], theirs: Mapping[str, str]) -> Sequence[str]:
    def differs(name: str) -> bool:
        values = {mine.get(name), theirs.get(name)}
        return len(values) > 1 and "" not in values

    return [name for name in sorted({*mine, *theirs}) if differs(name)]


def _called(
    cluster: Cluster, facts: Facts, stack: contextlib.ExitStack, wait: _Wait
) -> Mapping[int, _Line]:
    """Returns the connection to the chief, once the chief has reported that all can continue.

    A worker whose port is taken also connects, so that the others need not wait for it.
    """
    said: dict[str, Any] = {"index": cluster.index, "size": cluster.size, "facts": facts}
    try:
        port = _port(cluster, wait)
    except RunnerError as error:
        _call(cluster, {**said, **_told(cluster, error)}, stack, wait)
        raise
    with port:
        return {0: _call(cluster, said, stack, wait)}


def _call(
    cluster: Cluster, said: Mapping[str, Any], stack: contextlib.ExitStack, wait: _Wait
) -> _Line:
    """Connects to the chief repeatedly until it answers."""
    host, _, port = cluster.hosts[0].rpartition(":")
    address = (host.strip("[]"), int(port))
    somebody = ""
    while True:
        left = max(wait.left, 0.001)
        with contextlib.suppress(OSError, ValueError):  # no answer yet, or not from the chief
            connection = socket.create_connection(address, timeout=min(left, _CALL_SECONDS))
            line = _Line(stack.enter_context(connection))
            somebody = "; another program may have its port"
            answer = _answered(cluster, line, said, left, wait)
            break
        if wait.left < 0:
            raise RunnerError(
                f"{cluster.name(0)}, the chief, did not answer within {wait.seconds:g} s "
                f"({FIELD}){somebody}"
            )
        wait.again()
    _raise_told(answer)
    return line


def _answered(
    cluster: Cluster, line: _Line, said: Mapping[str, Any], left: float, wait: _Wait
) -> Mapping[str, Any]:
    """Returns the chief's answer, and informs the chief if a signal ends the waiting."""
    line.say(said)
    try:
        return line.hear(left + _CALL_SECONDS, wait.check)  # the chief also waits for others
    except signals.Interrupted as error:
        with contextlib.suppress(OSError):
            line.say(_told(cluster, error))
        raise


def _answers(cluster: Cluster, index: int) -> bool:
    host, _, port = cluster.hosts[index].rpartition(":")
    with contextlib.suppress(OSError):
        address = (host.strip("[]"), int(port))
        socket.create_connection(address, timeout=_PROBE_SECONDS).close()
        return True
    return False


def _told(cluster: Cluster, error: BaseException) -> Mapping[str, Any]:
    """Returns the message about an error of this worker for the other workers."""
    known = isinstance(error, RunnerError | signals.Interrupted)
    text = str(error) if known else f"{cluster.name(cluster.index)} has failed: {error!r}"
    return {"error": text, "code": getattr(error, "exit_code", RunnerError.exit_code)}


def _raise_told(said: Mapping[str, Any]) -> None:
    """Raises the error that another worker reports, if there is one."""
    if "error" in said:
        code = int(said.get("code", RunnerError.exit_code))
        if code > 128:
            raise signals.Interrupted(code - 128, saved=False)
        raise (ConfigError if code == ConfigError.exit_code else RunnerError)(said["error"])
