import json
import math
import os

import pytest
import tensorflow as tf
import toy
from wording import saying

import runner
from runner.checkpoints import (
    best,
    checkpoint_files,
    checkpoint_manager,
    integrity,
    restore,
    retention,
)
from runner.errors import ConfigError, RunnerError
from runner.history import best_evaluation, history, policies, records

RULE = best_evaluation.BestRule("accuracy")
DATA = "data-00000-of-00001"


class Killed(BaseException):
    """The process ends here: whatever it tries afterwards does not happen."""


class Model(tf.Module):
    def __init__(self, value=0.0):
        self.weights = tf.Variable(tf.fill([3], value))


def commit(folder, *steps, keep=5):
    """Checkpoints whose weights are their step."""
    model = Model()
    made = checkpoint_manager.Checkpoints(
        tf.train.Checkpoint(model=model), folder, keep=retention.Keep(keep), asynchronous=False
    )
    for step in steps:
        model.weights.assign(tf.fill([3], float(step)))
        made.commit(step)
        yield folder / f"ckpt-{step}"


def row(step, accuracy):
    return records.Evaluation(step, {"accuracy": accuracy}, 0.0, 0.0, f"ckpt-{step}")


def info(folder):
    return json.loads((folder / "info.json").read_text())


def weights(path):
    again = tf.train.Checkpoint(model=Model())
    again.read(str(path)).expect_partial()
    return again.model.weights.numpy().tolist()


def write_averages(source, target):
    """Acts `averages.write`: what it writes is half more than the weights of `source`."""
    (weight, *_) = weights(source)
    checkpoint_files.remove(target)
    tf.train.Checkpoint(model=Model(weight + 0.5)).write(str(target))


def test_the_best_is_the_committed_file_itself_and_info_has_model_gardens_keys(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE)
    rows = []
    accuracies = {10: 0.5, 20: 0.75, 30: 0.6}
    for path in commit(tmp_path, *accuracies, keep=1):
        step = restore.step_of(path)
        rows.append(row(step, accuracies[step]))
        keeper.update(rows, path)
        if step == 20:
            assert (folder / "ckpt-20.index").samefile(tmp_path / "ckpt-20.index")

    assert info(folder)["best_ckpt_global_step"] == 20.0
    assert info(folder)["accuracy"] == 0.75
    assert not (tmp_path / "ckpt-20.index").exists()  # pruned there, kept here
    latest = tf.train.latest_checkpoint(str(folder))
    assert latest == str(folder / info(folder)["checkpoint"])
    assert weights(latest) == [20.0] * 3
    assert len(list(folder.glob("*.index"))) == 1


def test_where_there_are_averages_they_are_the_best_and_training_can_go_on_from_below(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE, write_averages=write_averages)
    ten, twenty = commit(tmp_path, 10, 20)
    keeper.update([row(10, 0.5)], ten)
    keeper.update([row(10, 0.5), row(20, 0.9)], twenty)
    latest = tf.train.latest_checkpoint(str(folder))
    assert latest == str(folder / "ckpt-20")
    assert weights(latest) == [20.5] * 3
    below = folder / "training"
    assert (below / "ckpt-20.index").samefile(tmp_path / "ckpt-20.index")
    for each in (folder, below):
        assert [path.name for path in checkpoint_files.there(each)] == ["ckpt-20"]


def test_what_an_abandoned_way_left_below_is_not_taken_for_the_best(tmp_path):
    folder = tmp_path / "best"
    for path in commit(tmp_path / "abandoned", 10):
        tf.train.Checkpoint(model=Model(99.0)).write(str(path))
        checkpoint_files.link(path, folder / "training" / path.name)
    (ten,) = commit(tmp_path, 10)
    keeper = best.BestCheckpoint(folder, RULE, write_averages=write_averages)
    keeper.update([row(10, 0.5)], ten)
    assert weights(folder / "training" / "ckpt-10") == [10.0] * 3
    assert weights(folder / "ckpt-10") == [10.5] * 3


