"""What a run has written is on the disk at the end of each synchronization point."""

import os

import toy

import runner


def test_events_and_rows_are_flushed_to_the_disk_with_each_checkpoint(tmp_path, monkeypatch):
    flushed = {}
    original = os.fsync

    def fsync(descriptor):
        seen = os.fstat(descriptor)
        flushed[seen.st_ino] = seen.st_size
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    unflushed = []

    def look(_):
        for pattern in ("*/events.*", "events.*", "*.jsonl", "*.json", "*.yaml", "ckpt-*"):
            for path in tmp_path.glob(pattern):
                seen = path.stat()
                if flushed.get(seen.st_ino) != seen.st_size:
                    unflushed.append(path.relative_to(tmp_path))

    overrides = {"run": {"async_checkpoints": False}}
    runner.run(toy.experiment(overrides), tmp_path, "train_and_eval", eval_actions=[look])
    assert not unflushed
    look(None)
    assert not unflushed
    events = list(tmp_path.rglob("events.*"))
    assert {path.parent.name for path in events} >= {"train", "validation"}
    for folder in {tmp_path, *(path.parent for path in events)}:
        assert folder.stat().st_ino in flushed  # the names of the files, too
