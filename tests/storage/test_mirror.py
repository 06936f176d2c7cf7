"""A folder that changes like a run's, copied to a bucket: cut at each write, slow, emptied."""

import signal
import subprocess
import sys
import threading
import uuid

import buckets
import pytest
from wording import saying, says

from runner.core import signals
from runner.errors import ConfigError, LostError, RunnerError
from runner.storage import bucket, copying, fetching, lease, manifest, places, snapshot


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Goes to another machine, by its name."""

    def go(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    go("one")
    return go


@pytest.fixture
def url():
    return f"memory://{uuid.uuid4().hex}/run"


def written(url, timeout=300.0):
    return places.written(url, places.Ending(signals.Stop(), lambda _: timeout))


def held(url, folder):
    """What a reader finds in the bucket."""
    fetching.Replica(bucket.Bucket(url), folder).bring()
    return buckets.contents(folder)


class Writes:
    """Every write of an object is noted. From the n-th on they can fail; checkpoints can wait."""

    def __init__(self, monkeypatch):
        self.names, self.fails_from, self.waits = [], None, None
        self.has_waited = threading.Event()
        for kind in ("write", "upload", "remove"):
            monkeypatch.setattr(bucket.Bucket, kind, self._of(kind, getattr(bucket.Bucket, kind)))

    def _of(self, kind, do):
        def done(own, *given):
            name = list(given[0]) if kind == "remove" else given[-1 if kind == "upload" else 0]
            if name and "claims" not in str(name):
                if self.waits and "ckpt" in str(name):
                    self.has_waited.set()
                    if not self.waits.wait(300):
                        raise AssertionError
                if self.fails_from is not None and len(self.names) >= self.fails_from:
                    raise bucket.BucketError("the bucket is gone", is_final=False)
                self.names.append((kind, name[0] if kind == "remove" else name))
            return do(own, name) if kind == "remove" else do(own, *given)

        return done


@pytest.fixture
def writes(monkeypatch):
    return Writes(monkeypatch)


def test_the_last_state_is_there_when_the_block_ends(url, tmp_path):
    with written(url) as folder:
        for step in (10, 20, 30):
            buckets.commit(folder, step)
        (folder / "train").mkdir()
        (folder / "train" / "events.out.tfevents.1").write_bytes(b"e" * 1000)
        (folder / "params.yaml").write_text("a: 1\n")
        (folder / ".params.yaml.1.tmp").write_text("unfinished")
        (folder / "ckpt-40.data-00000-of-00001").write_text("unfinished")
        expected = buckets.contents(folder)
    del expected[".params.yaml.1.tmp"], expected["ckpt-40.data-00000-of-00001"]
    assert held(url, tmp_path / "read") == expected
    assert {"checkpoint", "ckpt-30.index", "history.jsonl"} <= expected.keys()


def copying_to(url, folder):
    """Copies a folder's state whenever it is called."""
    there = bucket.Bucket(url)
    claim = lease.take(there, lease.Asking())
    copier = copying.Copier(folder, there, claim.mark, manifest.Manifest({}), claim.check)
    return lambda: copier.copy(snapshot.take(folder, copier.known))


def test_what_points_is_written_after_what_it_points_to_and_removals_come_last(
    url, tmp_path, writes
):
    folder = tmp_path / "run"
    folder.mkdir()
    copy = copying_to(url, folder)
    buckets.commit(folder, 10, keep=1)
    copy()
    first = list(writes.names)
    buckets.commit(folder, 20, keep=1)
    copy()
    data, index = "ckpt-10.data-00000-of-00001", "ckpt-10.index"
    names = (data, index, "history.jsonl", "checkpoint", "mirror.json")
    assert first == [("write", name) for name in names]
    removed = [name for kind, name in writes.names if kind == "remove"]
    assert removed == [index, data]
    listed = max(i for i, each in enumerate(writes.names) if each == ("write", "checkpoint"))
    assert listed < writes.names.index(("remove", index))


