"""Supervisors, real processes with real signals; what they supervise trains nothing real."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from wording import says

from runner.run_directory import supervised

HELPER = Path(__file__).parents[1] / "helpers" / "supervised.py"
DEADLINE = 300


class Started:
    """A supervisor."""

    def __init__(self, folder, workers, *, steps=100, names="", machine=0, silence=1000):
        folder.mkdir(exist_ok=True, parents=True)
        self.folder, self.machine = folder, machine
        command = [sys.executable, HELPER, "supervise", folder, workers, f"--steps={steps}"]
        command += [f"--names={names}", f"--machine={machine}", f"--silence={silence}"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ended(self):
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path):
    """Starts supervisors of a run in `tmp_path / "run"`."""
    started = []

    def begin(workers, **options):
        started.append(Started(tmp_path / "run", workers, **options))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def until(true):
    end = time.monotonic() + DEADLINE
    while not (found := true()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


def order(folder, **orders):
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    for worker, text in orders.items():
        (folder / "orders" / worker.removeprefix("_").replace("_", "-")).write_text(text)


def rules(folder, **workers):
    folder.mkdir(parents=True, exist_ok=True)
    run = {"workers": workers, "workers_timeout": workers.pop("timeout", 30)}
    (folder / "params.yaml").write_text(yaml.safe_dump({"run": run}))


def rows(folder):
    """Each trained step: how many workers there were, and the step."""
    path = folder / "steps.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(int, line.split())) for line in lines]


def sizes(folder):
    return [size for size, _ in itertools.groupby(size for size, _ in rows(folder))]


def trained(folder, step=5, size=None):
    return lambda: any(row[1] >= step and size in (None, row[0]) for row in rows(folder))


def pid(folder, index):
    return json.loads((folder / "workers" / f"{index}.json").read_text())["pid"]


def offer(folder, machine):
    path = folder / "workers" / f"machine-{machine}" / "offer.json"
    return json.loads(path.read_text()) if path.exists() else None


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def restarts(folder):
    return supervised.read(folder)["restarts"]


def test_all_workers_start_and_the_chiefs_results_are_the_commands(start, folder):
    code, out, err = start("2", steps=20).ended()
    assert (code, json.loads(out), err) == (0, {"status": "done", "step": 20}, "")
    found = supervised.read(folder)
    assert (found["state"], found["generation"], found["restarts"]) == ("ended", 1, [])
    assert len(set(found["hosts"])) == 2


def test_after_a_killed_worker_all_start_again_and_the_run_ends_as_if_nothing_had_been(
    start, folder
):
    run = start("2", steps=60)
    until(trained(folder, 15))
    os.kill(pid(folder, 1), signal.SIGKILL)
    code, out, err = run.ended()
    assert (code, json.loads(out)["step"]) == (0, 60)
    says(err, "1 SIGKILL starting")
    assert [(row["worker"], row["code"], row["workers"]) for row in restarts(folder)] == [
        (1, -signal.SIGKILL, 2)
    ]


def test_a_worker_that_stands_still_is_named_and_replaced(start, folder):
    run = start("2", steps=60, silence=1.5)
    until(trained(folder, 15))
    os.kill(pid(folder, 1), signal.SIGSTOP)
    code, _, err = run.ended()
    assert code == 0
    says(err, "worker 1 heartbeat")


@pytest.mark.parametrize(
    ("number", "reaches_all"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)],
)
def test_a_signal_lets_all_save_and_leave_with_its_code(start, folder, number, reaches_all):
    run = start("2", steps=10_000)
    until(trained(folder, 15))
    workers = [pid(folder, 0), pid(folder, 1)]
    run.process.send_signal(number)
    for each in workers if reaches_all else ():
        os.kill(each, number)
    code, out, _ = run.ended()
    assert code == 128 + number
    assert json.loads(out)["status"] == "preempted"
    assert json.loads(out)["step"] == rows(folder)[-1][1]
    assert not any(map(is_alive, workers))


def test_a_worker_that_stands_still_does_not_hold_up_the_end(start, folder):
    run = start("2", steps=10_000, silence=1.5)
    until(trained(folder, 5))
    os.kill(pid(folder, 1), signal.SIGSTOP)
    run.process.send_signal(signal.SIGTERM)
    assert run.ended()[0] == 143


def test_a_second_signal_ends_all_at_once(start, folder):
    run = start("2", steps=10_000)
    until(trained(folder, 5))
    workers = [pid(folder, 0), pid(folder, 1)]
    os.kill(workers[1], signal.SIGSTOP)  # so that the first signal is not followed
    run.process.send_signal(signal.SIGTERM)
    until(lambda: run.process.send_signal(signal.SIGTERM) or run.process.poll() is not None)
    code, _, _ = run.ended()
    assert code == 128 + signal.SIGTERM
    until(lambda: not any(map(is_alive, workers)))


def test_a_signal_to_one_worker_ends_all_as_one_to_the_supervisor(start, folder):
    run = start("2", steps=10_000)
    until(trained(folder, 5))
    os.kill(pid(folder, 1), signal.SIGTERM)
    code, out, _ = run.ended()
    assert (code, json.loads(out)["status"]) == (143, "preempted")


def test_workers_do_not_outlive_a_killed_supervisor_and_the_same_command_goes_on(start, folder):
    run = start("2", steps=200)
    until(trained(folder, 15))
    workers = [pid(folder, 0), pid(folder, 1)]
    os.kill(workers[1], signal.SIGSTOP)  # not even then
    run.process.kill()
    until(lambda: not any(map(is_alive, workers)))
    again = start("2", steps=30)
    assert again.ended()[0] == 0
    assert supervised.read(folder)["generation"] == 2


@pytest.mark.parametrize("number", [2, 3])
def test_what_would_end_so_again_ends_the_run(start, folder, number):
    order(folder, _1=f"always exit {number}")
    code, out, err = start("2").ended()
    assert (code, out) == (number, "")
    says(err, f"1 ended exit {number}")
    assert supervised.read(folder)["generation"] == 1


def test_an_end_that_another_machine_than_the_chiefs_has_seen_keeps_the_workers(start, folder):
    order(folder, _1="always exit 2")
    runs = [start("2", names="a,b", machine=number) for number in range(2)]
    assert [run.ended()[0] for run in runs] == [2, 2]
    found = supervised.read(folder)
    assert (found["generation"], len(found["hosts"])) == (1, 2)


def test_it_gives_up_when_starts_end_without_a_step(start, folder):
    rules(folder, idle_starts=3)
    order(folder, _1="always exit 1")
    code, _, err = start("2").ended()
    assert code == 1
    says(err, "1 exit giving 3")
    says(err, "row ended WorkersConfig.idle_starts")
    assert supervised.read(folder)["generation"] == 3


def test_it_gives_up_after_so_many_restarts_in_an_hour(start, folder):
    rules(folder, restarts_an_hour=1)
    run = start("2", steps=10_000)
    until(trained(folder, 15))
    os.kill(pid(folder, 1), signal.SIGKILL)
    until(lambda: restarts(folder))
    until(trained(folder, rows(folder)[-1][1] + 15))
    os.kill(pid(folder, 1), signal.SIGKILL)
    code, out, err = run.ended()
    assert (code, out) == (1, "")  # and not that the chief was stopped
    says(err, "1 hour WorkersConfig.restarts_an_hour")


def test_workers_that_do_not_find_each_other_start_again(start, folder):
    rules(folder, timeout=2)
    order(folder, _1="hang")
    run = start("2", steps=20)
    until(lambda: (supervised.read(folder) or {}).get("restarts"))
    rules(folder)
    code, _, err = run.ended()
    assert code == 0
    says(err, "others starting")


def test_the_rest_goes_on_without_a_worker_and_takes_it_in_after_a_commit(start, folder):
    rules(folder, rest_seconds=1)
    order(folder, _2="exit 1")
    code, out, err = start("2..3", steps=300).ended()
    assert (code, json.loads(out)["step"]) == (0, 300)
    assert sizes(folder) == [2, 3]
    says(err, "starting 0:01")
    says(err, "2 3 saved starting")
    assert [step for _, step in rows(folder)] == list(range(1, 301))  # each step once


def test_a_number_of_workers_that_the_run_cannot_have_is_left_out(start, folder):
    rules(folder, rest_seconds=1)
    order(folder, **{"0-of-2": "always exit 2"})
    run = start("1..3", steps=300)
    until(trained(folder, 15))
    os.kill(pid(folder, 2), signal.SIGKILL)
    code, _, err = run.ended()
    assert code == 0
    assert sizes(folder) in ([3, 1, 3], [3])  # on a slow machine, the third is back at once
    says(err, "2 trying fewer")


def test_machines_go_on_without_one_and_take_it_in_again(start, folder):
    rules(folder, rest_seconds=1)
    runs = [start("2..3", steps=10**6, names="a,b,c", machine=number) for number in range(3)]
    until(trained(folder, 15, size=3))
    runs[1].process.kill()
    until(trained(folder, 15, size=2))
    runs[1] = start("2..3", steps=10**6, names="a,b,c", machine=1)
    until(lambda: sizes(folder)[-3:] == [3, 2, 3])  # two of them may have begun alone
    (folder / "enough").touch()
    ends = [run.ended() for run in runs]
    assert [code for code, _, _ in ends] == [0, 0, 0]
    assert rows(folder)[-1] == (3, json.loads(ends[0][1])["step"])
    *_, gone, back = [row["reason"] for row in restarts(folder)]
    says(gone, "supervisor worker 1")
    assert back == "from 2 to 3 workers"


def test_a_machine_that_is_stopped_leaves_and_the_others_go_on(start, folder):
    runs = [start("1..2", steps=10**6, names="a,b", machine=number) for number in range(2)]
    until(trained(folder, 15, size=2))
    runs[0].process.terminate()
    until(lambda: sizes(folder)[-2:] == [2, 1])  # one of them may have begun alone
    (folder / "enough").touch()
    ends = [run.ended() for run in runs]
    assert [code for code, _, _ in ends] == [143, 0]
    assert [step for _, step in rows(folder)] == list(range(1, len(rows(folder)) + 1))


def test_a_spare_machine_waits_steps_in_and_leaves_with_the_run(start, folder):
    runs = [start("2", steps=10**6, names="a,b,c", machine=number) for number in range(3)]
    until(trained(folder, 15))
    until(lambda: all(offer(folder, number) for number in range(3)))
    before = offer(folder, 0)["token"]
    runs[0].process.terminate()
    until(trained(folder, rows(folder)[-1][1] + 15))
    runs.append(start("2", steps=10**6, names="a,b,c", machine=0))
    until(lambda: offer(folder, 0)["token"] != before)
    (folder / "enough").touch()
    ends = [run.ended() for run in runs]
    assert [code for code, _, _ in ends] == [143, 0, 0, 0]
    assert rows(folder) == [(2, step) for step in range(1, len(rows(folder)) + 1)]


def test_a_machine_that_never_comes_is_named(start, folder):
    rules(folder, timeout=1)
    code, _, err = start("2", names="a,b").ended()
    assert code == 1
    assert "--workers=2: only 1 joined within 0:01 (RunConfig.workers_timeout)" in err
    assert "waiting for b (--task_index=1)" in err


def test_a_run_has_one_supervisor_for_a_machine(start, folder):
    start("2", steps=10_000)
    until(trained(folder, 5))
    code, _, err = start("2").ended()
    assert code == 1
    says(err, "written process")
