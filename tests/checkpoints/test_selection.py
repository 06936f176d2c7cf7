import json
from pathlib import Path

import finished
import pytest
import tensorflow as tf
import toy
from wording import saying

import runner
from runner.checkpoints import best, checkpoint_files, selection
from runner.errors import ConfigError, RunnerError
from runner.history import best_evaluation, records

FOLDERS = ["best", "best-f1"]


@pytest.fixture
def run(tmp_path):
    """Checkpoints 10, 20, 30 in the folder; 20 and a pruned 5 are the best by two metrics."""
    for step in (5, 10, 20, 30):
        tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / f"ckpt-{step}"))
    for folder, step in (("best", 20), ("best-f1", 5)):
        row = records.Evaluation(step, {"m": 1.0}, 0.0, 0.0, f"ckpt-{step}")
        keeper = best.BestCheckpoint(tmp_path / folder, best_evaluation.BestRule("m"))
        keeper.update([row], tmp_path / row.checkpoint)
    checkpoint_files.remove(tmp_path / "ckpt-5")
    checkpoint_files.list_committed(tmp_path, ["ckpt-10", "ckpt-20", "ckpt-30"])
    return tmp_path


def found(folder, which, folders=FOLDERS):
    paths = selection.select(folder, which, best=folders)
    return [str(path.relative_to(folder) if path.is_absolute() else path) for path in paths]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("latest", ["ckpt-30"]),
        ("best", ["best/ckpt-20"]),
        ("best-f1", ["best-f1/ckpt-5"]),
        ("all", ["best-f1/ckpt-5", "ckpt-10", "ckpt-20", "ckpt-30"]),  # each step once
        ("10", ["ckpt-10"]),
        ("30,10", ["ckpt-10", "ckpt-30"]),
        ("10,10", ["ckpt-10"]),
        ("10:20", ["ckpt-10", "ckpt-20"]),
        ("11:", ["ckpt-20", "ckpt-30"]),
        (":10", ["best-f1/ckpt-5", "ckpt-10"]),
        (":5,30", ["best-f1/ckpt-5", "ckpt-30"]),
        ("best/ckpt-20", ["best/ckpt-20"]),
        ("best/ckpt-20.index", ["best/ckpt-20"]),
    ],
)
def test_what_a_word_names(run, which, expected):
    assert found(run, which) == expected


def test_a_path_may_be_one_of_another_run(run):
    elsewhere = run / "elsewhere"
    for path in (run, run / "ckpt-30", run / "ckpt-30.index"):
        assert selection.select(elsewhere, str(path), best=["best"]) == [run / "ckpt-30"]


@pytest.mark.parametrize(
    "which",
    ["15", "10,15", "31:", "20:10", "newest", "1000:x", "ckpt-15", ".index", "/nowhere", ","],
)
def test_what_is_not_there_is_answered_with_what_is(run, which):
    with pytest.raises(ConfigError, match=saying("latest best-f1 5 10 20 30")) as error:
        selection.select(run, which, best=FOLDERS)
    assert f"--checkpoint={which}:" in str(error.value)


def test_a_misspelt_word_is_recognised(run):
    with pytest.raises(ConfigError, match=saying("mean latest")):
        selection.select(run, "lates", best=FOLDERS)


def test_an_empty_folder_has_no_latest_and_nothing_else_either(run):
    assert selection.select(run / "new", "latest", best=["best"]) == []
    for which in ("best", "all", "10"):  # not the one in the working folder
        with pytest.raises(ConfigError, match=saying("none yet")):
            selection.select(run / "new", which, best=["best"])


def evaluations(folder, kind="evaluation", name="once"):
    lines = (folder / f"eval-{name}" / "history.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


@pytest.fixture
def trained(tmp_path):
    return finished.run(toy.experiment(), tmp_path)


def test_all_checkpoints_are_evaluated_and_shown_in_a_table(tmp_path, trained, capsys):
    results = runner.run(toy.experiment(), tmp_path, "eval", checkpoint="all")

    scored = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [each["step"] for each in results["evaluations"]] == [20, 40]
    for each, row in zip(results["evaluations"], scored, strict=True):
        assert each["metrics"] == pytest.approx(row["metrics"], abs=1e-6)
        assert each["checkpoint"] == row["checkpoint"]
    assert results["best"]["step"] == trained["best"]["step"]
    table = capsys.readouterr().err.split("step  accuracy  validation_loss  seconds\n")[1]
    lines = [line.split() for line in table.splitlines()[:2]]
    assert [line[0] for line in lines] == ["20", "40"]
    assert float(lines[1][1]) == pytest.approx(scored[1]["metrics"]["accuracy"], abs=1e-4)
    assert [line[-1] == "best" for line in lines] == [
        step == trained["best"]["step"] for step in (20, 40)
    ]
    assert not (tmp_path / "eval-once" / "best").exists()


def damage(folder, step):
    file = folder / f"ckpt-{step}.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:100])


def test_one_of_several_that_cannot_be_read_does_not_stop_the_others(tmp_path, trained, capsys):
    for part in (tmp_path / "best").iterdir():
        part.unlink()
    damage(tmp_path, 20)
    results = runner.run(toy.experiment(), tmp_path, "eval", checkpoint="20,40")
    assert [each["step"] for each in results["evaluations"]] == [40]
    assert [row["step"] for row in evaluations(tmp_path, "damaged")] == [20]
    assert "  20  is damaged: " in capsys.readouterr().err


def test_where_nothing_can_be_read_the_command_fails(tmp_path, trained):
    for part in (tmp_path / "best").iterdir():
        part.unlink()
    for step in (20, 40):
        damage(tmp_path, step)
    with pytest.raises(RunnerError, match="ckpt-40 is damaged"):
        runner.run(toy.experiment(), tmp_path, "eval", checkpoint="40")
    with pytest.raises(RunnerError, match=saying("2 checkpoints evaluated")):
        runner.run(toy.experiment(), tmp_path, "eval", checkpoint="all")


def test_a_checkpoint_of_another_run_is_recorded_by_its_path(tmp_path, trained):
    other = tmp_path / "other"
    results = runner.run(toy.experiment(), other, "eval", checkpoint=str(tmp_path))
    assert Path(results["evaluations"][0]["checkpoint"]) == tmp_path / "ckpt-40"
    assert evaluations(other)[0]["checkpoint"] == str(tmp_path / "ckpt-40")


def test_rows_go_to_the_folder_that_the_evaluator_is_named_after(tmp_path, trained):
    named = toy.experiment({"run": {"evaluator": {"name": "mine"}}})
    runner.run(named, tmp_path, "eval", checkpoint="40")
    assert [row["checkpoint"] for row in evaluations(tmp_path, name="mine")] == ["ckpt-40"]
