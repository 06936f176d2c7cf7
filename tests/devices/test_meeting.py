"""Workers meet before TensorFlow connects them."""

import concurrent.futures
import contextlib
import socket
import threading

import pytest

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


def met(hosts, facts, *, indices=None, seconds=60.0):
    """What each worker that comes gets: None or an error."""

    def meet(index, facts):
        try:
            meeting.meet(Cluster(tuple(hosts), index), facts, seconds=seconds)
        except RunnerError as error:
            return error

    indices = range(len(hosts)) if indices is None else indices
    with concurrent.futures.ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(meet, indices, facts))


def test_workers_that_have_the_same_go_on(hosts):
    assert met(hosts, [SAME, SAME, SAME]) == [None, None, None]


def test_all_are_told_which_worker_differs_in_what(hosts):
    other = {"configuration": {"trainer.train_steps": "50", "run.seed": "1"}}
    errors = met(hosts, [SAME, SAME, other])
    said = f"worker 2 ({hosts[2]}) has other configuration than worker 0 ({hosts[0]}): "
    assert {str(each) for each in errors} == {said + "run.seed, trainer.train_steps"}
    assert {type(each) for each in errors} == {ConfigError}


def test_a_worker_that_never_comes_is_named(hosts):
    errors = met(hosts, [SAME, SAME], seconds=0.5)
    assert {str(each) for each in errors} == {
        f"worker 2 ({hosts[2]}) did not come within 0.5 s (RunConfig.workers_timeout)"
    }
    assert not any(isinstance(each, ConfigError) for each in errors)  # it may come another time


def test_so_is_a_chief_that_never_comes(hosts):
    (error,) = met(hosts, [SAME], indices=[1], seconds=0.5)
    assert str(error).startswith(f"worker 0 ({hosts[0]}), the chief, did not answer within 0.5 s")


def test_two_processes_cannot_be_the_same_worker(hosts):
    errors = met(hosts, [SAME] * 3, indices=[0, 1, 1])
    assert {str(each) for each in errors} == {
        f"two processes say that they are worker 1 ({hosts[1]})"
    }


def test_two_processes_cannot_be_the_chief(hosts, monkeypatch):
    monkeypatch.setattr(meeting, "_TAKEN_SECONDS", 0.5)
    with socket.create_server(("", int(hosts[0].rpartition(":")[2]))):
        (error,) = met(hosts, [SAME], indices=[0])
    assert "is taken on this machine: by another chief" in str(error)
    assert error.exit_code == 1


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
