"""Workers that TensorFlow cannot connect: taken ports, workers that end, signals meanwhile.

The other worker is played by the test, which knows what workers say when they meet.
"""

import contextlib
import json
import signal
import socket
import subprocess

import pytest
from several_workers import Workers, addresses
from wording import says

SHORT = ("--gin.TrainerConfig.train_steps=10",)


def port(host):
    return int(host.rpartition(":")[2])


@pytest.fixture
def hosts():
    return addresses(2)


@pytest.fixture
def started(tmp_path, hosts):
    """Starts one worker of two, or both."""
    with contextlib.ExitStack() as stack:

        def start(only=None, **more):
            place = tmp_path / ("both" if only is None else f"only{only}")
            workers = Workers(tmp_path, "train", place, *SHORT, hosts=hosts, only=only, **more)
            return stack.enter_context(workers)

        yield start


def answered(hosts):
    """The line of worker 1 to a chief that is played, and what it has said."""
    with socket.create_server(("", port(hosts[0]))) as door:
        connection, _ = door.accept()
        return connection, connection.makefile("r").readline()


def say(connection, said):
    connection.sendall(json.dumps(said).encode() + b"\n")


def is_in_tensorflow(workers, index):
    """Whether TensorFlow's server has started, which now waits for the other worker."""
    return "Started server" in workers.said(index)


def complaints(workers, index):
    """What it printed as `runner: ...`; nothing may follow a traceback."""
    said = workers.said(index)
    assert "Traceback" not in said, said
    return [text for text in said.splitlines() if text.startswith("runner: ")]


def test_a_port_that_is_taken_ends_all_workers_with_its_name(hosts, started):
    with socket.create_server(("", port(hosts[1]))):
        workers = started()
        assert workers.wait() == [1, 1], workers.said(0) + workers.said(1)
    for index in range(2):
        (text,) = complaints(workers, index)
        says(text, f"worker 1 {hosts[1]} {port(hosts[1])} taken")


def test_a_chief_that_is_killed_before_it_is_connected_ends_the_others(hosts, started):
    workers = started(only=1)
    connection, _ = answered(hosts)
    say(connection, {})
    workers.wait_until(lambda: is_in_tensorflow(workers, 1))
    connection.close()
    assert workers.wait() == [1], workers.said(1)
    (text,) = complaints(workers, 1)
    assert f"worker 0 ({hosts[0]}) was lost" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_chief_that_tensorflow_keeps_waiting(hosts, started, number):
    """Worker 1 tells what the chief must hear of the worker that is played."""
    first = started(only=1)
    connection, facts = answered(hosts)
    connection.close()
    first.processes[0].kill()
    chief = started(only=0)
    connection = call(hosts[0], chief)
    connection.sendall(facts.encode())
    assert json.loads(connection.makefile("r").readline()) == {}
    chief.wait_until(lambda: is_in_tensorflow(chief, 0))
    while chief.processes[0].poll() is None:  # TensorFlow takes SIGTERM for a moment
        chief.processes[0].send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            chief.wait(10)
    assert chief.wait() == [128 + number], chief.said(0)
    (text,) = complaints(chief, 0)
    assert number.name in text
    assert chief.results()[0]["status"] == ("preempted" if number == signal.SIGTERM else "stopped")


def call(host, chief):
    """A line to a chief as soon as it listens."""
    connections = []

    def calls():
        with contextlib.suppress(OSError):
            connections.append(socket.create_connection(("localhost", port(host))))
        return connections

    chief.wait_until(calls)
    return connections[0]
