"""What a job runs: signals reach the command, and its end is the job's."""

import os
import signal
import subprocess
import sys
import time

import pytest

from runner.run_directory import status

STEPS = "open('run/step.txt', 'w').write('{}')"


def begin(tmp_path, code, *more, tries=2):
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "run.json").touch()
    first = ["--launcher=kubernetes", "--job=a", "--logs=run/launch", "--folder=run"]
    command = [*first, f"--tries={tries}", *more, "--", sys.executable, "-c", code]
    return subprocess.Popen([sys.executable, "-m", "runner.launch.start", *command], cwd=tmp_path)


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_code_of_a_command_that_ends_is_the_jobs(tmp_path, code):
    assert begin(tmp_path, f"raise SystemExit({code})").wait() == code


def test_a_killed_command_has_the_code_of_a_shell(tmp_path):
    assert begin(tmp_path, "import os; os.kill(os.getpid(), 9)").wait() == 137


def test_sigterm_is_passed_on_once_and_again_is_no_second_signal(tmp_path):
    code = """
import os, pathlib, time
from runner.core import signals
with signals.served() as stop, stop.deferred():
    pathlib.Path('ready').touch()
    while not stop.requested:
        time.sleep(0.01)
    os.kill(os.getpid(), 15)
    time.sleep(0.2)
    pathlib.Path('saved').touch()
raise SystemExit(143)
"""
    process = begin(tmp_path, code)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert (tmp_path / "saved").exists()


def test_preempted_starts_without_a_step_are_given_up(tmp_path):
    def code_of(step):
        return begin(tmp_path, f"{STEPS.format(step)}; raise SystemExit(143)").wait()

    assert [code_of(step) for step in (3, 3, 5, 5)] == [143] * 4
    assert code_of(5) == 6


def test_the_status_counts_where_the_code_may_be_a_helpers(tmp_path):
    seen = status.Status("running", 3, "", 0.0, "here", 1)
    template = (
        "from runner.core import files; import pathlib;"
        "files.write_json(pathlib.Path('run/status.json'), {}); raise SystemExit({})"
    )

    def code_of(state, code):
        row = {**vars(seen), "state": state, "heartbeat": time.time()}
        return begin(tmp_path, template.format(row, code), "--by_status", tries=9).wait()

    assert [code_of(*each) for each in (("done", 143), ("diverged", 143), ("preempted", 9))] == [
        *(0, 3, 143)
    ]
    assert code_of("failed", 0) == 1
    assert code_of("running", 137) == 137
    assert "RUNNER_ONE_SIGTERM" not in os.environ
