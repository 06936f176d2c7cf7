"""Where the process is what is tested: start-up, a user's folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import own_task
import pytest
from wording import says

README = (Path(__file__).parents[2] / "README.md").read_text()
RUNNER = [sys.executable, "-m", "runner"]


def start(*flags, cwd):
    return subprocess.Popen(
        [*RUNNER, *flags], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--help", "--gin_file"),
        ("--help=modes", "Trains evaluates"),
        ("--help=experiments", "Handwritten digits"),
        ("--help=ImageClassificationConfig", "label_smoothing float 0.0"),
        ("--help=digits.gin", "CosineLrConfig.initial_learning_rate"),
        ("--version", "tf-models-official"),
        ("--complete", "--mode="),
    ],
)
def test_help_needs_no_tensorflow(flag, said):
    code = (
        "import sys; from runner import main\n"
        f"try: main.main(['{flag}'])\n"
        "except SystemExit: sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    says(done.stdout, said)


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = " ".join([*RUNNER, "--mode=train --gin_file=digits.gin --print_config | head -1"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "task:\n"
    assert done.stderr == ""


def test_the_manuals_own_task_runs_in_a_folder_of_its_own(tmp_path):
    assert set(own_task.FILES) == {"line.py", "line.gin"}
    for name, text in own_task.FILES.items():
        (tmp_path / name).write_text(text)
    command = re.search(
        r"^\$ (runner --mode=train_and_eval --gin.*line\.gin.*)$",
        own_task.PAGE.read_text(),
        re.MULTILINE,
    ).group(1)

    result = finish(start(*command.split()[1:], cwd=tmp_path))

    assert result["status"] == "done"
    assert result["metrics"]["error"] < 0.1


@pytest.mark.parametrize("line", ["pip install -e . ", "pip install -e '.[test]' "])
def test_the_readme_has_the_two_commands(line):
    assert line in README
