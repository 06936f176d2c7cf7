"""What the loss of stdout or stderr means for the command."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm import Popen

from runner import main
from runner.core import console
from runner.run_directory.verification import comparison

RUNNER = [sys.executable, "-m", "runner"]
LOSSES = {  # as a shell writes them
    "closed": ">&- 2>&- <&-",
    "full and no reader": ">/dev/full 2> >(true)",
}
NOISY = """
import logging, os, sys, time

def noisy(logs):
    os.system("echo a child process; echo a child process >&2")
    print("a task", flush=True)
    print("a task", file=sys.stderr)
    logging.getLogger("library").warning("a library")
"""
FLAGS = [
    "--mode=train",
    "--gin_file=noisy.gin",
    "--gin.TrainerConfig.train_steps=20",
    "--gin.TrainerConfig.steps_per_loop=5",
]


def shell(command, **options):
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, **options)


def command(*flags):
    return " ".join([*RUNNER, *flags])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "noisy.py").write_text(NOISY)
    (folder / "noisy.gin").write_text(
        "import noisy\ninclude 'digits.gin'\nRunConfig.actions = (@noisy.noisy,)\n"
    )
    with (folder / "log").open("a") as log:
        run = Popen([*RUNNER, *FLAGS, "--model_dir=run"], cwd=folder, stdout=log, stderr=log)
        assert run.wait(600) == 0
    return folder


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_without_its_streams_trains_to_its_end_with_the_same_bits(undisturbed, loss):
    name = loss.replace(" ", "_")
    flags = [*FLAGS, "--alsologtostderr", f"--model_dir={name}"]
    done = shell(f"{command(*flags)} {LOSSES[loss]}", cwd=undisturbed)
    assert done.returncode == 0
    parts = comparison.compare(undisturbed / "run", undisturbed / name)
    assert comparison.differing(parts) == {}
    assert json.loads((undisturbed / name / "status.json").read_text())["state"] == "done"


@pytest.mark.parametrize(("loss", "reason"), [("closed", "closed"), ("/dev/full", "space")])
@pytest.mark.parametrize("flags", ["--help=RunConfig", "--mode=runs --model_dir=."])
def test_what_was_to_be_printed_and_could_not_be_is_an_error(flags, loss, reason):
    where = ">&-" if loss == "closed" else f">{loss}"
    done = shell(f"{command(flags)} {where}")
    assert done.returncode == 1
    assert "stdout" in done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert shell(f"{command(flags)} {where} 2>&-").returncode == 1


@pytest.mark.parametrize("flags", ["--help=RunConfig", "--mode=runs --model_dir=.", "--complete"])
def test_a_reader_of_the_answer_that_has_seen_enough_is_no_error(flags):
    done = shell(f"{command(flags)} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("loss", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_a_mistake_exits_2_although_nobody_can_read_what_it_is(loss):
    assert shell(f"{command('--mode=trian')} {loss}").returncode == 2


def test_a_broken_pipe_of_the_users_is_a_failure(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("own_pipe.py").write_text(
        "def send(logs):\n    raise BrokenPipeError(32, 'Broken pipe')\n"
    )
    Path("noisy.gin").write_text(
        "import own_pipe\ninclude 'digits.gin'\nRunConfig.actions = (@own_pipe.send,)\n"
    )
    assert main.main([*FLAGS, "--model_dir=run"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "failed"
    assert "own_pipe.py" in err
    assert "BrokenPipeError" in err


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text=""):
        raise BrokenPipeError(32, "Broken pipe")

    flush = write


@pytest.mark.parametrize("stream", [None, Broken()])
def test_a_program_that_calls_the_runner_does_not_fail_for_its_stderr(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    console.say("noted")
    console.announce("loading ...")
    console.show("step 1")
    console.end()
    console.flush()


def test_a_program_that_calls_the_runner_learns_that_its_stdout_takes_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken())
    with pytest.raises(BrokenPipeError):
        console.answers().say("a table")
