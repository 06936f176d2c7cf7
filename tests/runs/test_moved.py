"""A run's folder is moved or deleted while it trains: nothing comes back, and it resumes there."""

import shutil

import pytest
import tensorflow as tf
import toy
from resumed import rows, state

import runner
from runner.core import files
from runner.errors import LostError


def experiment(**run):
    return toy.experiment({"trainer": {"checkpoint_interval": 10}, "run": run})


def at_the_second_save(monkeypatch, act):
    """Calls `act` when a checkpoint is about to be written, after all that is checked before."""
    original, left = tf.train.Checkpoint.write, [2]

    def write(self, *arguments, **options):
        left[0] -= 1
        if not left[0]:
            act()
        return original(self, *arguments, **options)

    monkeypatch.setattr(tf.train.Checkpoint, "write", write)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    runner.run(experiment(), folder, "train_and_eval")
    return folder


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_moved_run_is_not_created_again_and_resumes_bit_exactly(
    tmp_path, monkeypatch, undisturbed, asynchronous
):
    run, moved = tmp_path / "run", tmp_path / "moved"
    at_the_second_save(monkeypatch, lambda: run.rename(moved))
    with pytest.raises(LostError) as error:
        runner.run(experiment(async_checkpoints=asynchronous), run, "train_and_eval")
    assert not run.exists()
    assert f"moved to {moved} " in str(error.value)
    assert "\n" not in str(error.value)
    runner.run(experiment(async_checkpoints=asynchronous), moved, "train_and_eval")
    assert state(moved, 40) == state(undisturbed, 40)
    for name in ("train.jsonl", "history.jsonl"):
        assert rows(moved / name) == rows(undisturbed / name)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_deleted_run_is_not_created_again(tmp_path, monkeypatch, asynchronous):
    run = tmp_path / "run"
    at_the_second_save(monkeypatch, lambda: shutil.rmtree(run))
    with pytest.raises(LostError) as error:
        runner.run(experiment(async_checkpoints=asynchronous), run, "train_and_eval")
    assert not run.exists()
    assert "moved or deleted" in str(error.value)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_wherever_a_move_is_noticed_the_place_is_named(tmp_path, at):
    run, left = tmp_path / "run", [at]

    def move(_):
        left[0] -= 1
        if not left[0]:
            run.rename(tmp_path / "moved")

    with pytest.raises(LostError, match="moved to"):
        runner.run(experiment(), run, "train_and_eval", train_actions=[move])
    assert not run.exists()
    assert not (tmp_path / "moved" / "claim.json").exists()


def test_an_evaluator_of_a_moved_run_ends(tmp_path):
    run = tmp_path / "run"
    runner.run(experiment(), run, "train")
    with pytest.raises(LostError, match="moved to"):
        runner.run(
            experiment(),
            run,
            "continuous_eval",
            eval_actions=[lambda _: run.rename(tmp_path / "moved") and None],
        )
    assert not run.exists()


def test_a_process_without_the_lock_does_not_create_a_moved_folder_again(tmp_path):
    run = tmp_path / "run"
    (run / "loggers").mkdir(parents=True)
    with files.staying(run):
        files.append_json_line(run / "loggers" / "a.jsonl", {})
        run.rename(tmp_path / "moved")
        for write in (files.write_json, files.append_json_line):
            with pytest.raises(LostError, match="moved to"):
                write(run / "loggers" / "a.jsonl", {})
    assert not run.exists()
