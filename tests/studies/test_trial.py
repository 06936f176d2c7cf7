import json

import pytest
from wording import saying

from runner.core import layout
from runner.errors import RunnerError
from runner.studies import trial


def made(study, number=0, status=None, evaluations=(), attempts=()):
    folder = study / layout.TRIALS / f"{number:04}-rate=0.1"
    facts = {"number": number, "parameters": {"A.rate": 0.1}, "seed": 3, "fold": None}
    trial.write(folder, {**facts, "objective": ["accuracy", True]})
    if status:
        facts = {"step": 8, "reason": "", "heartbeat": 0.0, "host": "h", "pid": 1, **status}
        (folder / layout.STATUS).write_text(json.dumps(facts))
    for step, accuracy in evaluations:
        metrics = {"accuracy": accuracy}
        row = {"kind": "evaluation", "step": step, "metrics": metrics, "seconds": 1.0, "time": 0.0}
        with (folder / layout.HISTORY).open("a") as file:
            file.write(json.dumps({**row, "checkpoint": f"ckpt-{step}"}) + "\n")
    for code, reason in attempts:
        trial.note(folder, code, reason, "h")
    return folder


def test_a_trial_is_what_its_folder_says(tmp_path):
    made(tmp_path, status={"state": "done"}, evaluations=[(4, 0.9), (8, 0.8)])
    record = {"starts": [{"data": {"photos": {"files": 3, "bytes": 9, "digest": "1a2b"}}}]}
    (tmp_path / layout.TRIALS / "0000-rate=0.1" / layout.RUN).write_text(json.dumps(record))
    (one,) = trial.all_of(tmp_path)
    assert one.data == {"photos": "1a2b"}
    assert (one.number, one.parameters, one.seed, one.fold) == (0, {"A.rate": 0.1}, 3, None)
    assert (one.state, one.step) == ("done", 8)
    assert (one.best, one.last) == ({"accuracy": 0.9}, {"accuracy": 0.8})
    assert [step for step, _ in one.evaluations] == [4, 8]


@pytest.mark.parametrize(
    ("status", "attempts", "state"),
    [
        (None, [], "waiting"),
        (None, [(2, "no such field")], "refused"),
        (None, [(1, "disk full")], "failed"),
        ({"state": "running"}, [], "preempted"),
        ({"state": "preempted"}, [(1, "before")], "preempted"),
        ({"state": "stopped", "reason": "stopped by SIGINT"}, [], "preempted"),
        ({"state": "stopped", "reason": "no gain"}, [], "stopped"),
        ({"state": "stopped", "reason": "paused at step 8"}, [], "paused"),
        ({"state": "diverged"}, [(3, "loss is NaN")], "diverged"),
    ],
)
def test_a_trial_has_a_state(tmp_path, status, attempts, state):
    made(tmp_path, status=status, attempts=attempts)
    (one,) = trial.all_of(tmp_path)
    assert one.state == state
    assert one.failures == sum(code == 1 for code, _ in attempts)


def test_trials_come_by_number_and_unfinished_folders_are_none(tmp_path):
    for number in (10000, 2):
        made(tmp_path, number)
    (tmp_path / layout.TRIALS / "0007-begun").mkdir()
    assert [one.number for one in trial.all_of(tmp_path)] == [2, 10000]


def test_a_damaged_trial_is_named(tmp_path):
    (made(tmp_path) / layout.TRIAL).write_text("{}")
    with pytest.raises(RunnerError, match=saying("trial.json describe")):
        trial.all_of(tmp_path)
