import json
import signal
import sys

import pytest

from runner.core import files
from runner.errors import RunnerError
from runner.run_directory.verification import child_run

# Stands for the command: it trains a step every few milliseconds.
RUN = """
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[-1].removeprefix("--model_dir="))
folder.mkdir(exist_ok=True)
(folder / "run.json").touch()
if "polite" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
for step in range(1, 1 + int(sys.argv[1])):
    with (folder / "train.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": step}) + chr(10))
    time.sleep(0.005)
if "explained" in sys.argv:
    sys.exit(chr(10).join(["much", "else", "runner: in your code:", *"abcdefg"]))
if "broken" in sys.argv:
    print("first words", file=sys.stderr)
    sys.exit("last words")
print(json.dumps({"step": step}))
"""


def start(folder, *arguments):
    return child_run.ChildRun([sys.executable, "-c", RUN, *arguments], folder / "run")


def test_a_run_is_started_watched_and_finished(tmp_path):
    with start(tmp_path, "20") as run:
        assert run.wait_for(lambda: child_run.last_row(tmp_path / "run") >= 10)
        assert run.finish() == {"step": 20}


@pytest.mark.parametrize("manners", ["polite", "rude"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_interrupts_it(tmp_path, number, manners):
    with start(tmp_path, "100000", manners) as run:
        assert run.wait_for(lambda: child_run.last_row(tmp_path / "run") >= 3)
        assert run.interrupt(number)
    assert 3 <= child_run.last_row(tmp_path / "run") < 1000


def test_a_run_that_is_done_is_not_interrupted(tmp_path):
    with start(tmp_path, "2") as run:
        assert not run.wait_for(lambda: False)
        assert not run.interrupt(signal.SIGKILL)


def test_a_run_that_fails_is_quoted(tmp_path):
    with (
        start(tmp_path, "2", "broken") as run,
        pytest.raises(RunnerError, match=r"code 1(?s:.*)\n    first words\n    last words$"),
    ):
        run.finish()


def test_of_a_run_that_says_why_it_failed_all_of_that_is_quoted(tmp_path):
    with (
        start(tmp_path, "2", "explained") as run,
        pytest.raises(RunnerError, match=r":\n    runner: in your code:(\n    [a-g]){7}$"),
    ):
        run.finish()


def test_no_process_is_left_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), start(tmp_path, "100000") as run:
        raise KeyboardInterrupt
    assert run.chief.code == -signal.SIGKILL


def test_the_last_row_is_the_last_whole_one(tmp_path):
    assert child_run.last_row(tmp_path) == 0
    (tmp_path / "run.json").touch()
    files.append_json_line(tmp_path / "train.jsonl", {"step": 10})
    with (tmp_path / "train.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": 20})[:-1])
    assert child_run.last_row(tmp_path) == 10