def test_a_best_with_averages_beside_it_is_brought_into_the_present_form(tmp_path):
    folder = tmp_path / "best"
    ten, twenty = commit(tmp_path, 10, 20, keep=1)
    assert not checkpoint_files.exists(ten)
    for path in commit(folder, 10):  # as earlier versions left it
        tf.train.Checkpoint(model=Model(10.5)).write(str(folder / "averaged-10"))
        old = {"accuracy": 0.9, "checkpoint": path.name, "averaged_weights": "averaged-10"}
        (folder / "info.json").write_text(json.dumps(old))
    keeper = best.BestCheckpoint(folder, RULE, write_averages=write_averages)
    assert keeper.update([row(10, 0.9), row(20, 0.5)], twenty).step == 10
    assert "averaged_weights" not in info(folder)
    assert weights(folder / "ckpt-10") == [10.5] * 3
    assert weights(folder / "training" / "ckpt-10") == [10.0] * 3
    assert not checkpoint_files.exists(folder / "averaged-10")


def test_nan_is_never_best(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    rows = [row(10, math.nan)]
    assert keeper.update(rows, ten) is None
    assert not (tmp_path / "best").exists()
    rows.append(row(20, 0.1))
    assert keeper.update(rows, twenty).step == 20


def test_a_best_that_the_folder_lost_is_found_beside_the_newest(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE, write_averages=write_averages)
    rows = [row(10, 0.9), row(20, 0.5)]
    assert keeper.update(rows, twenty).step == 10
    assert info(tmp_path / "best")["checkpoint"] == "ckpt-10"
    assert weights(tmp_path / "best" / "ckpt-10") == [10.5] * 3  # its own averages
    checkpoint_files.remove(tmp_path / "best" / "ckpt-10")
    keeper.update(rows, ten)
    assert weights(tmp_path / "best" / "ckpt-10") == [10.5] * 3


@pytest.mark.parametrize("text", ['{"accuracy": 0.', "[1]"])
def test_a_damaged_info_is_written_anew_and_nothing_that_it_named_is_lost(tmp_path, text):
    folder = tmp_path / "best"
    rows = []
    for path, accuracy in zip(commit(tmp_path, 1, 2, keep=1), (0.9, 0.1), strict=True):
        rows.append(row(int(path.name[-1]), accuracy))
        best.BestCheckpoint(folder, RULE).update(rows, path)
        (folder / "info.json").write_text(text)
    assert not checkpoint_files.exists(tmp_path / "ckpt-1")
    best.BestCheckpoint(folder, RULE).update(rows, path)
    assert info(folder)["checkpoint"] == "ckpt-1"
    assert weights(folder / "ckpt-1") == [1.0] * 3


def test_weights_that_are_no_checkpoint_of_the_run_are_not_exported(tmp_path):
    rows = [records.Evaluation(0, {"accuracy": 0.5}, 0.0, 0.0, "pretrained")]
    (tmp_path / "pretrained").mkdir()
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    assert keeper.update(rows, tmp_path / "pretrained").step == 0
    assert not (tmp_path / "best").exists()


def entries(folder):
    """What info.json lists, and the checkpoints that are there."""
    listed = [(each["step"], each["value"]) for each in info(folder)["checkpoints"]]
    there = {checkpoint_files.step_in(path.name) for path in checkpoint_files.there(folder)}
    assert {step for step, _ in listed} == there
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / info(folder)["checkpoint"])
    return listed


ACCURACIES = {10: 0.5, 20: 0.75, 30: math.nan, 40: 0.75, 50: 0.25, 60: 0.875}


