import json
import math
import os

import pytest
import tensorflow as tf

from runner import best, checkpoint_files, checkpoints, history, restoring, rules
from runner.errors import RunnerError

RULE = rules.BestRule("accuracy")
DATA = "data-00000-of-00001"


class Model(tf.Module):
    def __init__(self, value=0.0):
        self.weights = tf.Variable(tf.fill([3], value))


def commit(folder, *steps, keep=5):
    """Checkpoints whose weights are their step."""
    model = Model()
    made = checkpoints.Checkpoints(
        tf.train.Checkpoint(model=model), folder, max_to_keep=keep, asynchronous=False
    )
    for step in steps:
        model.weights.assign(tf.fill([3], float(step)))
        made.commit(step)
        yield folder / f"ckpt-{step}"


def row(step, accuracy):
    return history.Row(step, {"accuracy": accuracy}, 0.0, 0.0, f"ckpt-{step}")


def info(folder):
    return json.loads((folder / "info.json").read_text())


def weights(path):
    again = tf.train.Checkpoint(model=Model())
    again.read(str(path)).expect_partial()
    return again.model.weights.numpy().tolist()


def write_averages(path):
    step = float(path.name.removeprefix("averaged-"))
    tf.train.Checkpoint(model=Model(step + 0.5)).write(str(path))


def test_the_best_is_the_committed_file_itself_and_info_has_model_gardens_keys(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE)
    rows = []
    accuracies = {10: 0.5, 20: 0.75, 30: 0.6}
    for path in commit(tmp_path, *accuracies, keep=1):
        step = checkpoints.step_of(path)
        rows.append(row(step, accuracies[step]))
        keeper.update(rows, path)
        if step == 20:
            assert (folder / "ckpt-20.index").samefile(tmp_path / "ckpt-20.index")

    assert info(folder)["best_ckpt_global_step"] == 20.0
    assert info(folder)["accuracy"] == 0.75
    assert not (tmp_path / "ckpt-20.index").exists()  # pruned there, kept here
    latest = tf.train.latest_checkpoint(str(folder))
    assert latest == str(folder / info(folder)["checkpoint"])
    assert weights(latest) == [20.0] * 3
    assert len(list(folder.glob("*.index"))) == 1


def test_averages_lie_beside_the_best_and_go_with_it(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE, write_averages=write_averages)
    ten, twenty = commit(tmp_path, 10, 20)
    keeper.update([row(10, 0.5)], ten)
    keeper.update([row(10, 0.5), row(20, 0.9)], twenty)
    assert info(folder)["averaged_weights"] == "averaged-20"
    assert weights(folder / "averaged-20") == [20.5] * 3
    assert not list(folder.glob("averaged-10*"))


def test_nan_is_never_best(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    rows = [row(10, math.nan)]
    assert keeper.update(rows, ten) is None
    assert not (tmp_path / "best").exists()
    rows.append(row(20, 0.1))
    assert keeper.update(rows, twenty).step == 20


def test_a_best_that_the_folder_lost_is_found_beside_the_newest(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE, write_averages=write_averages)
    rows = [row(10, 0.9), row(20, 0.5)]
    assert keeper.update(rows, twenty).step == 10
    assert info(tmp_path / "best")["checkpoint"] == "ckpt-10"
    assert "averaged_weights" not in info(tmp_path / "best")  # those at hand are of step 20
    checkpoint_files.remove(tmp_path / "best" / "ckpt-10")
    keeper.update(rows, ten)
    assert weights(tmp_path / "best" / "ckpt-10") == [10.0] * 3


def test_weights_that_are_no_checkpoint_of_the_run_are_not_exported(tmp_path):
    rows = [history.Row(0, {"accuracy": 0.5}, 0.0, 0.0, "pretrained")]
    (tmp_path / "pretrained").mkdir()
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    assert keeper.update(rows, tmp_path / "pretrained").step == 0
    assert not (tmp_path / "best").exists()


class Killed(BaseException):
    """The process ends here: whatever it tries afterwards does not happen."""


class Mortal:
    """Lets a number of changes to the disk happen, and then no more."""

    def __init__(self, monkeypatch, changes):
        self.left = changes
        for name in ("link", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, function):
        def change(*args, **kwargs):
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return function(*args, **kwargs)

        return change

    def write_averages(self, path):
        self.counted(write_averages)(path)
        if self.left == 0:  # what TensorFlow leaves when it is killed before the end
            path.with_name(f"{path.name}_temp").mkdir()
            path.with_name(f"{path.name}.index").write_bytes(b"")


@pytest.mark.parametrize("in_its_way", [False, True])
def test_killed_at_any_point_the_folder_names_a_whole_best_and_is_put_right(
    tmp_path, monkeypatch, in_its_way
):
    ten, twenty = commit(tmp_path, 10, 20)
    rows = [row(10, 0.5), row(20, 0.9)]
    changes = 0
    finished = False
    while not finished:
        folder = tmp_path / f"best-{changes}"
        best.BestCheckpoint(folder, RULE, write_averages=write_averages).update(rows[:1], ten)
        if in_its_way:  # an earlier kill left something
            (folder / f"ckpt-20.{DATA}").write_bytes(b"x")
            (folder / "averaged-15_temp").mkdir()
            (folder / f".ckpt-15.{DATA}.1.tmp").write_bytes(b"x")
        with monkeypatch.context() as patch:
            mortal = Mortal(patch, changes)
            keeper = best.BestCheckpoint(folder, RULE, write_averages=mortal.write_averages)
            try:
                keeper.update(rows, twenty)
                finished = True
            except Killed:
                pass
        named = info(folder)
        assert (named["checkpoint"], named["accuracy"]) in (("ckpt-10", 0.5), ("ckpt-20", 0.9))
        assert restoring.damage(folder / named["checkpoint"]) is None
        assert restoring.damage(folder / named["averaged_weights"]) is None

        best.BestCheckpoint(folder, RULE, write_averages=write_averages).update(rows, twenty)
        assert info(folder)["checkpoint"] == "ckpt-20"
        assert weights(folder / "averaged-20") == [20.5] * 3
        assert {path.name for path in folder.iterdir()} == {
            "checkpoint",
            "info.json",
            *(f"{name}.{part}" for name in ("ckpt-20", "averaged-20") for part in ("index", DATA)),
        }
        assert checkpoints.latest(folder) == folder / "ckpt-20"
        changes += 1
    assert changes > 10


def test_a_folder_that_cannot_be_written_is_one_message_and_the_old_best_stays(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE)
    (folder / "ckpt-10.index").mkdir(parents=True)
    with pytest.raises(RunnerError, match=r"best/ckpt-10 could not .*; there is none before it"):
        keeper.update([row(10, 0.5)], ten)
    (folder / "ckpt-10.index").rmdir()
    keeper.update([row(10, 0.5)], ten)
    (folder / "ckpt-20.index").mkdir()
    with pytest.raises(RunnerError, match=r"best/ckpt-20 could not be written: .* is kept"):
        keeper.update([row(10, 0.5), row(20, 0.9)], twenty)
    assert info(folder)["checkpoint"] == "ckpt-10"
    assert weights(folder / "ckpt-10") == [10.0] * 3
