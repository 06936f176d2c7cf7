"""Workers meet before TensorFlow connects them."""

import concurrent.futures
import contextlib
import json
import signal
import socket
import threading

import pytest
from wording import each_says, says

from runner.core import signals
from runner.devices import meeting
from runner.devices.cluster import Cluster
from runner.errors import ConfigError, RunnerError

SAME = {"configuration": {"trainer.train_steps": "40"}}


@pytest.fixture
def hosts():
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("", 0))) for _ in range(3)]
        found = tuple(f"localhost:{each.getsockname()[1]}" for each in taken)
    return found


def met(hosts, facts, *, indices=None, seconds=60.0, inside=lambda index, lines: None):
    """What each worker that comes gets: None or an error; `inside`: what it does then."""

    def meet(index, facts):
        try:
            with meeting.met(Cluster(tuple(hosts), index), facts, seconds=seconds) as lines:
                inside(index, lines)
        except (RunnerError, signals.Interrupted) as error:
            return error

    indices = range(len(hosts)) if indices is None else indices
    with concurrent.futures.ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(meet, indices, facts))


def port(host):
    return int(host.rpartition(":")[2])


def told(lines):
    """Waits for what another worker tells."""
    while True:
        lines.check()


def test_workers_that_have_the_same_go_on(hosts):
    assert met(hosts, [SAME, SAME, SAME]) == [None, None, None]


def test_all_are_told_which_worker_differs_in_what(hosts):
    other = {"configuration": {"trainer.train_steps": "50", "run.seed": "1"}}
    errors = met(hosts, [SAME, SAME, other])
    said = f"2 {hosts[2]} configuration 0 {hosts[0]} run.seed trainer.train_steps"
    each_says({str(each) for each in errors}, said)
    assert {type(each) for each in errors} == {ConfigError}


def test_a_worker_that_never_comes_is_named(hosts):
    errors = met(hosts, [SAME, SAME], seconds=0.5)
    each_says({str(each) for each in errors}, f"2 {hosts[2]} 0.5 RunConfig.workers_timeout")
    assert not any(isinstance(each, ConfigError) for each in errors)  # it may come another time


def test_so_is_a_chief_that_never_comes(hosts):
    (error,) = met(hosts, [SAME], indices=[1], seconds=0.5)
    says(str(error), f"0 {hosts[0]} chief 0.5")


def call_as(hosts, index):
    """A line to the chief of another process that is this worker, on a machine of its own."""
    said = {"index": index, "size": len(hosts), "facts": SAME}
    while True:
        with contextlib.suppress(OSError):
            line = socket.create_connection(("localhost", port(hosts[0])))
            line.sendall(json.dumps(said).encode() + b"\n")
            return line


def test_two_processes_cannot_be_the_same_worker(hosts):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        chief = pool.submit(met, hosts, [SAME], indices=[0])
        with call_as(hosts, 1):
            errors = [*met(hosts, [SAME], indices=[1]), *chief.result()]
    for error in errors:
        says(str(error), f"two 1 {hosts[1]}")


@pytest.mark.parametrize("taken", [0, 1])
def test_all_that_meet_are_told_whose_port_is_taken(hosts, monkeypatch, taken):
    for name in ("_TAKEN_SECONDS", "_CALL_SECONDS"):
        monkeypatch.setattr(meeting, name, 0.5)
    with socket.create_server(("", port(hosts[taken]))):
        errors = met(hosts, [SAME] * 3, seconds=2)
    assert [each.exit_code for each in errors] == [1, 1, 1]
    assert all(f"worker {taken} ({hosts[taken]})" in str(each) for each in errors)
    assert f"port {port(hosts[taken])} is taken" in str(errors[taken])
    assert taken == 0 or len({str(each) for each in errors}) == 1


def test_the_ports_are_free_once_all_have_met(hosts):
    def listen(index, lines):
        socket.create_server(("", port(hosts[index]))).close()

    assert met(hosts, [SAME] * 3, inside=listen) == [None] * 3


def test_a_worker_that_ends_before_it_is_connected_ends_the_others(hosts):
    def inside(index, lines):
        if index == 1:
            lines.tell = lambda said: None  # it is killed
            raise RunnerError("killed")
        told(lines)

    errors = met(hosts, [SAME] * 3, inside=inside)
    assert f"worker 1 ({hosts[1]}) was lost" in str(errors[0])
    assert str(errors[2]) == str(errors[0])


def test_what_fails_in_one_while_they_are_connected_is_told_to_all(hosts):
    def inside(index, lines):
        if index == 2:
            raise RunnerError("taken meanwhile")
        told(lines)

    errors = met(hosts, [SAME] * 3, inside=inside)
    assert {str(each) for each in errors} == {"taken meanwhile"}


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_signal_to_one_that_is_being_connected_stops_all(hosts, stopped):
    def inside(index, lines):
        if index == stopped:
            raise signals.Interrupted(signal.SIGTERM)
        told(lines)

    errors = met(hosts, [SAME] * 3, inside=inside)
    assert [each.exit_code for each in errors] == [143] * 3


def test_one_that_is_connected_and_leaves_ends_nobody(hosts):
    left = threading.Event()

    def inside(index, lines):
        if index == 1:
            return
        left.wait(60)
        for _ in range(100):
            lines.check()

    threading.Timer(0.5, left.set).start()
    assert met(hosts, [SAME] * 3, inside=inside) == [None] * 3


def test_a_worker_that_was_killed_while_it_waited_may_come_again(hosts):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        chief = pool.submit(met, hosts, [SAME], indices=[0])
        call_as(hosts, 1).close()
        assert met(hosts, [SAME] * 2, indices=[1, 2]) == [None, None]
        assert chief.result() == [None]


def test_workers_that_differ_only_in_what_one_does_not_know_go_on(hosts):
    facts = [{"code": {"git commit": commit}} for commit in ("1f00", "", "")]
    assert met(hosts, facts) == [None, None, None]


def test_a_stranger_at_the_door_does_no_harm(hosts):
    def disturb():
        for _ in range(100):
            with contextlib.suppress(OSError):
                address = ("localhost", int(hosts[0].rpartition(":")[2]))
                with socket.create_connection(address) as line:
                    line.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return

    stranger = threading.Thread(target=disturb)
    stranger.start()
    assert met(hosts, [SAME, SAME, SAME]) == [None, None, None]
    stranger.join()
