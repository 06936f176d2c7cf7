"""`--launch` in front of a command: what is submitted, and what is refused before that."""

import json
import shlex
import time
from pathlib import Path

import pytest
from wording import says

from runner import main
from runner.core import files
from runner.run_directory import status

CONFIG = ["--gin_file=digits.gin", "--gin.TrainerConfig.train_steps=3", "--gin.RunConfig.seed=4"]
TRAIN = ["--mode=train", *CONFIG, "--model_dir=runs/a b"]
IN_BUCKET = ["--mode=study", "--seeds=4", *CONFIG, "--model_dir=s3://bucket/a"]
SEVERAL = ["--launch=slurm", *TRAIN, "--workers=2..4"]


def launched(*arguments):
    return main.main(list(arguments))


def test_a_dry_run_prints_the_command_with_absolute_paths_and_leaves_nothing(tmp_path, capsys):
    assert launched("--launch=local", "--dry_run", *TRAIN) == 0
    folder, command = capsys.readouterr().out.splitlines()
    assert folder == f"cd {tmp_path}"
    words = shlex.split(command)
    assert words[2:] == [
        *("-m", "runner", "--mode=train", f"--model_dir={tmp_path}/runs/a b"),
        *("--gin_file=digits.gin", "--gin_params=TrainerConfig.train_steps=3"),
        *("--gin_params=RunConfig.seed=4", "&"),
    ]
    assert not list(tmp_path.iterdir())


def test_a_command_in_the_background_ends_as_it_would_here(tmp_path, capsys):
    environment = "--gin.LaunchConfig.environment=('GREETING=a b',)"
    assert launched("--launch=local", environment, *TRAIN) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "submitted"
    assert told["cancel"] == f"kill {told['job']}"
    (noted,) = files.read_json_lines(tmp_path / "runs" / "a b" / "launch" / "submitted.jsonl")
    assert noted | {name: told[name] for name in ("launcher", "job", "log", "cancel")} == noted
    given = Path(f"/proc/{told['job']}/environ").read_text()
    assert "GREETING=a b\0" in given
    deadline = time.monotonic() + 300
    while not (log := Path(told["log"]).read_text()).endswith("}\n"):
        assert time.monotonic() < deadline, log
        time.sleep(0.1)
    assert json.loads(log.splitlines()[-1])["status"] == "done"
    assert status.read(tmp_path / "runs" / "a b").step == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mode=compare", "runs/a", "runs/b"],
        ["--mode=report", "--model_dir=runs/a", "--output=page.html"],
        ["--mode=ensemble", "--runs=runs/a,runs/b", "--model_dir=runs/both", "--select=2"],
        ["--mode=predict", *CONFIG, "--model_dir=runs/a", "--output=a.jsonl", "--overwrite"],
        ["--mode=study", *CONFIG, "--seeds=3", "--model_dir=studies/a"],
        ["--mode=continuous_eval", *CONFIG, "--model_dir=runs/a"],
    ],
)
def test_any_command_can_be_launched(tmp_path, capsys, arguments):
    assert launched("--launch=local", "--dry_run", *arguments) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[1])
    assert f"{arguments[0]}" in words
    for each in ("runs/a", "runs/b", "page.html"):
        assert not [word for word in words if word.startswith(f"={each}")]


@pytest.mark.parametrize("nodes", [1, 4])
def test_workers_are_kept_going_by_a_supervisor_on_each_node(capsys, nodes):
    assert launched(*SEVERAL, "--dry_run", f"--gin.LaunchConfig.nodes={nodes}") == 0
    script = capsys.readouterr().out
    assert f"#SBATCH --nodes={nodes}\n" in script
    assert (" -- srun --nodes=4 " in script) == (nodes == 4)
    assert " --workers=2..4 " in script


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--launch=locl", *TRAIN], "mean local"),
        (["--launch=", *TRAIN], "--launch= empty"),
        (["--launch=local", "--mode=init", "p"], "--launch --mode=init"),
        (["--launch=local", "--print_config", *TRAIN], "--print_config combined"),
        (["--launch=local", *TRAIN, "--gin.LaunchConfig.gpus=1"], "gpus 1 effect"),
        (["--launch=local", *TRAIN, "--gin.LaunchConfig.time='2h'"], "time 2:30:00"),
        (["--launch=local", *TRAIN, "--gin.RunConfig.sed=1"], "mean"),
        ([*SEVERAL, "--gin.LaunchConfig.nodes=3"], "LaunchConfig.nodes 4 1"),
        ([*SEVERAL, "--gin.LaunchConfig.gpus=2"], "LaunchConfig.gpus 4"),
        (
            [*SEVERAL, "--model_dir=s3://bucket/a", "--gin.LaunchConfig.nodes=4"],
            "several machines",
        ),
        ([*IN_BUCKET, "--launch=ray"], "bucket machine"),
        ([*IN_BUCKET, "--launch=slurm", "--gin.LaunchConfig.nodes=2"], "machine time"),
        (
            ["--launch=local", *TRAIN, "--gin.LaunchConfig.environment=('NOT_SET_HERE',)"],
            "NOT_SET_HERE set",
        ),
        (
            [
                "--launch=local",
                "--mode=report",
                "--model_dir=a",
                "--gin.TrainerConfig.train_steps=3",
            ],
            "TrainerConfig",
        ),
        (
            ["--launch=local", "--mode=report", "--model_dir=a", "--gin.LaunchConfig.nodes=0"],
            "LaunchConfig.nodes 0 1",
        ),
    ],
)
def test_a_mistake_is_answered_here_and_nothing_is_submitted(tmp_path, capsys, arguments, said):
    assert launched(*arguments) == 2
    printed = capsys.readouterr()
    says(printed.err, said)
    assert not printed.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "setting",
    [
        "LaunchConfig.environment=('WANDB_API_KEY=0123456789abcdef0123',)",
        "RunConfig.notify='https://me:0123456789abcdef0123@example.org/'",
    ],
)
def test_a_secret_is_refused_and_not_shown(tmp_path, capsys, setting):
    assert launched("--launch=local", *TRAIN, f"--gin_params={setting}") == 2
    printed = capsys.readouterr()
    assert "secret" in printed.err
    assert "0123456789abcdef0123" not in printed.err + printed.out
    assert not list(tmp_path.iterdir())
