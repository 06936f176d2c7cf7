"""Evaluations that commit nothing: the same rows and weights, wherever the run is killed."""

import json

import finished
import pytest
from poisoned_runs import experiment, logs, weights

import runner
from runner.checkpoints import best, checkpoint_manager
from runner.history import history, records


class Killed(BaseException):
    """Stands for a SIGKILL."""


AVERAGED = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}


def made(commits=False, more=None):
    sparse = experiment(5, rate=0.5)
    intervals = {"checkpoint_interval": 20, "validation_interval": 5, "steps_per_loop": 5}
    sparse.override({"trainer": intervals, "run": {"evaluations_commit": commits}})
    sparse.override(more or {})
    return sparse


def best_of(folder):
    """What info.json says, but for when; the checkpoint that it names is there."""
    info = json.loads((folder / "best" / "info.json").read_text())
    assert (folder / "best" / f"{info['checkpoint']}.index").exists()
    return info


def same(one, other):
    assert logs(one) == logs(other)
    assert weights(one, 60) == weights(other, 60)
    assert best_of(one) == best_of(other)


def gains(folder):
    """The steps whose accuracy was better than all before."""
    rows = history.History(folder / "history.jsonl").evaluations
    found, most = [], -1.0
    for row in rows:
        if row.metrics["accuracy"] > most:
            found, most = [*found, row.step], row.metrics["accuracy"]
    return found


@pytest.fixture
def committed(monkeypatch):
    """The steps that are committed."""
    steps, commit = [], checkpoint_manager.Checkpoints.commit

    def noting(self, step):
        if self.committed != step:
            steps.append(step)
        commit(self, step)

    monkeypatch.setattr(checkpoint_manager.Checkpoints, "commit", noting)
    return steps


def test_only_the_grid_and_the_best_are_committed_and_nothing_else_differs(tmp_path, committed):
    runner.run(made(commits=True), tmp_path / "all", "train_and_eval")
    assert committed == [0, *range(5, 61, 5)]
    committed.clear()
    runner.run(made(), tmp_path / "few", "train_and_eval")
    assert committed == sorted({0, 20, 40, 60, *gains(tmp_path / "few")})
    assert len(committed) < 10
    same(tmp_path / "all", tmp_path / "few")


def dies(patch, kind, name, *, call, after):
    """Has the process killed in a call of a method, before or after what that does."""
    method, commit = getattr(kind, name), checkpoint_manager.Checkpoints.commit
    calls = []

    def dying(self, *arguments, **named):
        calls.append(arguments)
        if len(calls) < call:
            return method(self, *arguments, **named)
        if after and len(calls) == call:
            method(self, *arguments, **named)
        raise Killed

    def dead(self, step):  # nothing is saved on the way out
        if len(calls) >= call:
            raise Killed
        commit(self, step)

    patch.setattr(checkpoint_manager.Checkpoints, "commit", dead)
    patch.setattr(kind, name, dying)


def test_a_run_that_is_killed_again_and_again_around_evaluations_ends_as_one_that_was_not(
    tmp_path, monkeypatch
):
    once, often = tmp_path / "once", tmp_path / "often"
    finished.run(made(), once)
    for kind, name, call, after in (
        (history.History, "append", 1, True),
        (best.BestCheckpoint, "update", 1, False),
        (checkpoint_manager.Checkpoints, "commit", 1, False),
        (checkpoint_manager.Checkpoints, "commit", 1, True),
        (history.History, "append", 3, True),
    ):
        with monkeypatch.context() as patch:
            dies(patch, kind, name, call=call, after=after)
            with pytest.raises(Killed):
                runner.run(made(), often, "train_and_eval")
    runner.run(made(), often, "train_and_eval")
    same(once, often)


def test_a_rollback_leaves_no_evaluation_and_no_best_of_the_way_that_it_left(
    tmp_path,
    monkeypatch,
    committed,
    poisoned,
):
    poisoned(bad_loss=(38,))
    once, often = tmp_path / "once", tmp_path / "often"
    runner.run(made(more=AVERAGED), once, "train_and_eval")
    assert [row.step for row in history.History(once / "history.jsonl").rollbacks] == [20]
    assert committed[committed.index(20) + 1] in (25, 30, 35)  # one of the best

    append = history.History.append

    def dying(self, row):
        append(self, row)
        if isinstance(row, records.Rollback):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(history.History, "append", dying)
        with pytest.raises(Killed):
            runner.run(made(more=AVERAGED), often, "train_and_eval")
    runner.run(made(more=AVERAGED), often, "train_and_eval")
    same(once, often)
