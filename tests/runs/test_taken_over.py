"""A process that was suspended and taken over wakes up, and writes nothing more."""

import itertools
import json
import shutil
import subprocess
import sys

import pytest
import resumed
import toy
from wording import saying

import runner
from runner.checkpoints import checkpoint_files
from runner.errors import LostError
from runner.run_directory import claim_file, status

OTHER = {"host": "other", "pid": 17, "boot": "b", "token": "t"}


def contents(folder):
    """Every file but TensorBoard's, which are a start's own."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "tfevents" not in path.name
    }


class Takeover:
    """Another host's process takes a folder over and does something there; gone, it is again."""

    def __init__(self, folder, does, *, at=1, gone=False):
        self.folder, self.does, self.left, self.gone = folder, does, at, gone
        self.after = None

    def __call__(self, logs):
        self.left -= 1
        if self.left == 0:
            claim = self.folder / "claim.json"
            own = self.folder / "claim.other"
            own.write_text(json.dumps(OTHER))
            own.replace(claim)  # first, or the trainer's heartbeat may come in between
            self.does()
            if self.gone:
                claim.unlink()
            self.after = contents(self.folder)


def finish(folder):
    """Ends the run from another process."""
    code = (
        "import pathlib\n"
        "from runner.run_directory import provenance, status\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "status.StatusFile(folder).write('done', 40)\n"
        "command = provenance.Command('train', [], {})\n"
        "provenance.RunRecord(folder, command).end('done', 40)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("at", [1, 2, 3])  # before a row, a commit, and an evaluation's commit
def test_a_trainer_that_was_taken_over_writes_nothing_more(tmp_path, at):
    taken = Takeover(tmp_path, lambda: finish(tmp_path), at=at)
    overrides = {"trainer": {"checkpoint_interval": 10}, "run": {"async_checkpoints": False}}
    with pytest.raises(LostError, match=saying("lost process 17")):
        runner.run(toy.experiment(overrides), tmp_path, "train_and_eval", train_actions=[taken])
    assert contents(tmp_path) == taken.after
    assert status.read(tmp_path).state == "done"
    states = [start["state"] for start in json.loads((tmp_path / "run.json").read_text())["starts"]]
    assert states == ["lost", "done"]


def test_a_claim_that_was_given_back_by_its_new_holder_is_lost_all_the_same(tmp_path):
    taken = Takeover(tmp_path, lambda: finish(tmp_path), gone=True)
    with pytest.raises(LostError, match="lost its lock"):  # a heartbeat may see the other in it
        runner.run(toy.experiment(), tmp_path, "train", train_actions=[taken])
    assert contents(tmp_path) == taken.after


def test_an_evaluator_that_was_taken_over_writes_nothing_more(tmp_path):
    overrides = {"trainer": {"max_to_keep": 5}, "run": {"evaluator": {"policy": "every"}}}
    runner.run(toy.experiment(overrides), tmp_path, "train")
    own = tmp_path / "eval-continuous"

    def pin():  # the other one is about to read a checkpoint
        for part in tmp_path.glob("ckpt-40.*"):
            (own / part.name).write_bytes(part.read_bytes())

    taken = Takeover(own, pin)
    with pytest.raises(LostError):
        runner.run(toy.experiment(overrides), tmp_path, "continuous_eval", eval_actions=[taken])
    assert contents(own) == taken.after
    assert claim_file.look(own / "claim.json").holder.host == "other"


@pytest.mark.parametrize(
    ("mode", "listed"),
    [
        ("train", []),
        *itertools.product(
            ("train", "train_and_eval"), (["ckpt-40"], ["ckpt-20", "ckpt-60", "ckpt-40"])
        ),
    ],
)
def test_a_checkpoint_that_a_lost_process_completes_late_costs_no_rows(
    tmp_path, capsys, mode, listed
):
    def train(folder, steps):
        trainer = {"train_steps": steps, "checkpoint_interval": 20, "max_to_keep": 5}
        runner.run(toy.experiment({"trainer": trainer}), folder, mode)

    lost, other, once = (tmp_path / name for name in ("lost", "other", "once"))
    train(other, 40)
    shutil.copytree(other, lost)
    train(lost, 60)
    if not listed:  # the other process has not saved yet
        for step in (20, 40):
            checkpoint_files.remove(other / f"ckpt-{step}")
    for part in lost.glob("ckpt-60.*"):  # the other process is killed before it reaches the step
        shutil.copy(part, other)
    checkpoint_files.list_committed(other, listed)
    with (other / "train.jsonl").open("a") as file:
        file.write('{"st')  # the kill also interrupted the writing of a row
    train(other, 60)
    assert "ckpt-60 is damaged" in capsys.readouterr().err
    train(once, 60)
    assert resumed.state(other, 60) == resumed.state(once, 60)
    for name in ("train.jsonl", *(["history.jsonl"] if mode == "train_and_eval" else [])):
        assert resumed.rows(other / name) == resumed.rows(once / name)
