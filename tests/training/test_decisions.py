"""Early stopping and plateaus, as a run takes them and as a resumed run repeats them."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import toy
from wording import each_says, says

import runner
from runner import run_config
from runner.history import history, records
from runner.run_directory import status


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rates(folder):
    return [row["learning_rate"] for row in rows(folder / "train.jsonl")]


def weights(folder):
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("model/")]
    return {name: reader.get_tensor(name) for name in sorted(names)}


def frozen(run, steps=200, rate=1e-12, **trainer):
    """An experiment whose evaluations do not change: its learning rate is next to nothing."""
    return toy.experiment(
        {
            "trainer": {
                "train_steps": steps,
                "optimizer_config": {
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": rate}}
                },
                **trainer,
            },
            "run": run,
        }
    )


def patient(patience, **more):
    return {"early_stopping": {"higher": ("accuracy",), "patience": patience, **more}}


def dropping(**more):
    return {"plateau": {"higher": ("accuracy",), "tolerance": 2, **more}}


def evaluator_saw(folder, *steps, name="side", accuracy=0.5):
    """Rows as an evaluator of that name writes them."""
    log = history.History(folder / f"eval-{name}" / "history.jsonl")
    for step in steps:
        log.append(records.Evaluation(step, {"accuracy": accuracy}, 0.1, 0.0, f"ckpt-{step}"))


def when(step, do):
    """An action that does something once, after the loop that ends at `step`."""
    loops = []

    def action(logs):
        loops.append(logs)
        if len(loops) * 10 == step:
            do()

    return action


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that stopped early, and its results."""
    folder = tmp_path_factory.mktemp("stopped")
    return folder, runner.run(frozen(patient(2)), folder, "train_and_eval")


def test_a_run_that_gets_no_better_stops_and_says_why(stopped):
    folder, results = stopped
    assert (results["status"], results["step"]) == ("stopped", 60)
    said = "early stopping: accuracy no better in 2 evaluations, since step 20"
    assert results["reason"].startswith(said)
    assert status.read(folder).state == "stopped"
    assert status.read(folder).reason == results["reason"]
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "ckpt-60")


def test_a_run_that_was_stopped_early_stays_stopped(stopped):
    folder, results = stopped
    before = (folder / "train.jsonl").read_text()
    assert runner.run(frozen(patient(2)), folder, "train_and_eval") == results
    assert (folder / "train.jsonl").read_text() == before


def test_more_patience_goes_on_with_a_stopped_run_and_counts_from_before(tmp_path, stopped):
    folder = shutil.copytree(stopped[0], tmp_path / "run")
    results = runner.run(frozen(patient(4)), folder, "train_and_eval")
    assert (results["status"], results["step"]) == ("stopped", 100)  # 20 was the best


def test_nothing_stops_before_the_step_it_may(tmp_path):
    results = runner.run(frozen(patient(2, from_step=70)), tmp_path, "train_and_eval")
    assert results["step"] == 120  # 80 is the first that counts


def test_a_plateau_lowers_the_rate_down_to_its_floor_and_then_is_silent(tmp_path, capsys):
    run = dropping(factor=0.1, floor=5e-14)
    runner.run(frozen(run, steps=200), tmp_path, "train_and_eval")
    expected = [1e-12] * 6 + [1e-13] * 4 + [5e-14] * 10
    assert rates(tmp_path) == pytest.approx(expected)
    said = [line for line in capsys.readouterr().err.splitlines() if "did not improve" in line]
    each_says(said, "accuracy 0.1 scheduled", "accuracy PlateauConfig.floor 5e-14")


def test_a_pause_between_evaluations_decides_nothing(tmp_path):
    def run(pause_at):
        made = frozen({**patient(2), "pause_at": pause_at})
        return runner.run(made, tmp_path, "train_and_eval")

    assert (run(50)["step"], runner.Run(tmp_path).state) == (50, "paused")  # evaluated every 20
    results = run(0)
    assert (results["status"], results["step"]) == ("stopped", 60)


