import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf
from wording import saying

from runner.checkpoints import (
    best,
    checkpoint_files,
    checkpoint_manager,
    integrity,
    recovery,
    restore,
    retention,
)
from runner.core import files
from runner.errors import RunnerError
from runner.history import best_evaluation, records

DATA = "data-00000-of-00001"


def store(folder, *, keep=5):
    weights = tf.Variable([0.0, 0.0, 0.0])
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(weights=weights), folder, keep=retention.Keep(keep), asynchronous=False
    )
    return weights, made


def commit(folder, *steps, keep=5):
    """Checkpoints whose weights are their step."""
    weights, made = store(folder, keep=keep)
    for step in steps:
        weights.assign(tf.fill([3], float(step)))
        made.commit(step)


def restored(path):
    weights = tf.Variable(tf.fill([3], -1.0))
    restore.restore(tf.train.Checkpoint(weights=weights), path, partly=True)
    return weights.numpy()[0]


def newest(folder, notes=None):
    return recovery.newest_good(
        folder,
        best_folders=["best", "best-loss"],
        note=[].append if notes is None else notes.append,
    )


def change(file, how):
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "cut short":
        file.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "flipped":
        content[20] ^= 4
        file.write_bytes(content)


CHANGES = [(part, how) for part in ("index", DATA) for how in ("missing", "cut short", "flipped")]
CHANGES.append(("index", "empty"))


@pytest.mark.parametrize(("part", "how"), CHANGES)
def test_a_damaged_checkpoint_is_put_aside_loudly_and_the_one_before_is_used(tmp_path, part, how):
    commit(tmp_path, 10, 20)
    change(tmp_path / f"ckpt-20.{part}", how)
    notes = []
    assert newest(tmp_path, notes) == tmp_path / "ckpt-10"
    [note] = notes
    assert "ckpt-20 is damaged" in note
    assert "continuing from" in note
    assert restored(tmp_path / "ckpt-10") == 10
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-10")
    assert not list(tmp_path.glob("ckpt-20*"))
    assert list((tmp_path / "damaged").glob("ckpt-20.*"))

    assert newest(tmp_path, notes) == tmp_path / "ckpt-10"
    assert len(notes) == 1  # said once


def test_a_run_that_fell_back_commits_and_prunes_as_before(tmp_path):
    commit(tmp_path, 10, 20, 30)
    change(tmp_path / f"ckpt-30.{DATA}", "flipped")
    newest(tmp_path)
    commit(tmp_path, 30, 40, keep=2)
    assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["ckpt-30", "ckpt-40"]
    assert restored(newest(tmp_path)) == 40


def test_where_only_the_best_folder_has_a_whole_one_it_is_linked_back(tmp_path):
    commit(tmp_path, 10, 20)
    keep_best(tmp_path, 20)
    (tmp_path / f"ckpt-20.{DATA}").unlink()  # the other link is still there
    notes = []
    assert newest(tmp_path, notes) == tmp_path / "ckpt-20"
    assert restored(tmp_path / "ckpt-20") == 20
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-20")
    assert len(notes) == 1


def test_every_folder_of_best_ones_is_looked_into(tmp_path):
    commit(tmp_path, 10, 20, 30)
    for folder, step in (("best", 10), ("best-loss", 20)):
        name = f"ckpt-{step}"
        checkpoint_files.link(tmp_path / name, tmp_path / folder / name)
    for step in (10, 20, 30):
        (tmp_path / f"ckpt-{step}.{DATA}").unlink()
    assert newest(tmp_path) == tmp_path / "ckpt-20"
    assert restored(tmp_path / "ckpt-20") == 20


def test_a_best_checkpoint_that_is_damaged_too_makes_room_for_another(tmp_path):
    commit(tmp_path, 10, 20)
    keep_best(tmp_path, 20)
    change(tmp_path / f"ckpt-20.{DATA}", "flipped")  # the same file in both folders
    assert newest(tmp_path) == tmp_path / "ckpt-10"
    assert files.read_json(tmp_path / "best" / "info.json") is None
    keep_best(tmp_path, 10)
    assert files.read_json(tmp_path / "best" / "info.json")["checkpoint"] == "ckpt-10"


def test_where_all_are_damaged_the_run_does_not_start_anew(tmp_path):
    commit(tmp_path, 10, 20)
    change(tmp_path / "ckpt-10.index", "cut short")
    change(tmp_path / f"ckpt-20.{DATA}", "cut short")
    for _ in range(2):  # nor at the second try
        with pytest.raises(RunnerError, match=r"every checkpoint .*\(ckpt-20: .*; ckpt-10: "):
            newest(tmp_path)


def test_the_remains_of_a_first_save_that_a_power_cut_ended_are_put_aside(tmp_path):
    commit(tmp_path, 10)
    (tmp_path / "checkpoint").unlink()  # it is written when a checkpoint is on disk
    change(tmp_path / "ckpt-10.index", "cut short")
    notes = []
    assert newest(tmp_path, notes) is None
    assert "ckpt-10" in notes[0]
    assert list((tmp_path / "damaged").glob("ckpt-10.*"))
    commit(tmp_path, 10)
    assert newest(tmp_path) == tmp_path / "ckpt-10"