def test_the_best_few_are_kept_the_best_first_and_of_equals_the_earlier(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE, keep=3)
    rows, seen = [], []
    for path in commit(tmp_path, *ACCURACIES, keep=1):
        step = restore.step_of(path)
        rows.append(row(step, ACCURACIES[step]))
        seen.append(keeper.update(rows, path).step)
    assert entries(folder) == [(60, 0.875), (20, 0.75), (40, 0.75)]
    assert seen == [10, 20, 20, 20, 20, 60]
    assert info(folder)["best_ckpt_global_step"] == 60.0
    assert info(folder)["accuracy"] == 0.875
    for step in (20, 40, 60):
        assert weights(folder / f"ckpt-{step}") == [float(step)] * 3


def test_of_a_metric_of_which_lower_is_better_the_lowest_are_kept(tmp_path):
    rule = best_evaluation.BestRule("accuracy", higher=False)
    *_, newest = commit(tmp_path, *ACCURACIES, keep=9)
    rows = [row(*each) for each in ACCURACIES.items()]
    best.BestCheckpoint(tmp_path / "best", rule, keep=2).update(rows, newest)
    assert entries(tmp_path / "best") == [(50, 0.25), (10, 0.5)]


def test_another_number_to_keep_holds_from_the_next_update_as_far_as_checkpoints_are_there(
    tmp_path,
):
    folder = tmp_path / "best"
    *_, newest = commit(tmp_path, 10, 20, 30, 40, keep=9)
    rows = [row(10, 0.1), row(20, 0.2), row(30, 0.3), row(40, 0.4)]

    def update(keep):
        best.BestCheckpoint(folder, RULE, keep=keep).update(rows, newest)

    update(3)
    assert [step for step, _ in entries(folder)] == [40, 30, 20]
    update(2)
    assert [step for step, _ in entries(folder)] == [40, 30]
    checkpoint_files.remove(tmp_path / "ckpt-20")
    update(3)
    assert [step for step, _ in entries(folder)] == [40, 30, 10]
    update(1)
    assert "checkpoints" not in info(folder)
    assert [path.name for path in checkpoint_files.there(folder)] == ["ckpt-40"]
    update(2)
    assert [step for step, _ in entries(folder)] == [40, 30]


def test_each_of_several_has_its_own_averages(tmp_path):
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE, keep=2, write_averages=write_averages)
    rows = [row(10, 0.9)]
    ten, _, thirty = commit(tmp_path, 10, 20, 30)
    keeper.update(rows, ten)
    rows += [row(20, 0.7), row(30, 0.1)]
    keeper.update(rows, thirty)
    assert entries(folder) == [(10, 0.9), (20, 0.7)]
    for step in (10, 20):
        assert weights(folder / f"ckpt-{step}") == [step + 0.5] * 3


EITHER = best_evaluation.BestRule("accuracy", or_higher=("f1",))
# Accuracy and F1. The first three are better than ever before; the fourth is so in neither, though
# it has a higher accuracy than the third, and a higher F1 than the second.
SCORES = {10: (0.5, 0.5), 20: (0.625, 0.375), 30: (0.25, 0.75), 40: (0.5, 0.625)}


def scored():
    return [
        records.Evaluation(step, {"accuracy": accuracy, "f1": f1}, 0.0, 0.0, f"ckpt-{step}")
        for step, (accuracy, f1) in SCORES.items()
    ]


def test_by_several_metrics_the_newest_gain_is_kept_though_what_it_beat_is_gone(tmp_path):
    keeper = best.BestCheckpoint(tmp_path / "best", EITHER)
    kept = []
    for number, path in enumerate(commit(tmp_path, *SCORES, keep=1), 1):
        found = keeper.update(scored()[:number], path)
        assert weights(checkpoint_files.latest(tmp_path / "best")) == [float(found.step)] * 3
        kept.append(found.step)
    assert kept == [10, 20, 30, 30]
    assert info(tmp_path / "best") == {
        "accuracy": 0.25,
        "f1": 0.75,
        "best_ckpt_global_step": 30.0,
        "checkpoint": "ckpt-30",
    }