def test_an_evaluation_at_an_earlier_end_counts_for_nothing_in_a_longer_run(tmp_path):
    def learning(steps):
        return frozen({**dropping(), **patient(5)}, steps=steps, rate=1e-9)

    runner.run(learning(140), tmp_path / "whole", "train_and_eval")
    for steps in (50, 90, 140):  # 50 and 90 would be worse, too
        runner.run(learning(steps), tmp_path / "longer", "train_and_eval")
    assert rates(tmp_path / "longer") == rates(tmp_path / "whole")
    one, other = weights(tmp_path / "longer"), weights(tmp_path / "whole")
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_resumed_run_repeats_its_drops_bit_for_bit(tmp_path):
    def learning(steps):
        return frozen(dropping(), steps=steps, rate=1.0)

    runner.run(learning(120), tmp_path / "whole", "train_and_eval")
    for steps in (80, 120):
        runner.run(learning(steps), tmp_path / "parts", "train_and_eval")
    assert len(set(rates(tmp_path / "whole"))) > 2
    assert rates(tmp_path / "parts") == rates(tmp_path / "whole")
    np.testing.assert_equal(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_an_evaluator_stops_a_run_that_does_not_evaluate(tmp_path):
    evaluator_saw(tmp_path, 20, 40, 60)
    drops = dropping(source="side")
    run = {**patient(2, source="side"), **drops}
    results = runner.run(frozen(run), tmp_path, "train")
    assert (results["status"], results["step"]) == ("stopped", 60)
    says(results["reason"], "accuracy side 2")
    (stop,) = rows(tmp_path / "history.jsonl")
    assert (stop["kind"], stop["step"], stop["source"]) == ("stop", 60, "side")
    assert runner.run(frozen(run), tmp_path, "train")["step"] == 60  # and it stays stopped
    more = {**patient(5, source="side"), **drops}
    assert runner.run(frozen(more, steps=80), tmp_path, "train")["status"] == "done"
    assert [row["kind"] for row in rows(tmp_path / "history.jsonl")] == ["drop"]


def test_an_evaluators_plateau_takes_effect_at_a_commit_and_survives_the_evaluator(tmp_path):
    run = dropping(source="side")
    evaluator_saw(tmp_path, 20)
    late = when(50, lambda: evaluator_saw(tmp_path, 30, 40))
    runner.run(frozen(run, steps=80), tmp_path, "train", train_actions=[late])
    assert rates(tmp_path) == pytest.approx([1e-12] * 6 + [5e-13] * 2)
    (drop,) = rows(tmp_path / "history.jsonl")
    assert (drop["kind"], drop["step"], drop["scale"]) == ("drop", 60, 0.5)
    (tmp_path / "eval-side" / "history.jsonl").unlink()
    runner.run(frozen(run, steps=100), tmp_path, "train")
    assert rates(tmp_path)[-2:] == pytest.approx([5e-13] * 2)


def test_a_decision_newer_than_the_restored_step_is_taken_again(tmp_path):
    run = dropping(source="side")
    evaluator_saw(tmp_path, 20, 30, 40)
    runner.run(frozen(run, steps=60), tmp_path, "train")
    for file in tmp_path.glob("ckpt-[46]0.*"):
        file.unlink()
    runner.run(frozen(run, steps=60), tmp_path, "train")
    assert rates(tmp_path) == pytest.approx([1e-12] * 4 + [5e-13] * 2)
    assert [row["step"] for row in rows(tmp_path / "history.jsonl")] == [40]


def test_a_source_that_nobody_is_is_said(tmp_path, capsys):
    evaluator_saw(tmp_path, 20, name="side")
    runner.run(frozen(patient(2, source="sied"), steps=20), tmp_path, "train")
    said = capsys.readouterr().err
    says(said, "decisions sied")
    says(said, "evaluators side")
    says(said, "sied decide no evaluation")
    runner.run(frozen(patient(2, source="side"), steps=40), tmp_path, "train")
    assert "configured" not in capsys.readouterr().err


def test_training_alone_says_what_it_leaves_to_evaluators(tmp_path, capsys):
    made = toy.experiment({"run": {"retention": {"lower": ("validation_loss",)}}})
    made.run.test.data = made.task.validation_data
    runner.run(made, tmp_path, "train")
    says(capsys.readouterr().err, "evaluators best/ best-validation_loss/ test")


def test_a_row_that_the_evaluator_is_still_writing_waits(tmp_path):
    path = tmp_path / "eval-side" / "history.jsonl"
    evaluator_saw(tmp_path, 20)
    whole = path.read_text()
    path.write_text(whole + whole[:30])
    tail = history.Tail(path)
    assert [row.step for row in tail.take(None)] == [20]
    path.write_text(whole + whole.replace("20", "40"))
    assert [row.step for row in tail.take(30)] == []
    assert [row.step for row in tail.take(None)] == [40]


def test_a_run_that_an_action_stops_is_evaluated_where_it_stopped(tmp_path):
    results = runner.run(
        toy.experiment(), tmp_path, "train_and_eval", train_actions=[lambda logs: "enough"]
    )
    assert [row["step"] for row in rows(tmp_path / "history.jsonl")] == [10]
    assert np.isfinite(results["metrics"]["accuracy"])


def test_what_was_not_due_where_a_run_stopped_early_is_evaluated_there_once(tmp_path):
    made = frozen(patient(2))
    data = made.task.validation_data
    made.run.evaluation_sets = (
        run_config.EvaluationSetConfig(name="part", data=data, interval=50, examples=5),
    )
    results = runner.run(made, tmp_path, "train_and_eval")
    found = rows(tmp_path / "history.jsonl")
    assert [row["step"] for row in found] == [20, 40, 50, 60, 60]
    assert set(found[-1]["metrics"]) == {"part/accuracy", "part/loss"}
    assert results["metrics"] == {**found[-2]["metrics"], **found[-1]["metrics"]}
    assert runner.run(made, tmp_path, "train_and_eval") == results
    assert rows(tmp_path / "history.jsonl") == found
