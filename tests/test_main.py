"""The command, in this process where the process does not matter."""

import json
import re
import sys

import pytest
from absl import logging
from wording import saying, says

from runner import main
from runner.configuration import gin_parser
from runner.core import installation
from runner.errors import RunnerError

SHORT = [
    "--gin_file=digits.gin",
    "--gin.TrainerConfig.train_steps=20",
    "--gin.TrainerConfig.steps_per_loop=10",
    "--gin.TrainerConfig.summary_interval=10",
    "--gin.TrainerConfig.validation_interval=10",
]


def run(capsys, *flags):
    code = main.main(flags)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_last_line_on_stdout_is_the_result_as_json(capsys):
    code, out, err = run(capsys, "--mode=train_and_eval", "--model_dir=runs/d", *SHORT)
    assert code == 0
    result = json.loads(out.splitlines()[-1])
    assert result["status"] == "done"
    assert result["step"] == 20
    assert set(result) == {"status", "step", "metrics", "best", "model_dir"}
    assert out.count("\n") == 1  # everything else is on stderr
    assert "multiply-adds" in err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mode=trian"], "mean train"),
        (["--mode=train_and_evaluate"], "mean train_and_eval"),
        (["--mode=train", "--gin_fil=x.gin"], "unknown flag --gin_fil --gin_file"),
        (["--mode=train", "extra"], "extra flag"),
        (["--mode=train", "--checkpoint=best"], "--checkpoint --mode=train eval"),
        (["--mode=eval", "--checkpoint="], "--checkpoint= empty"),
        (["--mode=train", "--model_dir="], "--model_dir missing"),
        (["--mode=train", "--help=modess"], "mean modes"),
        (["--print_config=al"], "--print_config=al choose changed"),
        (["--mode=train", "--config_file=no.yaml"], "no.yaml file"),
        (["--mode=train", "--params_override=trainer.train_stepz=5"], "mean train_steps"),
        (["--mode=train", "--tf_data_service=x"], "tf_data_service_address='x' effect"),
        (["--mode=train", "--gin_file=digit.gin"], "mean digits.gin"),
        (["--mode=train", "--gin.TrainerConfig.train_stepz=5"], "mean train_steps"),
        (["--mode=train", "--gin.TrainerConfg.train_steps=5"], "mean"),
        (["--mode=train", "--gin.TrainerConfig.train_steps='many'"], "expected int"),
        (["--mode=train", "--gin.EMAConfig.average_decay=0.9"], "EMAConfig"),
        (["--mode=train", "--gin.TrainerConfig.train_steps=0"], "train_steps"),
        (["--mode=train", "--gin.TrainerConfig.checkpoint_interval=0"], "checkpoint_interval"),
        (["--mode=eval"], "no checkpoint"),
        (["--mode=train", "--gin.RunConfig.seed=-1"], "0 below 4294967296"),
        (
            ["--mode=train", f"--params_override={','.join(['trainer.train_stepz=5'] * 20)}"],
            "did you",
        ),
        (["--mode=train", "--model_dir=s4://bucket/runs"], "mean s3://"),
        (["--mode=eval", "--checkpoint=7"], "--checkpoint=7"),
        (
            ["--mode=train", "--gin.TrainerConfig.best_checkpoint_eval_metric='acuracy'"],
            "mean accuracy",
        ),
        (["--mode=train", "--gin.RuntimeConfig.distribution_strategy='mirored'"], "mirrored"),
        (["--mode=train", "--gin.RuntimeConfig.num_gpus=64"], "num_gpus 64"),
    ],
)
def test_a_mistake_exits_2_with_its_place_and_what_was_meant(capsys, flags, said):
    code, out, err = run(capsys, "--model_dir=runs/d", "--gin_file=digits.gin", *flags)
    assert code == 2
    assert out == ""
    says(err, said)
    assert "Traceback" not in err
    assert err.startswith("runner: ")
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize("missing", ["--mode=train", "--gin_file=digits.gin", "--model_dir=d"])
def test_a_missing_flag_is_named(capsys, missing):
    flags = {"--mode=train", "--gin_file=digits.gin", "--model_dir=d"} - {missing}
    code, _, err = run(capsys, *flags)
    assert code == 2
    assert missing.split("=")[0] in err