def test_cut_at_any_write_the_bucket_holds_a_whole_state(tmp_path, writes):
    """Also when a checkpoint is written again, other than it was, as after a rollback."""
    cut, was_cut = 0, True
    while was_cut:
        folder, url = tmp_path / f"run-{cut}", f"memory://{uuid.uuid4().hex}/run"
        folder.mkdir()
        copy = copying_to(url, folder)
        writes.names.clear()
        writes.fails_from, was_cut = cut, False
        for step, word in ((10, "a"), (20, "b"), (20, "c"), (30, "d")):
            buckets.commit(folder, step, word=word)
            try:
                copy()
            except bucket.BucketError:
                was_cut = True
                break
        found = held(url, tmp_path / f"read-{cut}")
        listed = found.get("checkpoint", b"").decode()
        there_are = [step for step in (10, 20, 30) if f"ckpt-{step}.index" in found]
        assert there_are or not listed
        for step in there_are:
            word = found[f"ckpt-{step}.index"].decode().split()[-1]
            assert set(found[f"ckpt-{step}.data-00000-of-00001"].decode()) == {word}
            assert f'"step": {step}' in found["history.jsonl"].decode()
        cut += 1
    assert cut > 15
    assert found == buckets.contents(folder)


def test_a_slow_bucket_gets_the_newest_state_and_what_was_skipped_is_said(
    url, tmp_path, writes, capsys
):
    writes.waits = threading.Event()
    with written(url) as folder:
        buckets.commit(folder, 10, keep=1)
        assert writes.has_waited.wait(300)
        for step in (20, 30):
            buckets.commit(folder, step, keep=1)
        writes.waits.set()
        buckets.wait_for(lambda: ("write", "ckpt-30.index") in writes.names)
    assert ("write", "ckpt-10.index") in writes.names  # though it was removed before its turn
    assert ("write", "ckpt-20.index") not in writes.names
    assert held(url, tmp_path / "read") == buckets.contents(folder)


def test_what_is_missing_at_the_end_is_named_and_follows_at_the_next_start(
    url, tmp_path, writes, capsys
):
    with pytest.raises(RunnerError) as caught, written(url, timeout=0.2) as folder:
        writes.fails_from = 0
        buckets.commit(folder, 10)
        buckets.wait_for(lambda: "the bucket is gone; retrying" in capsys.readouterr().err)
    said = str(caught.value)
    says(said, f"{url} complete 0.2 RunConfig.mirror_timeout")
    assert "ckpt-10.data-00000-of-00001, ckpt-10.index, history.jsonl and 1 more" in said
    says(said, "bucket gone")
    writes.fails_from = None
    with written(url) as again:
        assert again == folder
        assert (folder / "ckpt-10.index").exists()
    assert held(url, tmp_path / "read") == buckets.contents(folder)


def test_an_error_of_the_run_is_not_hidden_by_that_of_the_bucket(url, writes):
    with (
        pytest.raises(RunnerError, match=r"diverged\n.* not complete"),
        written(url, timeout=0.2) as folder,
    ):
        writes.fails_from = 0
        buckets.commit(folder, 10)
        raise RunnerError("it diverged")


def test_another_machine_goes_on_and_the_first_one_finds_out_that_it_is_behind(
    url, machine, capsys
):
    with written(url) as one:
        buckets.commit(one, 10)
    machine("two")
    with written(url) as two:
        assert buckets.contents(two) == buckets.contents(one)
        buckets.commit(two, 20)
    machine("one")
    with written(url) as folder:
        assert folder == one
        assert buckets.contents(folder) == buckets.contents(two)
    says(capsys.readouterr().err, "machine older")


def test_a_file_that_is_the_same_there_is_not_sent_again(url, machine, writes):
    with written(url) as one:
        buckets.commit(one, 10)
    for name in ("two", "one", "one"):
        machine(name)
        writes.names.clear()
        with written(url):
            pass
        assert "ckpt-10.index" not in [name for _, name in writes.names]