def test_of_several_by_several_metrics_the_newest_gains_are_kept(tmp_path):
    keeper = best.BestCheckpoint(tmp_path / "best", EITHER, keep=2)
    rows = [*scored(), records.Evaluation(50, {"f1": 0.875}, 0.0, 0.0, "ckpt-50")]
    for number, path in enumerate(commit(tmp_path, *SCORES, 50, keep=1), 1):
        keeper.update(rows[:number], path)
    assert info(tmp_path / "best")["checkpoints"] == [
        {"step": 50, "checkpoint": "ckpt-50"},
        {"step": 30, "value": 0.25, "checkpoint": "ckpt-30"},
    ]


def test_what_a_changed_rule_leaves_out_is_no_longer_named_and_comes_back_with_the_old_one(
    tmp_path,
):
    folder = tmp_path / "best"
    ten, twenty = commit(tmp_path, 10, 20)
    rows = [row(10, 0.9), row(20, 0.5)]
    keeper = best.BestCheckpoint(folder, RULE, write_averages=write_averages)
    keeper.update(rows[:1], ten)
    before = info(folder)
    checkpoint_files.remove(ten)

    late = best.BestCheckpoint(folder, best_evaluation.BestRule("accuracy", from_step=30))
    assert late.update([], twenty) is None
    assert info(folder) == before  # no evaluation says otherwise
    assert late.update(rows, twenty) is None
    assert not (folder / "info.json").exists()
    assert checkpoint_files.latest(folder) is None
    assert keeper.update(rows, twenty).step == 10
    assert info(folder) == before
    assert checkpoint_files.latest(folder) == folder / "ckpt-10"


def test_a_step_that_was_evaluated_twice_counts_once(tmp_path):
    ten, _ = commit(tmp_path, 10, 20)
    rows = [row(10, 0.9), row(20, 0.5), row(10, 0.9)]
    best.BestCheckpoint(tmp_path / "best", RULE, keep=2).update(rows, ten)
    assert entries(tmp_path / "best") == [(10, 0.9), (20, 0.5)]


def test_the_checkpoint_of_another_run_is_not_taken_for_one_of_this(tmp_path):
    [ten] = commit(tmp_path, 10)
    rows = [records.Evaluation(10, {"accuracy": 0.9}, 0.0, 0.0, "/elsewhere/ckpt-10")]
    best.BestCheckpoint(tmp_path / "best", RULE).update(rows, ten)
    assert not (tmp_path / "best").exists()


