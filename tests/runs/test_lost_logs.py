"""A run whose logs have lost rows does not go on as if there had been none."""

import json
import shutil

import pytest
import toy
from wording import saying, says

import runner
from runner.checkpoints import extra_state, restore
from runner.errors import ConfigError, RunnerError
from runner.history import history
from runner.runs import build
from runner.runs.call import Call


def experiment(steps):
    plateau = {"lower": ("validation_loss",), "factor": 0.5, "tolerance": 1, "min_delta": 10.0}
    return toy.experiment({"trainer": {"train_steps": steps}, "run": {"plateau": plateau}})


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    runner.run(experiment(60), folder, "train_and_eval")
    return folder


@pytest.fixture
def run(source, tmp_path):
    return shutil.copytree(source, tmp_path / "run")


def delete(path):
    path.unlink()


def empty(path):
    path.write_text("")


def lose_the_last(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def overwrite_the_last(path):
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, b"\x9c" * len(last)]))


def keep_the_first(path):
    path.write_text(path.read_text().splitlines(keepends=True)[0])


# The checkpoint of the last step was committed before its evaluation.
LOSSES = [(delete, "2 of 2"), (empty, "2 of 2"), (keep_the_first, "1 of 2")]


@pytest.mark.parametrize(("lose", "lost"), LOSSES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_lost_history_stops_the_run_and_is_left_as_it_is(run, lose, lost):
    path = run / "history.jsonl"
    lose(path)
    before = path.read_bytes() if path.exists() else None
    said = rf"history.jsonl has lost {lost} evaluations that .*followed(.|\n)*allow_lost_\w+=True"
    with pytest.raises(ConfigError, match=said):
        runner.run(experiment(80), run, "train_and_eval")
    assert before == (path.read_bytes() if path.exists() else None)


def test_a_changed_row_is_noticed_too(run):
    path = run / "history.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["metrics"]["validation_loss"] += 0.1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=saying("first 2 evaluations")):
        runner.run(experiment(80), run, "train_and_eval")


def test_random_bytes_are_named(run):
    path = run / "history.jsonl"
    path.write_bytes(b"\x9c\xff\x00{" * 20 + b"\n" + path.read_bytes())
    with pytest.raises(RunnerError, match=saying("history.jsonl:1 line JSON")):
        runner.run(experiment(80), run, "train_and_eval")


@pytest.mark.parametrize("lose", [lose_the_last, overwrite_the_last])
def test_an_evaluation_of_the_checkpoint_itself_is_done_again(source, run, lose):
    path = run / "history.jsonl"
    lose(path)
    runner.run(experiment(60), run, "train_and_eval")
    metrics = [[row.metrics for row in history.read(each / path.name)] for each in (source, run)]
    assert metrics[0] == metrics[1]


def test_it_goes_on_without_the_lost_rows_where_that_is_allowed(run, capsys):
    (run / "history.jsonl").unlink()
    results = runner.run(experiment(80), run, "train_and_eval", allow_lost_history=True)
    assert results["step"] == 80
    says(capsys.readouterr().err, "continuing remaining")
    runner.run(experiment(100), run, "train_and_eval")  # nothing more has been lost


@pytest.mark.parametrize("lose", [delete, empty, lose_the_last, overwrite_the_last])
def test_lost_training_rows_are_said(run, capsys, lose):
    lose(run / "train.jsonl")
    runner.run(experiment(80), run, "train_and_eval")
    says(capsys.readouterr().err, "train.jsonl lost rows")


def test_a_whole_run_says_nothing(run, capsys):
    runner.run(experiment(80), run, "train_and_eval")
    assert "lost" not in capsys.readouterr().err


def test_a_checkpoint_from_before_there_was_a_count_is_restored(run):
    asked = Call(experiment(60), run)
    built, _ = build.build_trainer(asked, step=60, evaluates=True)
    path = run / "ckpt-60"
    restore.restore(built.checkpoint, path)
    delattr(built.checkpoint, extra_state.LogState.NAME)
    built.checkpoint.write(str(path))
    assert extra_state.LogState.read(path) is None

    lose_the_last(run / "history.jsonl")
    results = runner.run(experiment(80), run, "train_and_eval")
    assert results["step"] == 80
    assert extra_state.LogState.read(run / "ckpt-80").history.evaluations == 3
