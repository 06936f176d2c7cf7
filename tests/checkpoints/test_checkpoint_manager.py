import contextlib
import errno
import gc
import os
import pathlib
import resource
import subprocess
import weakref

import pytest
import tensorflow as tf
from wording import saying

from runner.checkpoints import (
    checkpoint_files,
    checkpoint_manager,
    integrity,
    recovery,
    retention,
)
from runner.errors import RunnerError


class Model(tf.Module):
    def __init__(self, value=0.0, size=3):
        self.weights = tf.Variable(tf.fill([size], value))


def store(tmp_path, value=0.0, *, keep=5, asynchronous=False):
    model = Model(value)
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=model),
        tmp_path,
        keep=retention.Keep(keep),
        asynchronous=asynchronous,
    )
    return model, made


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_commit_is_found_by_tensorflow_and_holds_the_state_of_its_step(tmp_path, asynchronous):
    model, made = store(tmp_path, asynchronous=asynchronous)
    for step in (10, 20):
        model.weights.assign(tf.fill([3], float(step)))
        made.commit(step)
        model.weights.assign(tf.fill([3], -1.0))  # training goes on while it is written
    made.wait()

    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-20")
    again, other = store(tmp_path)
    other.restore(tmp_path / "ckpt-10")
    assert again.weights.numpy().tolist() == [10.0] * 3


def test_once_closed_nothing_holds_the_model(tmp_path):
    model, made = store(tmp_path, asynchronous=True)
    for step in (10, 20):
        made.commit(step)
    made.close()
    assert (tmp_path / "ckpt-20.index").exists()
    model = weakref.ref(model)
    del made
    gc.collect()
    assert model() is None


def test_a_step_is_committed_once(tmp_path):
    model, made = store(tmp_path)
    made.commit(10)
    model.weights.assign([9.0, 9.0, 9.0])
    made.commit(10)
    again, other = store(tmp_path)
    other.restore(tmp_path / "ckpt-10")
    assert again.weights.numpy().tolist() == [0.0] * 3


def test_only_the_newest_are_kept(tmp_path):
    _, made = store(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        made.commit(step)
    made.wait()
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "ckpt-3.index",
        "ckpt-4.index",
    ]


def there(folder):
    return [path.name for path in checkpoint_files.there(folder)]


def test_those_of_every_so_many_steps_are_kept_for_ever_and_listed(tmp_path):
    model = tf.train.Checkpoint(model=Model())
    made = checkpoint_manager.Checkpoints(
        model, tmp_path, keep=retention.Keep(2, every=30), asynchronous=True
    )
    for step in range(0, 110, 10):
        made.commit(step)
    made.wait()
    kept = ["ckpt-0", "ckpt-30", "ckpt-60", "ckpt-90", "ckpt-100"]
    assert there(tmp_path) == kept
    assert [path.name for path in checkpoint_files.committed(tmp_path)] == kept