def test_what_the_folder_holds_whole_is_not_touched_by_what_became_of_it_elsewhere(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    keeper.update([row(10, 0.9)], ten)
    checkpoint_files.remove(ten)
    ten.with_name("ckpt-10.index").write_bytes(b"damaged")
    keeper.update([row(10, 0.9), row(20, 0.5)], twenty)
    assert weights(tmp_path / "best" / "ckpt-10") == [10.0] * 3


def test_one_that_training_removes_meanwhile_is_left_out(tmp_path, monkeypatch):
    folder = tmp_path / "best"
    ten, _, thirty = commit(tmp_path, 10, 20, 30)
    rows = [row(10, 0.9), row(20, 0.5), row(30, 0.1)]
    keeper = best.BestCheckpoint(folder, RULE, keep=2)
    data = checkpoint_files.data

    def remove_first(path):
        if path == ten:
            checkpoint_files.index(ten).unlink(missing_ok=True)
        return data(path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_files, "data", remove_first)
        keeper.update(rows, thirty)
    assert entries(folder) == [(20, 0.5)]
    keeper.update(rows, thirty)
    assert entries(folder) == [(20, 0.5), (30, 0.1)]


def test_an_evaluation_looks_for_few_checkpoints_however_many_there_have_been(
    tmp_path, monkeypatch
):
    ten, twenty = commit(tmp_path, 10, 20)
    keeper = best.BestCheckpoint(tmp_path / "best", RULE)
    rows = [row(step, 0.9) for step in range(1000, 2000)]  # of a rule before, and gone
    keeper.update([*rows, row(10, 0.5)], ten)
    looked = []
    exists = checkpoint_files.exists
    monkeypatch.setattr(
        checkpoint_files, "exists", lambda path: looked.append(path) or exists(path)
    )
    keeper.update([*rows, row(10, 0.5), row(20, 0.6)], twenty)
    assert info(tmp_path / "best")["checkpoint"] == "ckpt-20"
    assert len(looked) < 20


def test_each_metric_has_its_folder_and_the_first_is_the_runs(tmp_path):
    loss = best_evaluation.BestRule("loss", higher=False)
    keeper = best.BestCheckpoints(
        [best.BestCheckpoint(tmp_path / "best", RULE), best.BestCheckpoint(tmp_path / "low", loss)]
    )
    rows = [
        records.Evaluation(10, {"accuracy": 0.5, "loss": 1.0}, 0.0, 0.0, "ckpt-10"),
        records.Evaluation(20, {"accuracy": 0.7, "loss": 2.0}, 0.0, 0.0, "ckpt-20"),
    ]
    _, twenty = commit(tmp_path, 10, 20)
    assert keeper.update(rows, twenty).step == 20
    assert info(tmp_path / "best")["checkpoint"] == "ckpt-20"
    assert info(tmp_path / "low")["checkpoint"] == "ckpt-10"
    assert best.BestCheckpoints([]).update(rows, twenty) is None


def test_a_run_keeps_the_best_by_each_metric_that_its_configuration_names(tmp_path):
    config = toy.experiment(
        {
            "trainer": {"validation_interval": 10, "checkpoint_interval": 10, "max_to_keep": 1},
            "run": {"retention": {"best": 2, "every": 20, "lower": ["validation_loss"]}},
        }
    )
    runner.run(config, tmp_path, "train_and_eval")
    kept = [path.name for path in checkpoint_files.there(tmp_path)]
    assert kept == ["ckpt-20", "ckpt-40"]
    scores = [each.metrics for each in history.History(tmp_path / "history.jsonl").evaluations]
    highest = sorted((each["accuracy"] for each in scores), reverse=True)[:2]
    lowest = sorted(each["validation_loss"] for each in scores)[:2]
    assert [value for _, value in entries(tmp_path / "best")] == highest
    assert [value for _, value in entries(tmp_path / "best-validation_loss")] == lowest


def either(**retention):
    """A run that is tested, and whose best is best by either metric."""
    made = toy.experiment(
        {
            "trainer": {
                "validation_interval": 10,
                "checkpoint_interval": 10,
                "max_to_keep": 1,
                "best_checkpoint_eval_metric": "mean|accuracy",
            },
            "run": {
                "retention": {"or_higher": ["mean|f1"], **retention},
                "evaluator": {"policy": "every"},
            },
        }
    )
    made.run.test.data = made.task.validation_data
    return made


@pytest.fixture
def scripted(monkeypatch):
    """Evaluations of the toy result in `SCORES`, whatever its weights."""

    def reduce(self, logs, global_step=None):
        accuracy, f1 = SCORES.get(int(global_step), (0.0, 0.0))
        return {"mean": {"accuracy": accuracy, "f1": f1}}

    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda self, state, logs: True)
    monkeypatch.setattr(toy.ToyTask, "reduce_aggregated_logs", reduce)


@pytest.mark.usefixtures("scripted")
def test_a_run_and_its_evaluator_keep_show_and_test_the_newest_gain(tmp_path, capsys):
    config = either(from_step=20)
    results = runner.run(config, tmp_path, "train_and_eval")
    marked = [line for line in capsys.readouterr().err.splitlines() if "(best)" in line]
    assert [int(line.split()[2]) for line in marked] == [20, 30]
    assert results["best"]["step"] == results["test"]["best"]["step"] == 30
    assert info(tmp_path / "best")["best_ckpt_global_step"] == 30
    assert runner.run(config, tmp_path, "eval", checkpoint="best")["step"] == 30

    runner.run(either(from_step=20, every=10), tmp_path / "watched", "train")
    beside = runner.run(config, tmp_path / "watched", "continuous_eval")
    assert beside["best"] == results["best"]
    assert beside["test"] == results["test"]
    own = tmp_path / "watched" / "eval-continuous" / "best"
    assert info(own)["best_ckpt_global_step"] == 30