def test_model_gardens_switches_are_understood(capsys, monkeypatch):
    levels = []
    monkeypatch.setattr(logging, "use_absl_handler", lambda: None)
    monkeypatch.setattr(logging, "set_verbosity", levels.append)
    flags = ["--mode=train", "--gin_file=digits.gin", "--print_config"]
    for switch, value in (
        ("--enable_async_checkpointing", "true"),
        ("--enable_async_checkpointing=False", "false"),
        ("--noenable_async_checkpointing", "false"),
    ):
        code, out, _ = run(capsys, *flags, "--alsologtostderr", switch)
        assert code == 0
        assert f"async_checkpoints: {value} " in out
    assert levels == [logging.INFO] * 3
    code, _, err = run(capsys, *flags, "--alsologtostderr=perhaps")
    assert code == 2
    says(err, "--alsologtostderr perhaps true false")


def test_the_command_alone_is_answered_with_one_that_works(capsys):
    code, _, err = run(capsys)
    assert code == 2
    assert "runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits" in err


def test_the_working_folder_comes_before_the_experiments_that_travel_along(capsys, tmp_path):
    (tmp_path / "digits.gin").write_text("include 'nothing_of_the_kind.gin'\n")
    code, _, err = run(capsys, "--mode=train", "--model_dir=d", "--gin_file=digits.gin")
    assert code == 2
    assert "digits.gin:1" in err
    assert "nothing_of_the_kind.gin" in err


def test_the_index_package_called_orbit_is_recognised(tmp_path, monkeypatch):
    (tmp_path / "orbit").mkdir()
    (tmp_path / "orbit" / "__init__.py").write_text('"""Orbits of satellites."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    with monkeypatch.context() as context:
        context.delitem(__import__("sys").modules, "orbit", raising=False)
        with pytest.raises(RunnerError, match=saying("TensorFlow's Orbit uninstall")):
            installation.check()


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_what_takes_seconds_is_said_first_to_somebody_at_a_terminal(
    capsys, monkeypatch, at_a_terminal
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_a_terminal)
    _, _, err = run(capsys, "--mode=train", "--model_dir=runs/d", *SHORT)
    said = [line for line in err.splitlines() if line.endswith(" ...")]
    assert said == (["loading TensorFlow ...", "building the model ..."] if at_a_terminal else [])
    assert not at_a_terminal or err.startswith(said[0])


def test_experiments_are_described_by_whole_sentences(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main.main(["--help=experiments"])
    lines = capsys.readouterr().out.splitlines()
    listed = lines[: lines.index("")]
    assert max(map(len, listed)) <= 60
    entries = re.split(r"\n(?=\S)", "\n".join(listed))
    assert len(entries) == len(list(gin_parser.EXPERIMENTS.glob("*.gin")))
    assert all(entry.endswith(".") for entry in entries)


def test_the_configuration_is_printed_even_if_it_is_invalid(capsys):
    flags = [
        "--gin_file=digits.gin",
        "--print_config=changed",
        "--gin.TrainerConfig.train_steps=-5",
    ]
    code, out, err = run(capsys, "--mode=train", *flags)
    assert code == 2
    assert "train_steps: -5" in out
    says(err, "trainer.train_steps -5 1 train")


def test_a_missing_gin_file_suggests_only_files_that_can_be_run(capsys):
    code, _, err = run(capsys, "--mode=train", "--model_dir=d", "--gin_file=bas.gin")
    assert (code, "bas.gin" in err, "base.gin" in err) == (2, True, False)
    says(run(capsys, "--mode=train", "--model_dir=d", "--gin_file=digit.gin")[2], "mean digits.gin")


def test_an_unknown_mode_is_named_with_the_others_and_what_was_meant(capsys):
    code, _, err = run(capsys, "--mode=trian", "--model_dir=d", "--gin_file=digits.gin")
    assert code == 2
    assert "--mode=trian" in err
    assert err.index("'train'") < err.index("train_and_post_eval")
