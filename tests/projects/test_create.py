"""`--mode=init`: each project that it writes trains, and passes its own tests."""

import contextlib
import errno
import importlib
import inspect
import os
import shlex
import sys

import pytest
import tensorflow as tf
from wording import says

from runner import main
from runner.command import typed
from runner.command.projects import create

SHORT = ["train_steps=2", "steps_per_loop=2", "validation_interval=2", "checkpoint_interval=2"]


def init(*arguments):
    return main.main(["--mode=init", *map(str, arguments)])


@pytest.fixture(params=create.LIKE)
def project(request, tmp_path, monkeypatch):
    folder = tmp_path / "deep" / request.param
    assert init(f"--like={request.param}", folder) == 0
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def commands(text):
    lines = (line.strip().removeprefix("#").strip() for line in text.splitlines())
    return [line for line in lines if line.startswith("runner --")]


def test_a_project_trains_by_its_command_and_passes_its_tests(project, tmp_path, capsys):
    gin = project / f"{project.name}.gin"
    (command,) = commands(gin.read_text())
    assert command in commands((project / "README.md").read_text())
    short = [f"--gin.TrainerConfig.{each}" for each in [*SHORT, "summary_interval=2"]]
    assert main.main([*shlex.split(command)[1:], *short]) == 0
    assert '"status": "done"' in capsys.readouterr().out
    (file,) = project.glob("test_*.py")
    tests = {
        name: test
        for name, test in vars(importlib.import_module(file.stem)).items()
        if name.startswith("test_")
    }
    assert len(tests) >= 2
    for name, test in tests.items():
        takes = inspect.signature(test).parameters
        test(**({"tmp_path": tmp_path / name} if "tmp_path" in takes else {}))
    if project.name == "text":
        (run,) = {path.parent for path in project.rglob("status.json")}
        assert takes_texts(run)


def test_what_its_readme_says_can_be_run(project, capsys):
    text = (project / "README.md").read_text()
    assert len(text.splitlines()) == 15
    for command in commands(text):
        with contextlib.suppress(SystemExit):  # of --help
            typed.parse(shlex.split(command, comments=True)[1:])
    assert f"({project.name}.gin:" in capsys.readouterr().out  # --help says what is set where


def test_an_empty_folder_will_do(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert init("--like=text", "--model_dir=mine") == 0
    assert (tmp_path / "mine" / "text.gin").exists()
    assert '{"status": "done", "like": "text", "folder": "mine"}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--like=imags", "mine"], "project images"),
        (["mine"], "--like missing images"),
        (["--like=images"], "--model_dir missing --mode=init --like=images my_project"),
        (["--like=images", ""], "--model_dir missing"),
        (["--like=images", "one", "two"], "--mode=init one directory"),
        (["--like=images", "one", "--model_dir=two"], "--mode=init one directory"),
        (["--like=images", "taken"], "taken writes"),
        (["--like=images", "taken/file"], "taken/file file way"),
        (["--like=images", "taken/file/below"], "file way"),
        (["--like=images", "gs://bucket/mine"], "init local"),
        (["--like=images", "a\nb"], "project machine"),
        (["--like=images", "mine", "--gin_file=a.gin"], "--gin_file --mode=init"),
        (["--like=images", "mine", "--dry_run"], "--dry_run --mode=init"),
        (["--lik=images", "mine"], "unknown flag --lik --like"),
        (["--like=images", "x" * 300], "File long"),
    ],
)  # fmt: skip
def test_a_mistake_writes_nothing(tmp_path, capsys, arguments, said):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    assert init(*arguments) == 2
    out, err = capsys.readouterr()
    says(err, said)
    assert not out
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "taken"]


def test_like_belongs_to_init(capsys):
    assert main.main(["--mode=train", "--like=images", "--gin_file=digits.gin"]) == 2
    says(capsys.readouterr().err, "--like --mode=train init")


def test_a_full_disk_leaves_nothing_of_a_project(tmp_path, monkeypatch, capsys):
    copy = create.shutil.copyfile

    def full(source, target):
        if target.exists() or any(target.parent.iterdir()):
            target.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        return copy(source, target)

    monkeypatch.setattr(create.shutil, "copyfile", full)
    assert init("--like=keras", tmp_path / "deep/mine") == 2
    says(capsys.readouterr().err, "mine space")
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("185,7,,20.6,0,318.9", "column 'age'"),
        ("185,7,old,20.6,0,318.9", "'old'"),
        ("185,7,nan,20.6,0,318.9", "column 'age'"),
        ("185,7,inf,20.6,0,318.9", "column 'age'"),
        ("185,7,35,20.6,318.9", "5 values for 6 columns"),
    ],
)
def test_a_row_that_is_not_all_numbers_is_named_before_training(tmp_path, capsys, line, said):
    assert init("--like=tabular", tmp_path / "mine") == 0
    file = tmp_path / "mine" / "houses.csv"
    lines = file.read_text().splitlines()
    lines[3] = line
    file.write_text("\n".join(lines))
    assert train(tmp_path / "mine") == 2
    err = capsys.readouterr().err
    assert f"houses.csv:4: {'column' if 'column ' in said else ''}" in err
    assert said in err
    assert not (tmp_path / "mine" / "run").exists()


@pytest.mark.parametrize("text", ["", "area,rooms\n1,2\n", "area,price\n1,2\n"])
def test_a_table_without_rows_or_target_is_named(tmp_path, capsys, text):
    assert init("--like=tabular", tmp_path / "mine") == 0
    (tmp_path / "mine" / "houses.csv").write_text(text)
    assert train(tmp_path / "mine") == 2
    assert "houses.csv has" in capsys.readouterr().err


def test_constant_columns_do_not_stop_training(tmp_path, capsys):
    assert init("--like=tabular", tmp_path / "mine") == 0
    rows = [f"{n},1,7" for n in range(100)]
    (tmp_path / "mine" / "houses.csv").write_text("\n".join(["area,rooms,price", *rows]))
    assert train(tmp_path / "mine") == 0
    assert '"status": "done"' in capsys.readouterr().out


def test_a_line_without_a_class_is_named_before_training(tmp_path, capsys):
    assert init("--like=text", tmp_path / "mine") == 0
    (tmp_path / "mine" / "train.tsv").write_text("positive\tgood\nno class here\n")
    assert train(tmp_path / "mine") == 2
    assert "train.tsv:2: " in capsys.readouterr().err


def takes_texts(run):
    """Whether the exported model of a run of the text project takes texts."""
    assert main.main(["--mode=export", f"--model_dir={run}", f"--gin_file={run}/config.gin"]) == 0
    (saved,) = (run / "export" / "saved_model").iterdir()
    served = tf.saved_model.load(str(saved)).signatures["serving_default"]
    answer = served(text=tf.constant(["a fine film", "dreadful"]))
    assert set(answer["label"].numpy()) <= {b"negative", b"positive"}
    assert answer["probabilities"].shape == (2, 2)
    return True


def train(folder):
    """The exit code of a short run of a project."""
    (gin,) = folder.glob("*.gin")
    short = [f"--gin.TrainerConfig.{each}" for each in [*SHORT, "summary_interval=2"]]
    command = ["--mode=train_and_eval", f"--gin_file={gin}", f"--model_dir={folder / 'run'}"]
    return main.main([*command, *short])