@pytest.mark.usefixtures("scripted")
def test_a_run_killed_between_the_row_and_the_folder_ends_as_one_that_was_not(
    tmp_path, monkeypatch
):
    update = best.BestCheckpoint.update

    def killed(self, rows, source, commit=None):
        if rows[-1:] and rows[-1].step == 30:
            raise Killed
        return update(self, rows, source)

    with monkeypatch.context() as patch:
        patch.setattr(best.BestCheckpoint, "update", killed)
        with pytest.raises(Killed):
            runner.run(either(from_step=20), tmp_path, "train_and_eval")
    resumed = runner.run(either(from_step=20), tmp_path, "train_and_eval")
    assert resumed["best"]["step"] == info(tmp_path / "best")["best_ckpt_global_step"] == 30
    assert [path.name for path in checkpoint_files.there(tmp_path / "best")] == ["ckpt-30"]


@pytest.mark.parametrize(
    "retention_section",
    [
        {"higher": ["error"], "lower": ["error"]},
        {"higher": ["a/b", "a-b"]},
        {"higher": ["top", "top"]},
    ],
)
def test_two_metrics_that_would_share_a_folder_are_a_mistake(retention_section):
    config = toy.experiment({"run": {"retention": retention_section}})
    with pytest.raises(ConfigError, match=r"RetentionConfig.*share the directory best-"):
        policies.of(config)


def test_the_metric_of_the_best_checkpoint_has_one_folder():
    retention = {"higher": ["accuracy"], "lower": ["validation_loss"]}
    config = toy.experiment({"run": {"retention": retention}})
    assert list(policies.of(config).best_folders) == ["best", "best-validation_loss"]


def test_the_metric_of_a_best_by_several_may_have_a_folder_of_its_own_best():
    config = either(higher=["mean|accuracy"], from_step=7)
    assert policies.of(config).best_folders == {
        "best": best_evaluation.BestRule("mean/accuracy", or_higher=("mean/f1",), from_step=7),
        "best-mean-accuracy": best_evaluation.BestRule("mean/accuracy", from_step=7),
    }


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Mortal:
    """Lets a number of changes to the disk happen, and then no more."""

    def __init__(self, monkeypatch, changes):
        self.left = changes
        for name in ("link", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, function):
        def change(*args, **kwargs):
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return function(*args, **kwargs)

        return change

    def write_averages(self, source, target):
        self.counted(write_averages)(source, target)
        if self.left == 0:  # what TensorFlow leaves when it is killed before the end
            target.with_name(f"{target.name}_temp").mkdir()
            target.with_name(f"{target.name}.index").write_bytes(b"")


