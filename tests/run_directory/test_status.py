"""What a watcher reads in status.json, and that it goes on while the run is busy."""

import os
import re
import socket
import time

import pytest

from runner.errors import RunnerError
from runner.run_directory import status
from runner.run_directory.run import reached


class Count:
    """A clock that ticks once a look, so that every heartbeat is another."""

    now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def kept(folder, **options):
    return status.StatusFile(folder, seconds=0.002, **options)


def test_a_folder_without_a_run_has_no_status(tmp_path):
    assert status.read(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"state": "run', "JSON"), ('{"steps": 5}', "status")],
)
def test_a_damaged_status_is_named(tmp_path, text, said):
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(RunnerError, match=f"status.json .*{said}.*(remove|delete)"):
        status.read(tmp_path)


def test_a_status_says_what_the_run_does_where_and_since_when(tmp_path):
    status.StatusFile(tmp_path, clock=lambda: 5.0).write("stopped", 30, "enough")
    assert status.read(tmp_path) == status.Status(
        state="stopped",
        step=30,
        reason="enough",
        heartbeat=5.0,
        host=socket.gethostname(),
        pid=os.getpid(),
        stopped_by="",
    )


def test_a_run_that_is_started_again_is_where_it_was_until_it_says_otherwise(tmp_path):
    status.StatusFile(tmp_path).write("preempted", 40)
    with kept(tmp_path) as file:
        assert status.read(tmp_path).state == "running"
        assert status.read(tmp_path).step == 40
        file.beat(41)
        file.write("preempted", 45)
    assert status.read(tmp_path).step == reached(tmp_path) == 45


def test_a_run_that_is_started_after_a_kill_is_at_the_last_step_that_was_done(tmp_path):
    with kept(tmp_path) as file:
        file.write("running", 40)
        file.beat(41)
    assert reached(tmp_path) == 41
    with kept(tmp_path):
        assert status.read(tmp_path).step == reached(tmp_path) == 41


@pytest.mark.parametrize("state", ["done", "stopped", "preempted", "diverged", "failed"])
def test_every_state_but_running_is_an_end(tmp_path, state):
    with kept(tmp_path) as file:
        assert not status.read(tmp_path).ended
        file.write(state, 1)
    assert status.read(tmp_path).ended


def test_the_heartbeat_goes_on_while_the_run_is_busy_with_one_step(tmp_path):
    with kept(tmp_path, clock=Count()) as file:
        first = status.read(tmp_path)
        assert (first.state, first.step) == ("running", 0)
        file.beat(20)
        until(lambda: status.read(tmp_path).step == 20)
        beat = status.read(tmp_path).heartbeat
        until(lambda: status.read(tmp_path).heartbeat > beat + 2)
    assert file.step == 20


def test_how_a_run_ended_stays_the_last_word(tmp_path):
    with kept(tmp_path, clock=Count()) as file:
        file.write("diverged", 30, "the loss is nan")
        beats = status.read(tmp_path).heartbeat
        file.beat(40)
        time.sleep(0.05)  # some beats
    assert status.read(tmp_path).state == "diverged"
    assert status.read(tmp_path).step == 30
    assert status.read(tmp_path).heartbeat == beats


def test_nothing_is_written_after_the_end(tmp_path):
    with kept(tmp_path):
        pass
    (tmp_path / "status.json").unlink()
    time.sleep(0.05)  # some beats
    assert status.read(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_noted_once_each_time_and_the_heartbeat_comes_back(
    tmp_path,
):
    folder, clock, notes = tmp_path / "run", Count(), []
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").touch()

    def lead_to(name):
        (tmp_path / "new").symlink_to(tmp_path / name)
        (tmp_path / "new").replace(folder)
        looks = clock.now
        until(lambda: clock.now > looks + 3)  # some beats

    folder.symlink_to(tmp_path / "good")
    with kept(folder, note=notes.append, clock=clock):
        for _ in range(2):
            lead_to("bad")
            lead_to("good")
    assert len(notes) == 2
    assert re.search("File exists|Not a directory", notes[0])  # as it comes before or in a beat
    assert status.read(folder).heartbeat == clock.now
