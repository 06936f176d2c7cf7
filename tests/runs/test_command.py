"""Where the process is what is tested: start-up, an evaluator beside training, a user's folder."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import own_task
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
RUNNER = [sys.executable, "-m", "runner"]


def start(*flags, cwd):
    return subprocess.Popen(
        [*RUNNER, *flags], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--help", "--gin_file"),
        ("--help=modes", "Trains, and evaluates on the way and at the end."),
        ("--help=experiments", "Handwritten digits"),
        ("--help=ImageClassificationConfig", "label_smoothing: float = 0.0"),
        ("--help=digits.gin", "CosineLrConfig.initial_learning_rate"),
        ("--version", "TensorFlow 2."),
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
    assert said in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = " ".join([*RUNNER, "--mode=train --gin_file=digits.gin --print_config | head -1"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "task:\n"
    assert done.stderr == ""


def test_an_evaluator_evaluates_while_training_goes_on_and_ends_after_the_last_checkpoint(tmp_path):
    common = ["--gin_file=digits.gin", "--model_dir=run", "--gin.TrainerConfig.steps_per_loop=10"]
    evaluator = start("--mode=continuous_eval", *common, cwd=tmp_path)  # before there is a folder
    training = start(
        "--mode=train",
        *common,
        "--gin.TrainerConfig.train_steps=4000",
        "--gin.TrainerConfig.checkpoint_interval=50",
        "--gin.TrainerConfig.max_to_keep=1",
        cwd=tmp_path,
    )
    finish(training)
    trained = time.time()
    result = finish(evaluator)

    assert result["step"] == 4000
    ledger = (tmp_path / "run" / "eval-continuous" / "history.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in ledger]
    assert steps == sorted(set(steps))  # none twice
    assert len(steps) > 1  # it did not only wait for the end
    assert json.loads(ledger[-1])["time"] < trained + 60
    assert not list((tmp_path / "run" / "eval-continuous").glob("ckpt-*"))  # pins are gone
    assert not (tmp_path / "run" / "history.jsonl").exists()


def test_the_manuals_own_task_runs_in_a_folder_of_its_own(tmp_path):
    assert set(own_task.FILES) == {"line.py", "line.gin"}
    for name, text in own_task.FILES.items():
        (tmp_path / name).write_text(text)
    command = re.search(r"^\$ (runner .*line\.gin.*)$", own_task.PAGE, re.MULTILINE).group(1)

    result = finish(start(*command.split()[1:], cwd=tmp_path))

    assert result["status"] == "done"
    assert result["metrics"]["error"] < 0.1


@pytest.mark.parametrize("line", ["pip install -e . ", "pip install -e '.[test]' "])
def test_the_readme_has_the_two_commands(line):
    assert line in README