@pytest.mark.parametrize(
    ("in_its_way", "rule", "accuracy"), [(False, RULE, 0.9), (True, RULE, 0.9), (True, EITHER, 0.1)]
)
def test_killed_at_any_point_the_folder_names_a_whole_best_and_is_put_right(
    tmp_path, monkeypatch, in_its_way, rule, accuracy
):
    ten, twenty = commit(tmp_path, 10, 20)
    rows = [
        records.Evaluation(10, {"accuracy": 0.5, "f1": 0.5}, 0.0, 0.0, "ckpt-10"),
        records.Evaluation(20, {"accuracy": accuracy, "f1": 0.9}, 0.0, 0.0, "ckpt-20"),
    ]
    changes = 0
    finished = False
    while not finished:
        folder = tmp_path / f"best-{changes}"
        best.BestCheckpoint(folder, rule, write_averages=write_averages).update(rows[:1], ten)
        if in_its_way:  # an earlier kill left something
            (folder / f"ckpt-20.{DATA}").write_bytes(b"x")
            (folder / "ckpt-15_temp").mkdir()
            (folder / f".ckpt-15.{DATA}.1.tmp").write_bytes(b"x")
        with monkeypatch.context() as patch:
            mortal = Mortal(patch, changes)
            keeper = best.BestCheckpoint(folder, rule, write_averages=mortal.write_averages)
            try:
                keeper.update(rows, twenty)
                finished = True
            except Killed:
                pass
        named = info(folder)
        assert (named["checkpoint"], named["accuracy"]) in (("ckpt-10", 0.5), ("ckpt-20", accuracy))
        for each in (folder, folder / "training"):
            assert integrity.damage(each / named["checkpoint"]) is None

        best.BestCheckpoint(folder, rule, write_averages=write_averages).update(rows, twenty)
        assert info(folder)["checkpoint"] == "ckpt-20"
        assert weights(folder / "ckpt-20") == [20.5] * 3
        assert files_in(folder) == {
            "checkpoint",
            "info.json",
            *(f"{place}ckpt-20.{part}" for place in ("", "training/") for part in ("index", DATA)),
        }
        assert checkpoint_files.latest(folder) == folder / "ckpt-20"
        changes += 1
    assert changes > 10


def test_killed_at_any_point_several_are_whole_and_put_right(tmp_path, monkeypatch):
    ten, twenty, thirty = commit(tmp_path, 10, 20, 30)
    rows = [row(10, 0.5), row(20, 0.4), row(30, 0.9)]
    changes = 0
    finished = False
    while not finished:
        folder = tmp_path / f"best-{changes}"

        def keeper(write=write_averages, folder=folder):
            return best.BestCheckpoint(folder, RULE, keep=2, write_averages=write)

        keeper().update(rows[:1], ten)
        keeper().update(rows[:2], twenty)
        with monkeypatch.context() as patch:
            mortal = Mortal(patch, changes)
            try:
                keeper(mortal.write_averages).update(rows, thirty)
                finished = True
            except Killed:
                pass
        assert [each["step"] for each in info(folder)["checkpoints"]] in ([10, 20], [30, 10])
        for each in info(folder)["checkpoints"]:
            assert integrity.damage(folder / each["checkpoint"]) is None
            assert integrity.damage(folder / "training" / each["checkpoint"]) is None

        keeper().update(rows, thirty)
        assert entries(folder) == [(30, 0.9), (10, 0.5)]
        assert weights(folder / "ckpt-30") == [30.5] * 3
        names = ("ckpt-10", "training/ckpt-10", "ckpt-30", "training/ckpt-30")
        assert files_in(folder) == {
            "checkpoint",
            "info.json",
            *(f"{name}.{part}" for name in names for part in ("index", DATA)),
        }
        changes += 1
    assert changes > 10


def test_a_folder_that_cannot_be_written_is_one_message_and_the_old_best_stays(tmp_path):
    ten, twenty = commit(tmp_path, 10, 20)
    folder = tmp_path / "best"
    keeper = best.BestCheckpoint(folder, RULE)
    (folder / "ckpt-10.index").mkdir(parents=True)
    with pytest.raises(RunnerError, match=saying("best/ckpt-10 previous")):
        keeper.update([row(10, 0.5)], ten)
    (folder / "ckpt-10.index").rmdir()
    keeper.update([row(10, 0.5)], ten)
    (folder / "ckpt-20.index").mkdir()
    with pytest.raises(RunnerError, match=saying("best/ckpt-20 written")):
        keeper.update([row(10, 0.5), row(20, 0.9)], twenty)
    assert info(folder)["checkpoint"] == "ckpt-10"
    assert weights(folder / "ckpt-10") == [10.0] * 3
