import os
import signal
import time

import pytest
import tensorflow as tf
import toy

import runner
from runner import run_config
from runner.checkpoints import (
    checkpoint_files,
    checkpoint_manager,
    integrity,
    restore,
    retention,
)
from runner.core import signals
from runner.evaluation import checkpoint_queue, handover
from runner.history import history

DATA = "data-00000-of-00001"


def live(folder):
    """Who lives, as a trainer sees it that has just been started."""
    return handover.Handover(folder).live()


def trainer(folder, *, asynchronous=False, keep=1, notes=None, clock=time.monotonic):
    """Commits checkpoints whose weights are their step, and keeps one."""
    weights = tf.Variable([0.0, 0.0, 0.0])
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(weights=weights),
        folder,
        keep=retention.Keep(keep),
        asynchronous=asynchronous,
        before_removal=handover.Handover(folder, clock=clock).hand_over,
        note=[].append if notes is None else notes.append,
    )

    def commit(*steps):
        for step in steps:
            weights.assign(tf.fill([3], float(step)))
            made.commit(step)
        made.wait()

    return commit


def names(paths):
    return [path.name for path in paths]


def values(path):
    weights = tf.Variable([0.0, 0.0, 0.0])
    restore.restore(tf.train.Checkpoint(weights=weights), path, partly=True)
    return weights.numpy().tolist()


@pytest.fixture
def evaluator(tmp_path):
    """The folder of an evaluator that is to get every checkpoint, and lives."""
    folder = tmp_path / "eval-a"
    with handover.registered(folder, policy="every", metrics=["accuracy"]):
        yield folder


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_trainer_that_keeps_one_loses_none_for_an_evaluator_that_lives(
    tmp_path, evaluator, asynchronous
):
    trainer(tmp_path, asynchronous=asynchronous)(*range(100))
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-99"]
    queue = handover.queued(evaluator)
    assert names(queue) == [f"ckpt-{step}" for step in range(99)]
    assert [values(path) for path in queue[:3]] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


def test_a_run_hands_over_what_it_removes(tmp_path, evaluator):
    config = toy.experiment({"trainer": {"max_to_keep": 1, "checkpoint_interval": 10}})
    runner.run(config, tmp_path, "train")
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-40"]
    queue = handover.queued(evaluator)
    assert names(queue) == ["ckpt-10", "ckpt-20", "ckpt-30"]
    assert [integrity.damage(path) for path in queue] == [None] * 3


def test_each_evaluator_has_a_queue_of_its_own(tmp_path, evaluator):
    commit = trainer(tmp_path)
    with handover.registered(tmp_path / "eval-b", policy="every", metrics=[]):
        commit(10, 20)
    [first], [second] = handover.queued(evaluator), handover.queued(tmp_path / "eval-b")
    checkpoint_files.remove(first)
    assert values(second) == [10.0] * 3


def test_nothing_is_kept_for_an_evaluator_that_wants_the_newest_only(tmp_path):
    commit = trainer(tmp_path)
    with handover.registered(tmp_path / "eval-a", policy="latest", metrics=["accuracy"]):
        commit(10, 20)
    assert handover.queued(tmp_path / "eval-a") == []


@pytest.mark.parametrize("when", ["while written", "before removed"])
def test_what_is_there_when_an_evaluator_registers_is_in_its_place_or_in_the_queue(
    tmp_path, monkeypatch, when
):
    folder = tmp_path / "eval-a"
    registering = handover.registered(folder, policy="every", metrics=[])
    commit = trainer(tmp_path)
    commit(10)
    function = {"while written": "flush", "before removed": "list_committed"}[when]
    real, seen = getattr(checkpoint_files, function), []

    def register_first(*args):
        if not seen:
            registering.__enter__()
            seen.extend(names(checkpoint_files.there(tmp_path)))
        return real(*args)

    monkeypatch.setattr(checkpoint_files, function, register_first)
    commit(20)
    assert seen == ["ckpt-10", "ckpt-20"]
    assert names(handover.queued(folder)) == ["ckpt-10"]
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-20"]
    registering.__exit__(None, None, None)


def test_an_evaluator_that_registers_while_another_is_served_is_served_too(
    tmp_path, evaluator, monkeypatch
):
    commit = trainer(tmp_path)
    other = handover.registered(tmp_path / "eval-b", policy="every", metrics=[])
    link, linked = checkpoint_files.link, []

    def register_meanwhile(source, target):
        if not linked:
            other.__enter__()
        linked.append(target)
        link(source, target)

    commit(10)
    monkeypatch.setattr(checkpoint_files, "link", register_meanwhile)
    commit(20)
    assert linked == [tmp_path / name / "queue" / "ckpt-10" for name in ("eval-a", "eval-b")]
    other.__exit__(None, None, None)


