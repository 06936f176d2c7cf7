"""A run whose files are missing, empty or damaged, or that a kill has left temporary files in."""

import json
import os
import subprocess
import sys
import time

import finished
import pytest
import toy
from wording import says

import runner
from runner import main
from runner.errors import ConfigError
from runner.run_directory import claim_file


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    finished.run(toy.experiment(), folder)
    return folder


def longer(**overrides):
    return toy.experiment({"trainer": {"train_steps": 60}, **overrides})


def attempts(folder):
    return json.loads((folder / "run.json").read_text())["starts"]


def test_a_run_without_params_yaml_does_not_go_on_with_another_configuration(run, capsys):
    (run / "params.yaml").unlink()
    other = longer(run={"seed": 5})
    with pytest.raises(ConfigError, match=r"params\.yaml is missing(.|\n)*allow_config_change"):
        runner.run(other, run, "train_and_eval")
    assert not (run / "params.yaml").exists()
    results = runner.run(other, run, "train_and_eval", allow_config_change=True)
    assert results["step"] == 60
    assert "params.yaml is missing" in capsys.readouterr().err
    assert (run / "params.yaml").exists()


@pytest.mark.parametrize("text", [b'{"state": "run', b"\xff\x00", b"[1]", b'{"step": "x"}'])
def test_a_damaged_status_and_a_damaged_record_are_written_anew(run, capsys, text):
    for name in ("status.json", "run.json"):
        (run / name).write_bytes(text)
    results = runner.run(longer(), run, "train_and_eval")
    assert results["step"] == 60
    said = capsys.readouterr().err
    assert "status.json was damaged" in said
    assert "run.json was damaged" in said
    assert json.loads((run / "status.json").read_text())["state"] == "done"
    assert attempts(run)[-1]["state"] == "done"


def test_a_run_whose_list_of_checkpoints_is_lost_still_knows_its_latest_and_best(run):
    (run / "checkpoint").unlink()
    (run / "best" / "checkpoint").unlink()
    assert runner.run(toy.experiment(), run, "eval")["step"] == 40
    best = json.loads((run / "best" / "info.json").read_text())["best_ckpt_global_step"]
    assert runner.run(toy.experiment(), run, "eval", checkpoint="best")["step"] == best


def test_temporary_files_of_killed_processes_are_removed_at_the_next_start(run):
    code = (
        "import os, pathlib, signal\n"
        "from runner.run_directory import claim_file\n"
        "holder = claim_file.Holder.this()\n"
        f"path = pathlib.Path({str(run)!r}) / f'.claim.{{holder.token}}.tmp'\n"
        "claim_file.write(path, holder)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert list(run.glob(".claim.*.tmp"))
    for name in (".status.json.1.tmp", "sets/.x.1.tmp", "best/.info.json.1.tmp"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).touch()
    (run / "loggers").mkdir()
    young, old = (run / "loggers" / f".{name}.csv.1.tmp" for name in ("young", "old"))
    young.touch()
    old.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    holder = claim_file.Holder.this()
    waiting = run / f".claim.{holder.token}.tmp"  # another process asks for the folder
    descriptor = claim_file.write(waiting, holder)
    runner.run(longer(), run, "train_and_eval")
    claim_file.close(descriptor)
    assert set(run.rglob("*.tmp")) == {young, waiting}


def test_an_attempt_that_ended_without_a_word_is_recorded_and_said(run, capsys):
    record = json.loads((run / "run.json").read_text())
    record["starts"][-1] |= {"ended": None, "state": "running", "step": None}
    (run / "run.json").write_text(json.dumps(record))
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "running"}))
    runner.run(longer(), run, "train_and_eval")
    first, _ = attempts(run)
    assert (first["state"], first["step"]) == ("lost", 40)
    assert "out of memory" in first["reason"]
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "resumed at step 40" in x]
    assert "without recording how" in line


def test_a_finished_run_says_how_to_train_longer(run, capsys):
    runner.run(toy.experiment(), run, "train_and_eval")
    said = capsys.readouterr().err
    says(said, "finished step 40")
    assert "raise TrainerConfig.train_steps" in said
    assert "resumed" not in said


def test_where_epochs_decide_the_length_is_theirs(tmp_path, capsys):
    made = toy.experiment({"trainer": {"train_steps": 0}, "run": {"epochs": {"train": 2.0}}})
    made.task.train_data.num_examples = 30
    runner.run(made, tmp_path, "train")
    capsys.readouterr()
    runner.run(made, tmp_path, "train")
    assert "EpochsConfig.train" in capsys.readouterr().err


FLAGS = ["--gin.TrainerConfig.train_steps=20", "--gin.TrainerConfig.checkpoint_interval=20"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    train = ["--mode=train_and_eval", "--gin_file=digits.gin", f"--model_dir={folder}", *FLAGS]
    assert main.main(train) == 0
    return folder


def test_a_command_about_a_run_takes_its_configuration_from_its_folder(digits, capsys):
    assert main.main(["--mode=predict", f"--model_dir={digits}", "--output=out.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 359
    assert main.main(["--mode=eval", f"--model_dir={digits}"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 20
    train = ["--mode=train_and_eval", f"--model_dir={digits}"]
    assert main.main([*train, "--gin.TrainerConfig.train_steps=40"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["step"] == 40
    assert [line for line in err.splitlines() if line.startswith("changed:")] == [
        line for line in err.splitlines() if "train_steps" in line and "changed:" in line
    ]
    assert runner.run(None, digits, "eval")["step"] == 40


def test_without_a_configuration_there_is_nothing_to_run(tmp_path, capsys):
    for folder, why in ((tmp_path, "config.gin"), (tmp_path / "new", "new not exist")):
        assert main.main(["--mode=predict", f"--model_dir={folder}"]) == 2
        says(capsys.readouterr().err, f"--gin_file {why}")
    (tmp_path / "config.gin").touch()
    anew = ["--mode=train", f"--model_dir={tmp_path}", f"--overwrite={tmp_path.name}"]
    assert main.main(anew) == 2
    assert "--gin_file" in capsys.readouterr().err