def test_what_an_earlier_start_kept_is_pruned_at_the_next_commit(tmp_path):
    _, made = store(tmp_path)
    for step in (10, 20, 30):
        made.commit(step)
    _, again = store(tmp_path, keep=2)
    assert there(tmp_path) == ["ckpt-10", "ckpt-20", "ckpt-30"]
    again.commit(40)
    assert there(tmp_path) == ["ckpt-30", "ckpt-40"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_where_the_newest_cannot_be_read_nothing_is_removed_and_that_is_said(
    tmp_path, monkeypatch, asynchronous
):
    notes = []
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=Model()),
        tmp_path,
        keep=retention.Keep(1),
        asynchronous=asynchronous,
        note=notes.append,
    )
    written(made, 10)
    flush = checkpoint_files.flush

    def spoil(path):
        flush(path)
        data = checkpoint_files.data(tmp_path / path)[0]
        data.write_bytes(b"\0" * data.stat().st_size)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_files, "flush", spoil)
        written(made, 20)
    [note] = notes
    assert "ckpt-20 is damaged (" in note
    assert there(tmp_path) == ["ckpt-10", "ckpt-20"]
    assert integrity.damage(tmp_path / "ckpt-10") is None
    written(made, 30)
    assert there(tmp_path) == ["ckpt-30"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_one_that_is_about_to_be_removed_is_still_whole_and_the_new_one_listed(
    tmp_path, asynchronous
):
    seen = []

    def look(path):
        newest = checkpoint_files.latest(tmp_path)
        seen.append((path.name, integrity.damage(path), newest.name, integrity.damage(newest)))

    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=Model()),
        tmp_path,
        keep=retention.Keep(1),
        asynchronous=asynchronous,
        before_removal=look,
    )
    written(made, 10, 20, 30)
    assert seen == [("ckpt-10", None, "ckpt-20", None), ("ckpt-20", None, "ckpt-30", None)]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_mistake_in_what_is_called_before_a_removal_does_not_vanish(tmp_path, asynchronous):
    def wrong(_):
        raise ZeroDivisionError

    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=Model()),
        tmp_path,
        keep=retention.Keep(1),
        asynchronous=asynchronous,
        before_removal=wrong,
    )
    written(made, 10)
    with pytest.raises(ZeroDivisionError):
        written(made, 20)
    assert there(tmp_path) == ["ckpt-10", "ckpt-20"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_step_that_is_committed_again_leaves_links_to_the_one_before_whole(
    tmp_path, asynchronous
):
    model, made = store(tmp_path, asynchronous=asynchronous)
    written(made, 10, 20)
    checkpoint_files.link(tmp_path / "ckpt-20", tmp_path / "best" / "ckpt-20")
    made.restore(tmp_path / "ckpt-10")
    model.weights.assign([5.0, 5.0, 5.0])
    written(made, 20)
    for folder, value in ((tmp_path, 5.0), (tmp_path / "best", 0.0)):
        again, other = store(tmp_path)
        other.restore(folder / "ckpt-20")
        assert again.weights.numpy().tolist() == [value] * 3


def test_after_going_back_the_newest_is_the_one_committed_last(tmp_path):
    _, made = store(tmp_path, keep=3)
    written(made, 10, 20, 30)
    made.restore(tmp_path / "ckpt-10")
    written(made, 15)
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-15"


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_checkpoint_that_differs_when_it_is_read_back_does_not_count(
    tmp_path, monkeypatch, asynchronous
):
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=Model(1.0)),
        tmp_path,
        keep=retention.Keep(5),
        asynchronous=asynchronous,
        verifies=True,
    )
    written(made, 10)
    flush = checkpoint_files.flush

    def flush_and_flip_a_bit(path):
        flush(path)
        part = checkpoint_files.data(pathlib.Path(path))[0]
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)

    monkeypatch.setattr(checkpoint_files, "flush", flush_and_flip_a_bit)
    with pytest.raises(RunnerError, match=saying("ckpt-20 read back ckpt-10")):
        written(made, 20)
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-10"
    assert checkpoint_files.names(tmp_path) == ["ckpt-10"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_tensorflows_manager_and_this_one_read_what_the_other_wrote(tmp_path, asynchronous):
    saved = tf.train.Checkpoint(model=Model(7.0))
    options = tf.train.CheckpointOptions(enable_async=asynchronous)
    manager = tf.train.CheckpointManager(saved, str(tmp_path), 5, checkpoint_name="ckpt")
    manager.save(checkpoint_number=10, options=options)
    manager.sync()
    model, made = store(tmp_path, asynchronous=asynchronous)
    made.restore(tmp_path / "ckpt-10")
    assert model.weights.numpy().tolist() == [7.0] * 3
    model.weights.assign([8.0, 8.0, 8.0])
    written(made, 20)

    again = tf.train.CheckpointManager(saved, str(tmp_path), 5, checkpoint_name="ckpt")
    assert again.checkpoints == [str(tmp_path / "ckpt-10"), str(tmp_path / "ckpt-20")]
    saved.restore(again.latest_checkpoint).assert_consumed()
    assert saved.model.weights.numpy().tolist() == [8.0] * 3


def test_a_run_can_go_back_and_on_in_one_process(tmp_path):
    model, made = store(tmp_path, asynchronous=True)
    for step in (10, 20):
        model.weights.assign(tf.fill([3], float(step)))
        made.commit(step)
    made.restore(tmp_path / "ckpt-10")
    assert made.committed == 10
    assert model.weights.numpy().tolist() == [10.0] * 3
    model.weights.assign(tf.fill([3], 21.0))
    made.commit(20)
    made.wait()
    again, other = store(tmp_path)
    other.restore(tmp_path / "ckpt-20")
    assert again.weights.numpy().tolist() == [21.0] * 3


def written(made, *steps):
    for step in steps:
        made.commit(step)
        made.wait()


@contextlib.contextmanager
def largest_file(size):
    """No process of this one may write a file larger than `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("size", [0, 100, 1000, 5000])
def test_what_cannot_be_written_is_one_message_and_nothing_is_lost(tmp_path, asynchronous, size):
    model = Model(size=1000)
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=model, more=[tf.Variable(0.0) for _ in range(40)]),
        tmp_path,
        keep=retention.Keep(1),
        asynchronous=asynchronous,
    )
    made.commit(10)
    made.wait()
    before = sorted(tmp_path.iterdir())
    with (
        largest_file(size),
        pytest.raises(RunnerError, match=saying("ckpt-20 written ckpt-10")) as error,
    ):
        written(made, 20)
    assert "File too large" in str(error.value)
    assert "\n" not in str(error.value)
    assert made.committed == 10
    assert sorted(tmp_path.iterdir()) == before
    assert integrity.damage(tmp_path / "ckpt-10") is None
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-10"

    written(made, 20)  # there is room again
    assert integrity.damage(checkpoint_files.latest(tmp_path)) is None
    assert [path.name for path in checkpoint_files.there(tmp_path)] == ["ckpt-20"]


def test_the_next_commit_tells_of_an_asynchronous_one_that_failed(tmp_path):
    _, made = store(tmp_path, asynchronous=True)
    (tmp_path / "ckpt-10_temp").write_text("in the way")
    made.commit(10)
    with pytest.raises(RunnerError, match=saying("ckpt-10 earlier")):
        made.commit(20)
    made.commit(20)
    made.wait()
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-20"


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_one_before_is_kept_until_the_new_one_is_on_the_disk(
    tmp_path, monkeypatch, asynchronous
):
    _, made = store(tmp_path, keep=1, asynchronous=asynchronous)
    written(made, 10)

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunnerError, match=saying("ckpt-20 written Input/output error")):
        written(made, 20)
    assert checkpoint_files.there(tmp_path) == [tmp_path / "ckpt-10"]
    assert integrity.damage(tmp_path / "ckpt-10") is None
    assert checkpoint_files.latest(tmp_path) == tmp_path / "ckpt-10"


def test_a_list_that_cannot_be_written_leaves_whole_checkpoints(tmp_path):
    _, made = store(tmp_path, keep=1)
    made.commit(10)
    listed = tmp_path / "checkpoint"
    listed.rename(tmp_path / "elsewhere")
    listed.mkdir()
    with pytest.raises(RunnerError, match=saying("/checkpoint written /ckpt-20")):
        made.commit(20)
    listed.rmdir()
    assert integrity.damage(tmp_path / "ckpt-10") is None  # not pruned
    assert recovery.newest_good(tmp_path, best_folders=["best"], note=print) == tmp_path / "ckpt-20"


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a small disk, with some options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True)
        except FileNotFoundError:
            pytest.skip("there is no mount")
        if done.returncode:
            pytest.skip("may not mount")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room(disk, asynchronous):
    folder = disk("size=120k")
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=Model(size=8000)),
        folder,
        keep=retention.Keep(5),
        asynchronous=asynchronous,
    )
    with pytest.raises(RunnerError, match=saying("space /ckpt-3")):
        written(made, *range(1, 9))
    assert [path.name for path in checkpoint_files.there(folder)] == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert not list(folder.glob("*_temp"))
    checkpoint_files.remove(folder / "ckpt-1")
    written(made, 4)
    assert integrity.damage(checkpoint_files.latest(folder)) is None
    assert checkpoint_files.latest(folder) == folder / "ckpt-4"


def test_a_disk_that_fills_up_at_any_point_of_a_save_never_holds_a_damaged_one(disk):
    variables = [tf.Variable(float(n)) for n in range(300)]  # a large index
    for pages in range(1, 30):
        folder = disk(f"size={4 * pages}k")
        made = checkpoint_manager.Checkpoints(
            tf.train.Checkpoint(variables=variables),
            folder,
            keep=retention.Keep(1),
            asynchronous=False,
        )
        with contextlib.suppress(RunnerError):
            written(made, 1, 2, 3)
        there = checkpoint_files.there(folder)
        assert not list(folder.glob("*_temp"))
        assert [integrity.damage(path) for path in there] == [None] * len(there)
        assert there == [] or checkpoint_files.latest(folder) in there
        subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_folder_is_one_message(disk):
    folder = disk("size=1m")
    _, made = store(folder)
    made.commit(10)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    with pytest.raises(RunnerError, match=saying("Read-only /ckpt-10")):
        made.commit(20)
    assert recovery.newest_good(folder, best_folders=["best"], note=print) == folder / "ckpt-10"