def test_a_registration_goes_with_a_clean_end_and_stays_with_any_other(tmp_path):
    folder = tmp_path / "eval-a"
    ends = [signals.Interrupted(signal.SIGTERM), KeyboardInterrupt(), RuntimeError()]
    for end in ends:
        with (
            pytest.raises(type(end)),
            handover.registered(folder, policy="every", metrics=["accuracy"]),
        ):
            raise end
        assert live(tmp_path) == [folder]
    with handover.registered(folder, policy="every", metrics=["accuracy"]):
        assert live(tmp_path) == [folder]
    assert live(tmp_path) == []
    assert handover.metrics_of(tmp_path, "a") is None


def test_an_evaluator_that_gave_no_sign_for_longer_than_the_grace_gets_nothing(tmp_path):
    folder = tmp_path / "eval-a"
    with (
        pytest.raises(KeyboardInterrupt),
        handover.registered(folder, policy="every", metrics=[]),
    ):
        raise KeyboardInterrupt
    seconds = 0.0
    commit = trainer(tmp_path, clock=lambda: seconds)
    commit(10, 20)
    seconds = handover.GRACE_SECONDS - 1
    commit(30)
    seconds = handover.GRACE_SECONDS
    commit(40, 50)
    assert names(handover.queued(folder)) == ["ckpt-10", "ckpt-20"]


@pytest.mark.parametrize("behind", [-3600, 3600])
def test_an_evaluator_whose_clock_differs_by_an_hour_gets_everything(tmp_path, evaluator, behind):
    seconds = 0.0
    commit = trainer(tmp_path, clock=lambda: seconds)
    for step in range(10, 60, 10):
        seconds += handover.GRACE_SECONDS / 2
        sign = time.time() + seconds - behind  # of life, as the evaluator's machine sees the time
        os.utime(evaluator / "evaluator.json", (sign, sign))
        commit(step)
    assert names(handover.queued(evaluator)) == ["ckpt-10", "ckpt-20", "ckpt-30", "ckpt-40"]


def test_a_sign_of_life_is_given_again_and_again(tmp_path):
    folder = tmp_path / "eval-a"
    with handover.registered(folder, policy="every", metrics=[], seconds=0.01):
        os.utime(folder / "evaluator.json", (0, 0))
        while (folder / "evaluator.json").stat().st_mtime == 0:
            time.sleep(0.01)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"policy": 1, "metrics": 2}', None]
)
def test_a_damaged_registration_counts_as_none_and_training_goes_on(tmp_path, content):
    file = tmp_path / "eval-a" / "evaluator.json"
    file.parent.mkdir()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    trainer(tmp_path)(10, 20)
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-20"]
    assert live(tmp_path) == []
    assert handover.metrics_of(tmp_path, "a") is None


def test_a_checkpoint_without_its_index_is_not_handed_over(tmp_path, evaluator):
    trainer(tmp_path)(10)
    (tmp_path / "ckpt-10.index").unlink()
    handover.Handover(tmp_path).hand_over(tmp_path / "ckpt-10")
    assert not (evaluator / "queue").exists()


def test_what_a_killed_trainer_half_linked_is_cleared_and_never_waits(tmp_path, evaluator):
    queue = evaluator / "queue"
    queue.mkdir()
    (queue / f"ckpt-5.{DATA}").write_bytes(b"x")
    (queue / f".ckpt-10.{DATA}.1.tmp").write_bytes(b"x")
    assert handover.queued(evaluator) == []
    trainer(tmp_path)(10, 20)
    assert names(handover.queued(evaluator)) == ["ckpt-10"]
    assert sorted(names(queue.iterdir())) == [f"ckpt-10.{DATA}", "ckpt-10.index"]


def test_where_a_queue_cannot_be_written_the_checkpoint_stays_until_it_can(tmp_path, evaluator):
    notes = []
    commit = trainer(tmp_path, notes=notes)
    (evaluator / "queue").write_text("in the way")
    commit(10, 20, 30)
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-10", "ckpt-20", "ckpt-30"]
    [note] = notes
    assert "ckpt-10 cannot be removed" in note
    (evaluator / "queue").unlink()
    commit(40)
    assert names(checkpoint_files.there(tmp_path)) == ["ckpt-40"]
    assert names(handover.queued(evaluator)) == ["ckpt-10", "ckpt-20", "ckpt-30"]


def test_where_links_are_not_possible_it_is_a_copy(tmp_path, evaluator, monkeypatch):
    commit = trainer(tmp_path)
    commit(10)

    def refuse(*_):
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    commit(20)
    [waiting] = handover.queued(evaluator)
    assert integrity.damage(waiting) is None
    assert values(waiting) == [10.0] * 3


def test_a_killed_and_then_stopped_evaluator_keeps_the_checkpoint_that_training_removed(
    tmp_path, evaluator
):
    commit = trainer(tmp_path)
    commit(10)
    options = run_config.EvaluatorConfig(policy="every")

    def queue():
        rows = history.History(evaluator / "history.jsonl")
        return checkpoint_queue.CheckpointQueue(tmp_path, evaluator, rows, options)

    assert queue().next() == evaluator / "ckpt-10"  # and is killed
    commit(20)
    restarted = queue()
    assert values(restarted.next()) == [10.0] * 3
    restarted.close()
    assert values(queue().next()) == [10.0] * 3