def test_where_the_only_one_lost_its_index_its_data_are_left(tmp_path):
    commit(tmp_path, 10)
    change(tmp_path / "ckpt-10.index", "missing")
    for _ in range(2):
        with pytest.raises(RunnerError, match=saying("ckpt-10 index missing")):
            newest(tmp_path)
    assert (tmp_path / f"ckpt-10.{DATA}").exists()


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert newest(tmp_path) is None
    assert newest(tmp_path / "not" / "there") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"nonsense", b"model_ch"])
def test_the_file_that_lists_them_is_restored_from_what_is_there(tmp_path, content):
    commit(tmp_path, 10, 20)
    if content is None:
        (tmp_path / "checkpoint").unlink()
    else:
        (tmp_path / "checkpoint").write_bytes(content)
    assert newest(tmp_path) == tmp_path / "ckpt-20"
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-20"
    commit(tmp_path, 30, keep=2)
    assert not (tmp_path / "ckpt-10.index").exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00"])
def test_a_damaged_list_of_nothing_does_not_stop_a_new_run(tmp_path, content):
    (tmp_path / "checkpoint").write_bytes(content)
    assert newest(tmp_path) is None
    commit(tmp_path, 10)


def test_one_that_was_whole_before_it_could_be_listed_is_used_and_pruned_in_its_turn(tmp_path):
    commit(tmp_path, 10)
    listed = (tmp_path / "checkpoint").read_text()
    commit(tmp_path, 20)
    (tmp_path / "checkpoint").write_text(listed)
    assert newest(tmp_path) == tmp_path / "ckpt-20"
    commit(tmp_path, 30, 40, keep=2)
    assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["ckpt-30", "ckpt-40"]


@pytest.mark.parametrize("steps", [(), (10,)])
@pytest.mark.parametrize("length", [None, 0, 100])
def test_a_save_that_was_killed_is_cleared_without_a_word(tmp_path, steps, length):
    commit(tmp_path, *steps)
    (tmp_path / "ckpt-20_temp").mkdir()
    (tmp_path / "ckpt-20_temp" / f"part-00000-of-00001.{DATA}.tempstate1").write_bytes(b"half")
    if length is not None:  # the data are in their place, the index is being written
        shutil.copytree(tmp_path, tmp_path / "other")
        commit(tmp_path / "other", 20)
        shutil.copy(tmp_path / "other" / f"ckpt-20.{DATA}", tmp_path)
        index = (tmp_path / "other" / "ckpt-20.index").read_bytes()
        (tmp_path / "ckpt-20.index").write_bytes(index[:length])
    notes = []
    assert newest(tmp_path, notes) == (tmp_path / "ckpt-10" if steps else None)
    assert notes == []
    assert not list(tmp_path.glob("ckpt-20*"))
    assert not (tmp_path / "damaged").exists()


def test_what_a_kill_left_is_cleared_and_nothing_else(tmp_path):
    commit(tmp_path, 10, 20)
    leftovers = [
        ".status.json.1.tmp",
        f"ckpt-5.{DATA}",
        f".ckpt-20.{DATA}.1.tmp",
    ]
    others = ["notes.tmp", "my_temp", ".hidden", f".status.json.{os.getpid()}.tmp", "ckpt-20.txt"]
    for name in leftovers + others:
        (tmp_path / name).write_text("x")
    before = {path.name for path in tmp_path.iterdir()}
    newest(tmp_path)
    assert before - {path.name for path in tmp_path.iterdir()} == set(leftovers)


def test_a_process_killed_while_it_saves_leaves_the_checkpoint_before(tmp_path):
    code = """
        import sys, tensorflow as tf
        from pathlib import Path
        from runner.checkpoints import checkpoint_manager, retention
        weights = tf.Variable(tf.ones([8_000_000]))
        saved, folder = tf.train.Checkpoint(weights=weights), Path(sys.argv[1])
        keep = retention.Keep(1)
        store = checkpoint_manager.Checkpoints(saved, folder, keep=keep, asynchronous=True)
        for step in range(1, 1000):
            store.commit(step)
            print(step, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for _ in range(3):
            process.stdout.readline()
        while not list(tmp_path.glob("*_temp")):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    notes = []
    found = newest(tmp_path, notes)
    assert integrity.damage(found) is None
    assert notes == []
    whole = checkpoint_files.there(tmp_path)
    assert found == whole[-1]
    assert checkpoint_files.committed(tmp_path) == whole
    left = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert left == {"checkpoint", *(path.name for path in whole)}


def keep_best(folder, step):
    row = records.Evaluation(step, {"accuracy": 1.0}, 0.0, 0.0, f"ckpt-{step}")
    rule = best_evaluation.BestRule("accuracy")
    best.BestCheckpoint(folder / "best", rule).update([row], folder / f"ckpt-{step}")
