"""A process that this one starts, watches, signals and ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.core import child
from runner.core.child import Child, Tie
from runner.errors import RunnerError

FOLLOWS = "from runner.core import signals; signals.end_with_parent();"
STARTS = """
import pathlib, subprocess, sys, time
from runner.core.child import Child, Tie
code, tie, place = sys.argv[1:]
child = Child([sys.executable, "-c", code], tie=Tie[tie])
pathlib.Path(place).write_text(str(child.pid))
time.sleep(600)
"""
HAS_A_CHILD = """
import pathlib, subprocess, sys, time
own = subprocess.Popen(["sleep", "600"])
pathlib.Path(sys.argv[1]).write_text(str(own.pid))
time.sleep(600)
"""


def python(code, *arguments, **options):
    return Child([sys.executable, "-c", code, *map(str, arguments)], **options)


def number_in(path):
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    return int(path.read_text())


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_the_end(pid):
    while runs(pid):
        time.sleep(0.01)


@pytest.mark.parametrize(("tie", "outlives"), [("OWNED", False), ("DETACHED", True)])
def test_what_outlives_a_killed_parent(tmp_path, tie, outlives):
    code = f"{FOLLOWS} import time; time.sleep(600)"
    parent = python(STARTS, code, tie, tmp_path / "pid")
    pid = number_in(tmp_path / "pid")
    parent.send(signal.SIGKILL)
    assert parent.wait() == -signal.SIGKILL
    if outlives:
        assert runs(pid)
        os.kill(pid, signal.SIGKILL)
    wait_for_the_end(pid)


def test_a_foreground_process_shares_the_session_and_another_does_not():
    for tie, shares in ((Tie.FOREGROUND, True), (Tie.OWNED, False), (Tie.DETACHED, False)):
        with python("import time; time.sleep(600)", tie=tie) as process:
            assert (os.getsid(process.pid) == os.getsid(0)) == shares


def test_the_grace_period_ends_with_a_kill_of_the_whole_group(tmp_path):
    with python(HAS_A_CHILD, tmp_path / "pid") as process:
        pid = number_in(tmp_path / "pid")
        assert process.code is None
        assert process.wait(0.01) is None
        assert process.end(0.01) == -signal.SIGKILL
    wait_for_the_end(pid)


def test_a_suspended_process_is_ended():
    with python("import time; time.sleep(600)") as process:
        process.send(signal.SIGSTOP)
    assert process.code == -signal.SIGKILL


def test_a_signal_that_the_process_handles_lets_it_end_by_itself(tmp_path):
    code = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        "pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    )
    with python(code, tmp_path / "ready") as process:
        assert process.wait_until((tmp_path / "ready").exists)
        process.send(signal.SIGTERM)
        assert not process.wait_until(lambda: False)
        assert process.end() == 7
        process.send(signal.SIGTERM)  # too late, and no error
        process.kill()


def test_results_are_the_last_line_of_the_answer(tmp_path):
    code = "import json, sys; print('first'); print(json.dumps({'step': 3})); sys.exit(%r)"
    files = {"log": tmp_path / "log", "answer": tmp_path / "answer"}
    with python(code % 0, **files) as process:
        assert process.results() == {"step": 3}
    with (
        python(code % "runner: no luck", **files) as process,
        pytest.raises(RunnerError, match=r"exit code 1; .*\n    runner: no luck$"),
    ):
        process.results()


@pytest.mark.parametrize(
    ("printed", "lines", "reason"),
    [
        ("", [], ""),
        ("a\nb", ["b"], "b"),
        ("a\nrunner: b\n  c\n", ["runner: b", "  c"], "b   c"),
        ('runner: b\n{"reason": "c"}', ["runner: b", '{"reason": "c"}'], "c"),
        ('{"step": 3}\nb', ["b"], "b"),
    ],
)
def test_the_last_lines_and_the_reason_are_those_of_this_process(tmp_path, printed, lines, reason):
    log = tmp_path / "new" / "log"
    with python("print('runner: of an earlier process')", log=log) as process:
        assert process.wait() == 0
    with python(f"print({printed!r})", log=log) as process:
        assert process.wait() == 0
        assert process.last_lines() == lines
        assert process.reason() == reason


def test_variables_directory_and_message(tmp_path):
    code = "import json, os, sys; print(json.dumps([os.environ['A'], os.getcwd(), input()]))"
    options = {"environment": {"A": "b"}, "directory": tmp_path, "log": tmp_path / "log"}
    with python(code, tie=Tie.DETACHED, message=b"hello", **options) as process:
        assert process.wait() == 0
    assert json.loads((tmp_path / "log").read_text()) == ["b", str(tmp_path), "hello"]


def test_a_command_that_does_not_exist_is_an_os_error():
    with pytest.raises(OSError):
        Child(["/no/such/command"])


def test_exit_codes_in_words_and_as_a_shell_has_them():
    assert child.ending(3).endswith("exit code 3")
    assert child.ending(-9).endswith("SIGKILL")
    assert child.ending(-63).endswith("signal 63")
    assert (child.exit_status(3), child.exit_status(-15)) == (3, 143)


def test_the_module_needs_no_tensorflow():
    code = "import sys, runner.core.child; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