def test_after_a_kill_the_same_machine_goes_on_from_its_own_folder(tmp_path):
    """Which is newer than the bucket; nobody waits for a heartbeat of the dead."""
    url = f"file://{tmp_path}/bucket/run"
    code = f"""
import os, signal, time
from pathlib import Path
from runner.core import signals
from runner.storage import places
with places.written({url!r}, places.Ending(signals.Stop())) as folder:
    (folder / "first.txt").write_text("1")
    (folder / "ckpt-1.index").write_text("1")  # a new checkpoint is copied at once
    (folder / "checkpoint").write_text('all_model_checkpoint_paths: "ckpt-1"')
    while not Path({str(tmp_path)!r}, "bucket", "run", "mirror.json").exists():
        time.sleep(0.01)
    (folder / "second.txt").write_text("2")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=600)
    assert done.returncode == -signal.SIGKILL
    with written(url) as folder:
        assert {"first.txt", "second.txt"} <= buckets.contents(folder).keys()
    assert "second.txt" in held(url, tmp_path / "read")


def test_two_runs_at_one_url_on_one_machine(url):
    with (
        written(url),
        pytest.raises(RunnerError, match=saying("process machine")),
        written(url),
    ):
        pass


def test_who_was_taken_over_writes_nothing_more(url, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_FRESH_SECONDS", 0)  # a takeover takes a minute
    with pytest.raises(LostError, match=saying("lost lock")), written(url) as folder:
        buckets.commit(folder, 10)
        other = bucket.Bucket(url)
        buckets.wait_for(lambda: other.read("mirror.json") is not None)
        other.create("claims/00000002.json", b'{"host": "other", "pid": 17}')
        before = held(url, tmp_path / "before")
        buckets.commit(folder, 20)
    assert held(url, tmp_path / "after") == before


def test_an_emptied_bucket_is_filled_again(url, tmp_path, capsys):
    with written(url) as folder:
        buckets.commit(folder, 10)
        there = bucket.Bucket(url)
        buckets.wait_for(lambda: there.read("mirror.json") is not None)
        there.remove(list(there.objects()))
    assert held(url, tmp_path / "read") == buckets.contents(folder)


def test_a_large_file_that_grows_is_sent_with_checkpoints_only(url, tmp_path, writes):
    rows = b"x" * 999 + b"\n"
    with written(url) as folder:
        (folder / "train.jsonl").write_bytes(rows * 2000)
        buckets.commit(folder, 10)
        buckets.wait_for(lambda: ("write", "mirror.json") in writes.names)
        with (folder / "train.jsonl").open("ab") as file:
            file.write(rows)
        buckets.commit(folder, 20)
    assert held(url, tmp_path / "read")["train.jsonl"] == rows * 2001


def test_a_part_of_a_checkpoint_that_is_gone_leaves_the_one_before(url, machine, capsys):
    with written(url) as one:
        for step in (10, 20):
            buckets.commit(one, step)
    bucket.Bucket(url).remove(["ckpt-20.data-00000-of-00001"])
    machine("two")
    with written(url) as two:
        found = buckets.contents(two)
    assert f"{url}/ckpt-20.data-00000-of-00001 is missing" in capsys.readouterr().err
    assert {"ckpt-10.data-00000-of-00001", "ckpt-20.index"} <= found.keys()


def test_a_start_that_failed_gives_its_claim_back(url, machine, monkeypatch):
    with written(url) as one:
        buckets.commit(one, 10)
    machine("two")
    there = bucket.Bucket(url)
    whole = there.read("mirror.json")
    there.write("mirror.json", b"{")
    refused = pytest.raises(RunnerError, match=saying("damaged remove claims/"))
    with refused, written(url):
        pass
    there.write("mirror.json", whole)
    monkeypatch.setattr(lease, "_ran_out", lambda *_: pytest.fail("it waits"))
    with written(url) as two:
        assert buckets.contents(two) == buckets.contents(one)


def test_a_cache_that_cannot_be_written(url, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for opened in (written(url), places.read(url)):
        with pytest.raises(RunnerError, match="XDG_CACHE_HOME sets where"), opened:
            pass


def test_a_plain_copy_of_a_run_can_be_gone_on_with(url, tmp_path):
    """As `aws s3 cp --recursive` makes it."""
    there = bucket.Bucket(url)
    plain = tmp_path / "plain"
    plain.mkdir()
    buckets.commit(plain, 10)
    for name, content in buckets.contents(plain).items():
        there.write(name, content)
    with written(url) as folder:
        assert buckets.contents(folder) == buckets.contents(plain)


class TestBeside:
    """`RunConfig.mirror`."""

    def test_a_local_run_is_copied_and_goes_on(self, url, tmp_path):
        folder = tmp_path / "run"
        for step in (10, 20):
            with places.beside(folder, url, places.Ending(signals.Stop())):
                buckets.commit(folder, step)
        assert held(url, tmp_path / "read") == buckets.contents(folder)

    def test_another_run_there_is_left_alone(self, url, tmp_path):
        with written(url) as folder:
            buckets.commit(folder, 10)
        ending = places.Ending(signals.Stop())
        refused = pytest.raises(ConfigError, match=saying("another run"))
        with refused, places.beside(tmp_path / "other", url, ending):
            pass
        assert not (tmp_path / "other").exists()

    def test_a_refused_start_leaves_no_folder(self, url, tmp_path):
        with (
            pytest.raises(ConfigError),
            places.beside(tmp_path / "run", url, places.Ending(signals.Stop())),
        ):
            raise ConfigError("a mistake")
        assert not (tmp_path / "run").exists()


def test_a_reader_follows_and_leaves_nothing(url, tmp_path):
    with written(url) as folder:
        buckets.commit(folder, 10)
    with places.read(url) as copy:
        assert buckets.contents(copy) == buckets.contents(folder)
        assert copy.name == "run"
    assert not copy.exists()
    assert not list(copy.parents[1].glob("read-*"))


def test_an_evaluator_elsewhere_writes_its_part_and_training_gets_its_rows(url, tmp_path):
    with written(url) as folder:
        buckets.commit(folder, 10)
        buckets.wait_for(lambda: bucket.Bucket(url).read("mirror.json") is not None)
        with places.read(url, part="eval-cpu") as copy:
            assert (copy / "ckpt-10.index").exists()
            (copy / "eval-cpu" / "history.jsonl").write_text('{"step": 10}\n')
            (copy / "eval-cpu" / "events.out.tfevents.1").write_text("e")
        buckets.commit(folder, 20)
        buckets.wait_for(lambda: (folder / "eval-cpu" / "history.jsonl").exists())
    assert not (folder / "eval-cpu" / "events.out.tfevents.1").exists()
    with places.read(url) as copy:
        assert (copy / "eval-cpu" / "events.out.tfevents.1").exists()
        assert (copy / "ckpt-20.index").exists()


def test_a_follower_sees_new_checkpoints_and_hands_over_those_that_go(url, monkeypatch, capsys):
    monkeypatch.setattr(places, "_FOLLOW_SECONDS", 0.02)
    handed = []

    def hand_over(folder, path):
        assert path.with_name(f"{path.name}.index").exists()
        handed.append(path.name)

    with (
        written(url) as folder,
        places.read(url, follows=True, may_be_new=True, before_removal=hand_over) as copy,
    ):
        for step in (10, 20, 30):
            buckets.commit(folder, step, keep=1)
            buckets.wait_for(lambda step=step: (copy / f"ckpt-{step}.index").exists())
        buckets.wait_for(lambda: len(handed) == 2)
    assert handed == ["ckpt-10", "ckpt-20"]
    assert "slower" not in capsys.readouterr().err


def test_reading_a_url_with_nothing_there(url):
    with pytest.raises(ConfigError, match="there is nothing"), places.read(url):
        pass
