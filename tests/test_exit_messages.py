"""What the command says last where there are no results."""

import json
import resource
from pathlib import Path

import own_task
import pytest
from wording import each_says, says

from runner import main

DIGITS = [
    "--mode=train",
    "--gin_file=digits.gin",
    "--model_dir=run",
    "--gin.TrainerConfig.train_steps=20",
    "--gin.TrainerConfig.steps_per_loop=10",
]

BROKEN = """
import dataclasses

from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class BrokenConfig(image_classification.ImageClassificationConfig):
    pass


@task_factory.register_task_cls(BrokenConfig)
class BrokenTask(image_classification.ImageClassificationTask):
    def build_losses(self, labels, model_outputs, aux_losses=None):
        return scale(super().build_losses(labels, model_outputs))


def scale(loss):
    return loss * [1.0, 2.0].mean()
"""


def status():
    found = json.loads(Path("run/status.json").read_text())
    return {"status": found["state"], "step": found["step"], "reason": found["reason"]}


def test_a_run_that_diverges_ends_with_json_that_agrees_with_its_status(capsys):
    assert main.main([*DIGITS, "--gin.TrainerConfig.loss_upper_bound=0.001"]) == 3
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    last = json.loads(out)
    assert last["status"] == "diverged"
    assert last["model_dir"] == "run"
    assert last == {**status(), "model_dir": "run"}
    assert err.splitlines()[-1] == f"runner: {last['reason']}"


def test_an_error_in_the_users_code_shows_the_users_lines_and_keeps_the_rest(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("broken.py").write_text(BROKEN)
    Path("broken.gin").write_text(own_task.digits_gin("broken", "BrokenConfig", 20))
    assert main.main(["--mode=train", "--gin_file=broken.gin", "--model_dir=run"]) == 1
    out, err = capsys.readouterr()
    each_says(
        err.splitlines(),
        "in your code",
        "broken.py:16 build_losses",
        "return scale(super().build_losses(labels, model_outputs))",
        "broken.py:20 scale",
        "return loss * [1.0, 2.0].mean()",
        "AttributeError: 'list' 'mean'",
        "traceback run/traceback.txt",
    )
    last = json.loads(out)
    says(last["reason"], "AttributeError: 'list' 'mean' (broken.py:20)")
    assert (last["status"], last["step"]) == ("failed", 0)
    assert last == {**status(), "model_dir": "run"}
    whole = Path("run/traceback.txt").read_text()
    assert "runner/training/trainer.py" in whole
    assert "autograph" in whole

    flags = ["--mode=train", "--gin_file=broken.gin", "--model_dir=another", "--dry_run"]
    assert main.main(flags) == 1
    *_, said, where = capsys.readouterr().err.splitlines()
    says(said, "AttributeError: 'list' 'mean'")
    assert "runner/training/trainer.py" in Path(where.split()[-1]).read_text()
    assert not Path("another").exists()


def test_a_disk_that_takes_no_more_is_one_line_whatever_fails_in_its_turn(capsys):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    small = [f"--gin.TrainerConfig.{name}=1" for name in ("steps_per_loop", "summary_interval")]
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # a few hundred rows
        long = "--gin.TrainerConfig.train_steps=100000"
        assert main.main([*DIGITS, *small, long, "--gin.CosineLrConfig.decay_steps=100000"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "failed"
    assert json.loads(out)["step"] > 0
    assert "Traceback" not in err
    *_, last = err.splitlines()
    says(last, "File large command")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((f"run/{name}", "directory") for name in ("params.yaml", "status.json", "run.json")),
        *((f"run/{name}", "directory") for name in ("history.jsonl", "train.jsonl", "checkpoint")),
        *((f"run/{name}", "file") for name in ("best", "train")),
        ("run", "file"),
        ("run", "link"),
        ("run", "link back"),
    ],
)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_what_is_in_the_way_is_named_and_left_as_it_is(capsys, name, kind, mode):
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    if kind == "directory":
        (path / "mine").mkdir(parents=True)
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to("/nowhere/at/all" if kind == "link" else path.absolute())
    before = {*Path().rglob("*")}
    assert main.main([f"--mode={mode}", *DIGITS[1:]]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["reason"] == err.splitlines()[-1].removeprefix("runner: ")
    says(err, f"{name} {kind}")
    assert "Traceback" not in err
    assert {*Path().rglob("*")} == before


def test_a_training_row_that_is_none_is_named_and_kept(capsys):
    assert main.main(DIGITS) == 0
    rows = Path("run/train.jsonl")
    right = rows.read_text()
    for row in ("[1]", "{}", '{"step": "x"}'):
        rows.write_text(f"{right}{row}\n")
        before = rows.read_bytes()
        capsys.readouterr()
        assert main.main(DIGITS) == 1
        err = capsys.readouterr().err
        says(err, "run/train.jsonl row training")
        assert "Traceback" not in err
        assert rows.read_bytes() == before


def test_an_error_of_the_runners_own_keeps_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr("runner.runs.build.build_costs", int)
    assert main.main(DIGITS) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "failed"
    says(err, "Traceback (most")
    says(err, "traceback run/traceback.txt")


def test_the_json_is_a_line_of_its_own_whatever_an_action_prints(capsys):
    Path("dots.py").write_text("def dot(logs):\n    print('.', end='')\n")
    Path("dots.gin").write_text(
        "import dots\ninclude 'digits.gin'\nRunConfig.actions = (@dots.dot,)\n"
    )
    flags = [flag.replace("digits.gin", "dots.gin") for flag in DIGITS]
    assert main.main(flags) == 0
    dots, last = capsys.readouterr().out.splitlines()
    assert dots == ".."
    assert json.loads(last)["status"] == "done"


@pytest.mark.parametrize("folder", [None, "run"])
def test_a_metric_that_does_not_exist_leaves_the_folder_as_it_was(capsys, folder):
    if folder:
        Path(folder).mkdir()
        Path(folder, "notes.txt").write_text("mine")
    flags = [*DIGITS, "--gin.EarlyStoppingConfig.higher=('acuracy',)"]
    flags[0] = "--mode=train_and_eval"
    assert main.main(flags) == 2
    says(capsys.readouterr().err, "mean accuracy")
    assert [path.name for path in Path().rglob("*")] == (["run", "notes.txt"] if folder else [])
