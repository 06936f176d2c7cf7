"""Epochs that are no whole number of steps, as a run meets them."""

import json

import pytest
import resumed
import toy

import runner

PER_EPOCH = {
    "train_steps": 0,
    "validation_interval": 0,
    "checkpoint_interval": 0,
    "summary_interval": 0,
    "steps_per_loop": 4,
}


def experiment(epochs):
    """Of 31 examples in batches of 3: ten steps and a third."""
    made = toy.experiment(
        {
            "trainer": PER_EPOCH,
            "task": {"train_data": {"num_examples": 31, "global_batch_size": 3}},
        },
        examples=31,
    )
    made.run.epochs.override(
        {
            "train": epochs,
            "validation_interval": 1,
            "checkpoint_interval": 1,
            "summary_interval": 0.5,
        }
    )
    return made


def rows(folder, name="train.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four epochs at once, and in two parts."""
    once, often = (tmp_path_factory.mktemp(name) for name in ("once", "often"))
    runner.run(experiment(4), once, "train_and_eval")
    for epochs in (2.2, 4):
        runner.run(experiment(epochs), often, "train_and_eval")
    return once, often


def test_each_epoch_is_evaluated_at_its_end(runs):
    assert [row["step"] for row in rows(runs[0], "history.jsonl")] == [10, 21, 31, 41]
    assert [row["step"] for row in rows(runs[0])] == [5, 10, 16, 21, 26, 31, 36, 41]


def test_a_longer_run_has_the_same_bits_as_one_that_was_as_long_from_the_start(runs):
    once, often = runs
    assert resumed.state(once, 41) == resumed.state(often, 41)
    of = {row["step"]: row for row in resumed.rows(often / "train.jsonl")}
    timed = [
        {name: value for name, value in row.items() if name != "epoch_seconds"}
        for row in resumed.rows(once / "train.jsonl")
    ]
    again = [{k: v for k, v in of[row["step"]].items() if k != "epoch_seconds"} for row in timed]
    assert again == timed


def test_the_rows_say_how_long_epochs_took_and_the_run_so_far(runs):
    for folder in runs:
        found = rows(folder)
        seconds = [row["seconds"] for row in found]
        assert seconds == sorted(seconds)
        ended = {row["step"]: row["epoch_seconds"] for row in found if "epoch_seconds" in row}
        assert list(ended) == [10, 21, 31, 41]
        assert sum(ended.values()) == pytest.approx(seconds[-1], abs=0.01)
