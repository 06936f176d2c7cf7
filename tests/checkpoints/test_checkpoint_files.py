import os

import pytest
import tensorflow as tf
from wording import says

from runner.checkpoints import checkpoint_files


@pytest.fixture
def sharded(tmp_path):
    """A checkpoint of two data files; TensorFlow is not asked to read it."""
    for part in ("data-00000-of-00002", "data-00001-of-00002", "index"):
        (tmp_path / f"ckpt-10.{part}").write_text(part)
    (tmp_path / "ckpt-100.index").write_text("another")
    return tmp_path / "ckpt-10"


def parts(folder):
    return sorted(path.name.partition(".")[2] for path in folder.glob("*"))


def test_a_link_that_is_cut_off_has_no_index(sharded, tmp_path, monkeypatch):
    link, links = os.link, []

    def second_fails(source, target):
        if links:
            raise KeyboardInterrupt
        links.append(source)
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", second_fails)
        with pytest.raises(KeyboardInterrupt):
            checkpoint_files.link(sharded, tmp_path / "there" / "ckpt-10")
    assert not checkpoint_files.exists(tmp_path / "there" / "ckpt-10")
    checkpoint_files.link(sharded, tmp_path / "there" / "ckpt-10")
    assert parts(tmp_path / "there") == ["data-00000-of-00002", "data-00001-of-00002", "index"]


def test_a_different_one_in_the_way_is_never_seen_mixed_with_the_new(
    sharded, tmp_path, monkeypatch
):
    target = tmp_path / "there" / "ckpt-10"
    checkpoint_files.link(sharded, target)
    for part in (*checkpoint_files.data(sharded), checkpoint_files.index(sharded)):
        part.unlink()
        part.write_text("of another timeline")
    link, seen = os.link, []

    def look(source, beside):
        seen.append(checkpoint_files.exists(target))
        link(source, beside)

    monkeypatch.setattr(os, "link", look)
    checkpoint_files.link(sharded, target)
    assert seen == [False] * 3
    assert checkpoint_files.index(target).read_text() == "of another timeline"


def test_what_is_linked_or_copied_already_is_left(sharded, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        checkpoint_files.link(sharded, tmp_path / "there" / "ckpt-10")
    index = checkpoint_files.index(tmp_path / "there" / "ckpt-10")
    before = index.stat().st_ino
    checkpoint_files.link(sharded, tmp_path / "there" / "ckpt-10")
    assert index.stat().st_ino == before


def test_every_file_is_moved_under_the_new_name_and_no_other(sharded, tmp_path):
    checkpoint_files.move(sharded, tmp_path / "there" / "old")
    assert parts(tmp_path / "there") == ["data-00000-of-00002", "data-00001-of-00002", "index"]
    assert [path.name for path in tmp_path.glob("ckpt*")] == ["ckpt-100.index"]


def test_every_file_is_removed_and_no_other(sharded, tmp_path):
    checkpoint_files.remove(sharded)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-100.index"]


def test_the_checkpoints_there_are_in_the_order_of_their_steps(sharded, tmp_path):
    for name in ("ckpt-9.index", "ckpt-x.index", "averaged-1.index"):
        (tmp_path / name).touch()
    names = [path.name for path in checkpoint_files.there(tmp_path)]
    assert names == ["ckpt-9", "ckpt-10", "ckpt-100"]


def test_what_is_listed_is_what_tensorflow_finds(sharded, tmp_path):
    assert checkpoint_files.committed(tmp_path) == []
    assert checkpoint_files.latest(tmp_path) is None
    checkpoint_files.list_committed(tmp_path, ["ckpt-100", "ckpt-10"])
    assert checkpoint_files.committed(tmp_path) == [tmp_path / "ckpt-100", sharded]
    assert checkpoint_files.latest(tmp_path) == sharded
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(sharded)
    checkpoint_files.remove(sharded)
    assert checkpoint_files.latest(tmp_path) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "space device"),
        (IndexError("Read less bytes than requested"), "cut short"),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "{{function_node __wrapped__SaveV2}} a/b; No space left [Op:SaveV2]"
            ),
            "space left",
        ),
        (
            tf.errors.OpError(
                None, None, "TensorBundle at a/b shard 0 (4 bytes): Checksum does not match", 2
            ),
            "Checksum match",
        ),
    ],
)
def test_a_reason_is_what_happened_not_where_in_tensorflow(error, said):
    reason = checkpoint_files.reason(error)
    says(reason, said)
    assert not any(internal in reason for internal in ("Op:", "function_node", "TensorBundle"))


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path):
    for name in ("ckpt-100.index", "ckpt-20.index", "ckpt-3.index", "averaged-5.index", "ckpt-x"):
        (tmp_path / name).touch()
    names = [path.name for path in checkpoint_files.there(tmp_path)]
    assert names == ["ckpt-3", "ckpt-20", "ckpt-100"]
    assert checkpoint_files.there(tmp_path / "elsewhere") == []
