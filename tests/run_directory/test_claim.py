"""A folder has one writer. Processes are real; other machines are claims written by hand."""

import contextlib
import dataclasses
import errno
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from wording import each_says, saying, says

from runner.core import heartbeat
from runner.errors import LostError, RunnerError
from runner.run_directory import claim, claim_file

TRAINER = """
import os, subprocess, sys, time
from pathlib import Path
from runner.run_directory import claim
from runner.errors import LostError, RunnerError

ready, folder, *then = sys.argv[1:]
print(ready, flush=True)
sys.stdin.readline()
try:
    with claim.claimed(Path(folder), note=lambda line: print(line, file=sys.stderr)):
        if "fork" in then and not (child := os.fork()):
            if "ends" in then:
                sys.exit()  # through the end of the with block
            time.sleep(600)
        if "ends" in then:
            os.waitpid(child, 0)
        if "spawn" in then:
            child = subprocess.Popen(["sleep", "600"], close_fds=False).pid
        print("holds", child if then else "", flush=True)
        sys.stdin.readline()
except RunnerError as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def trainers():
    """Starts processes that claim a folder when told to; ends those that are left."""
    with contextlib.ExitStack() as stack:

        def start(folder, *then):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", TRAINER, "ready", str(folder), *then],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout.readline() == "ready\n"
            return process

        yield start


def go(process):
    """Has it claim, or give back what it holds."""
    process.stdin.write("\n")
    process.stdin.flush()


def started(process):
    go(process)
    return process.stdout.readline()


class Clock:
    """Time that passes only in `sleep`; `events` happen at their second."""

    def __init__(self, **events):
        self.now = self.start = 1e9
        self.events = {float(name.removeprefix("at_")): event for name, event in events.items()}

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for at in [at for at in self.events if self.start + at <= self.now]:
            self.events.pop(at)()

    @property
    def slept(self):
        return self.now - self.start


def elsewhere(folder, age=0.0, **holder):
    """A claim by a process of another machine, whose heartbeat is `age` seconds old for a Clock."""
    folder.mkdir(exist_ok=True)
    path = folder / "claim.json"
    path.write_text(json.dumps({"host": "other", "pid": 17, "boot": "b", "token": "t", **holder}))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def claimed(folder, clock, notes=None):
    note = (notes if notes is not None else []).append
    return claim.claimed(folder, note=note, clock=clock, sleep=clock.sleep)


def holder(folder):
    return json.loads((folder / "claim.json").read_text())


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def without_locks(monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)


def test_a_second_trainer_is_refused_with_the_first_ones_host_process_and_heartbeat(
    tmp_path, trainers
):
    first, second = trainers(tmp_path / "run"), trainers(tmp_path / "run")
    assert started(first) == "holds \n"
    said = started(second)
    assert f"process {first.pid} on {os.uname().nodename}" in said
    says(said, "heartbeat ago")
    assert "--model_dir" in said
    assert second.wait() == 1
    go(first)
    assert first.wait() == 0


def test_a_killed_trainers_claim_is_taken_over_at_once(tmp_path, trainers):
    first, second = trainers(tmp_path), trainers(tmp_path)
    started(first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert holder(tmp_path)["pid"] == first.pid
    assert started(second) == "holds \n"
    assert holder(tmp_path)["pid"] == second.pid
    second.kill()
    assert "taking over" in (said := second.communicate()[1])
    assert "waiting" not in said


@pytest.mark.parametrize("before", ["a new folder", "a dead trainer's"])
def test_of_many_that_start_at_the_same_moment_exactly_one_trains(tmp_path, trainers, before):
    if before == "a dead trainer's":
        dead = trainers(tmp_path)
        started(dead)
        dead.kill()
        dead.wait()
    many = [trainers(tmp_path) for _ in range(6)]
    for process in many:
        go(process)
    said = [process.stdout.readline() for process in many]
    (winner,) = (process for process, line in zip(many, said, strict=True) if line == "holds \n")
    assert sum(f"process {winner.pid} on" in line for line in said) == 5
    assert holder(tmp_path)["pid"] == winner.pid
    assert names(tmp_path) == ["claim.json"]


def test_a_folder_is_given_back_at_the_end(tmp_path):
    for _ in range(2):
        with claim.claimed(tmp_path, note=print):
            assert holder(tmp_path)["pid"] == os.getpid()
        assert not list(tmp_path.iterdir())


def test_a_folder_is_given_back_after_an_error(tmp_path):
    with pytest.raises(KeyError), claim.claimed(tmp_path, note=print):
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_one_process_does_not_train_twice_in_a_folder(tmp_path):
    with (
        claim.claimed(tmp_path, note=print) as first,
        pytest.raises(RunnerError, match=f"process {os.getpid()}"),
        claim.claimed(tmp_path, note=print),
    ):
        pass
    with pytest.raises(RunnerError):
        first.check()  # it was given back, once


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_child_that_outlives_a_killed_trainer_does_not_hold_its_folder(tmp_path, trainers, how):
    first, second = trainers(tmp_path, how), trainers(tmp_path)
    child = int(started(first).split()[1])
    first.kill()
    first.wait()
    try:
        os.kill(child, 0)  # it lives
        assert started(second) == "holds \n"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_ends_does_not_give_the_folder_back(tmp_path, trainers):
    first, second = trainers(tmp_path, "fork", "ends"), trainers(tmp_path)
    assert started(first).startswith("holds")
    assert holder(tmp_path)["pid"] == first.pid
    assert f"process {first.pid}" in started(second)


@pytest.mark.parametrize(("age", "waits"), [(0, 60), (12, 48), (59, 10), (100_000, 10), (-500, 60)])
def test_another_machines_claim_is_taken_over_when_its_heartbeat_has_run_out(tmp_path, age, waits):
    elsewhere(tmp_path, age)
    clock, notes = Clock(), []
    with claimed(tmp_path, clock, notes):
        assert holder(tmp_path)["pid"] == os.getpid()
    assert clock.slept == waits + 2  # and a moment in which another might have done the same
    each_says(notes, f"{tmp_path} 17 {max(age, 0)} ago {waits}", f"{tmp_path} taking 17")


def test_a_heartbeat_is_not_measured_by_this_machines_clock(tmp_path, monkeypatch):
    path = elsewhere(tmp_path)
    path.touch()  # now, as the file system sees it
    now, notes, clock = time.time(), [], Clock()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    with claim.claimed(tmp_path, note=notes.append, sleep=clock.sleep):
        pass
    says(notes[0], "heartbeat 0 ago 60")


@pytest.mark.parametrize("age", [0, 100_000])  # also where the other machine's clock is wrong
def test_another_machines_trainer_that_lives_is_not_disturbed(tmp_path, age):
    path = elsewhere(tmp_path, age)
    clock = Clock(at_5=lambda: os.utime(path, (1e9 - age + 5, 1e9 - age + 5)))
    with pytest.raises(RunnerError, match=r"process 17 on other"), claimed(tmp_path, clock):
        pass
    assert holder(tmp_path)["host"] == "other"
    assert clock.slept == 5
    assert names(tmp_path) == ["claim.json"]


def test_a_folder_that_another_machine_gives_back_is_waited_for_no_longer(tmp_path):
    clock = Clock(at_20=elsewhere(tmp_path).unlink)
    with claimed(tmp_path, clock):
        assert holder(tmp_path)["pid"] == os.getpid()
    assert clock.slept == 20


@pytest.mark.parametrize("at", [30, 61])  # while it waits; after it has written its claim
def test_of_two_that_wait_for_another_machines_claim_the_last_to_write_it_trains(tmp_path, at):
    elsewhere(tmp_path)
    clock = Clock(**{f"at_{at}": lambda: elsewhere(tmp_path, host="third", pid=18)})
    with pytest.raises(RunnerError, match="process 18 on third"), claimed(tmp_path, clock):
        pass
    assert holder(tmp_path)["host"] == "third"


def test_a_start_in_the_middle_of_another_ones_takeover_names_the_new_trainer(tmp_path):
    path, new = elsewhere(tmp_path), tmp_path / "new"
    here = claim_file.Holder.this()
    path.write_text(json.dumps({"host": "dead", "pid": 98, "boot": here.boot}))
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # by the one that takes over
        lock = claim_file.write(new, dataclasses.replace(here, pid=99))
        clock = Clock(at_0=lambda: new.replace(path))
        with pytest.raises(RunnerError, match="process 99 on"), claimed(tmp_path, clock):
            pass
    claim_file.close(lock)


def test_a_held_lock_outweighs_a_heartbeat_that_has_run_out(tmp_path):
    path = elsewhere(tmp_path)
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a file system does whose locks reach all machines
        with pytest.raises(RunnerError, match=f"delete {path}"), claimed(tmp_path, Clock()):
            pass
    assert holder(tmp_path)["host"] == "other"


def test_without_locks_the_heartbeat_decides_on_one_machine_too(tmp_path, without_locks):
    with claim.claimed(tmp_path, note=print):
        ours = holder(tmp_path)
    path = elsewhere(tmp_path, **ours)
    clock = Clock(at_5=path.touch)
    with pytest.raises(RunnerError, match=f"process {ours['pid']}"), claimed(tmp_path, clock):
        pass
    os.utime(path, (1e9, 1e9))
    with claimed(tmp_path, Clock()) as mine:
        mine.check()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"what": 1}', "\xff"])
def test_a_damaged_claim_is_an_unknown_process_of_another_machine(tmp_path, text):
    path = elsewhere(tmp_path)
    path.write_bytes(text.encode("latin-1"))
    os.utime(path, (1e9, 1e9))
    clock, notes = Clock(), []
    with claimed(tmp_path, clock, notes):
        pass
    assert clock.slept == 62
    assert "an unknown host" in notes[0]


def test_without_hard_links_a_folder_still_has_one_trainer(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    with (
        claimed(tmp_path, Clock()) as first,
        pytest.raises(RunnerError, match="being written"),
        claimed(tmp_path, Clock()),
    ):
        first.check()
    assert not list(tmp_path.iterdir())


def test_a_lock_is_settled_without_hard_links(tmp_path, monkeypatch):
    """Two processes that see no lock may both write theirs: the last one has it."""

    def unsupported(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    path = tmp_path / "claim.json"

    def replace():
        other = elsewhere(tmp_path / "other")
        other.replace(path)

    with pytest.raises(LostError), claimed(tmp_path, Clock(at_1=replace)):
        pass
    assert path.exists()


def test_a_refusal_says_what_to_choose_another_of(tmp_path):
    evaluator = functools.partial(claim.claimed, tmp_path, note=print, instead="Config.name")
    with (
        evaluator(),
        pytest.raises(RunnerError, match=saying("stop choose Config.name")),
        evaluator(),
    ):
        pass


def test_a_claim_is_abandoned_when_its_holder_on_this_machine_is_gone(tmp_path, trainers):
    path = tmp_path / "claim.json"
    assert not claim_file.abandoned(path)
    process = trainers(tmp_path)
    started(process)
    assert not claim_file.abandoned(path)
    process.kill()
    process.wait()
    assert claim_file.abandoned(path)
    elsewhere(tmp_path, age=100_000)
    assert not claim_file.abandoned(path)  # no lock tells


def test_a_trainer_that_was_taken_for_dead_may_write_no_more(tmp_path):
    with claim.claimed(tmp_path, note=print) as mine:
        mine.check()
        elsewhere(tmp_path / "x")
        (tmp_path / "x" / "claim.json").replace(tmp_path / "claim.json")
        with pytest.raises(RunnerError, match=saying("lost process 17")):
            mine.check()
    assert holder(tmp_path)["host"] == "other"  # and it does not end what is not its own


def test_a_trainer_whose_claim_was_deleted_may_write_no_more(tmp_path):
    with claim.claimed(tmp_path, note=print) as mine:
        (tmp_path / "claim.json").unlink()
        with pytest.raises(RunnerError, match=r"claim.json was deleted"):
            mine.check()


def test_the_heartbeat_goes_on_while_the_trainer_is_busy(tmp_path, monkeypatch):
    often = functools.partial(heartbeat.beating, seconds=0.01)
    monkeypatch.setattr(heartbeat, "beating", often)
    with claim.claimed(tmp_path, note=print):
        path = tmp_path / "claim.json"
        os.utime(path, (0, 0))
        end = time.monotonic() + 300
        while path.stat().st_mtime == 0:
            assert time.monotonic() < end


def test_a_folder_that_cannot_be_written_is_one_clear_message(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "run"
    with (
        pytest.raises(RunnerError, match=saying(f"{folder} written directory")),
        claim.claimed(folder, note=print),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_clear_message(tmp_path):
    tmp_path.chmod(0o500)
    with (
        pytest.raises(RunnerError, match=saying("Permission denied")),
        claim.claimed(tmp_path, note=print),
    ):
        pass


def test_only_a_heartbeat_that_stays_as_it_was_has_run_out(tmp_path):
    now = [0.0]
    path = elsewhere(tmp_path / "run")
    silence = claim.Silence(patience=60.0, clock=lambda: now[0])
    for beat in range(3):
        os.utime(path, (beat, beat))
        assert not silence.has_lasted(path)
        now[0] += 59
        assert not silence.has_lasted(path)
    now[0] += 2
    assert silence.has_lasted(path)
    path.unlink()
    assert not silence.has_lasted(path)


def test_silence_says_nothing_of_a_process_whose_lock_shows_that_it_lives(tmp_path):
    silence = claim.Silence(patience=-1.0)
    with claim.claimed(tmp_path, note=print):
        assert [silence.has_lasted(tmp_path / "claim.json") for _ in range(2)] == [False, False]
